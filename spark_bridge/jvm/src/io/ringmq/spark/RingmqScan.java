package io.ringmq.spark;

import io.ringmq.spark.read.Column;
import io.ringmq.spark.read.ReadSettings;
import io.ringmq.spark.read.ReaderFactory;
import io.ringmq.spark.read.Slice;
import io.ringmq.spark.store.QueueSpan;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/** One read of some queues with fixed ends. */
final class RingmqScan implements Scan, Batch, SupportsReportStatistics {
    private final ReadOptions options;
    private final List<QueueSpan> spans;
    private final ArrayList<Column> columns;
    private final long rowLimit;
    private final String description;

    RingmqScan(ReadOptions options, List<QueueSpan> spans, List<Column> columns, long rowLimit, String description) {
        this.options = options;
        this.spans = spans;
        this.columns = new ArrayList<>(columns);
        this.rowLimit = rowLimit;
        this.description = description;
    }

    @Override
    public StructType readSchema() {
        return RingmqTable.schemaOf(columns);
    }

    @Override
    public String description() {
        return description;
    }

    @Override
    public Batch toBatch() {
        return this;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public InputPartition[] planInputPartitions() {
        int cores = SparkSession.active().sparkContext().defaultParallelism();
        try {
            return new Slicer(options, cores).slices(spans, columns, rowLimit).toArray(new Slice[0]);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new ReaderFactory(new ReadSettings(
                options.store, options.broker, columns, options.verifyCrc, options.failOnDataLoss));
    }

    /** Gives Spark the exact number of rows and the upper bound of their bytes, for its choice of joins. */
    @Override
    public Statistics estimateStatistics() {
        long rows = Math.min(rowLimit, spans.stream().mapToLong(QueueSpan::count).sum());
        long bytes = spans.stream().mapToLong(QueueSpan::logEnd).max().orElse(0)
                - spans.stream().mapToLong(QueueSpan::logBegin).min().orElse(0);
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return OptionalLong.of(Math.max(1, bytes));
            }

            @Override
            public OptionalLong numRows() {
                return OptionalLong.of(rows);
            }
        };
    }
}
