package io.ringmq.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** The result of a pushed aggregate, computed by the driver without a task. */
final class AggregateScan implements LocalScan {
    private final StructType schema;
    private final InternalRow[] rows;
    private final String description;

    AggregateScan(StructType schema, InternalRow[] rows, String description) {
        this.schema = schema;
        this.rows = rows;
        this.description = description;
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public InternalRow[] rows() {
        return rows;
    }

    @Override
    public String description() {
        return description + ", PushedAggregates: " + String.join(", ", schema.fieldNames());
    }
}
