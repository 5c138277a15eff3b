package io.ringmq.spark;

import io.ringmq.spark.read.Column;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A store's messages as a table for batch reads. */
final class RingmqTable implements SupportsRead {
    private final Map<String, String> properties;
    private final List<Column> columns;

    RingmqTable(Map<String, String> properties, List<Column> columns) {
        this.properties = properties;
        this.columns = columns;
    }

    static StructType schemaOf(List<Column> columns) {
        StructType schema = new StructType();
        for (Column column : columns) {
            schema = schema.add(column.field());
        }
        return schema;
    }

    @Override
    public String name() {
        return RingmqProvider.NAME;
    }

    @Override
    public org.apache.spark.sql.connector.catalog.Column[] columns() {
        return columns.stream()
                .map(column ->
                        org.apache.spark.sql.connector.catalog.Column.create(column.label(), column.type(), true))
                .toArray(org.apache.spark.sql.connector.catalog.Column[]::new);
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        Map<String, String> all = new HashMap<>(RingmqProvider.ownOptions(properties));
        all.putAll(RingmqProvider.ownOptions(options.asCaseSensitiveMap()));
        try {
            return new RingmqScanBuilder(new ReadOptions(all), columns);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }
}
