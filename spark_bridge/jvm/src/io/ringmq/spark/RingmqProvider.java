package io.ringmq.spark;

import io.ringmq.spark.read.Column;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Batch reads of a store on this host without Python: {@code spark.read.format("ringmq-jvm").option("store",
 * DIR).load()}.
 *
 * <p>The name is not {@code ringmq}: a Java source of that name would hide the Python source with its streams and its
 * sink.
 */
public final class RingmqProvider implements TableProvider, DataSourceRegister {
    static final String NAME = "ringmq-jvm";

    /** Prefix of the options in the properties of a table of Spark's catalog, which has properties of its own. */
    private static final String TABLE_OPTION = "option.";

    @Override
    public String shortName() {
        return NAME;
    }

    /** Accepts a schema of the user, which selects columns. */
    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        try {
            return RingmqTable.schemaOf(new ReadOptions(ownOptions(options.asCaseSensitiveMap())).columns());
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        List<Column> columns = new ArrayList<>();
        for (StructField field : schema.fields()) {
            Column column = Column.named(field.name());
            if (!column.type().sameType(field.dataType())) {
                throw new IllegalArgumentException("column " + column.label() + " is " + column.type().sql() + ", not "
                        + field.dataType().sql());
            }
            columns.add(column);
        }
        return new RingmqTable(properties, columns);
    }

    /** Returns the options, from a read or from CREATE TABLE. */
    static Map<String, String> ownOptions(Map<String, String> properties) {
        if (!properties.containsKey("provider")) {
            return properties;
        }
        Map<String, String> own = new HashMap<>();
        properties.forEach((name, value) -> {
            if (name.startsWith(TABLE_OPTION)) {
                own.put(name.substring(TABLE_OPTION.length()), value);
            }
        });
        return own;
    }
}
