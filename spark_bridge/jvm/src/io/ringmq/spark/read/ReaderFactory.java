package io.ringmq.spark.read;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Creates the reader of a slice. Spark sends the factory to each task. */
public final class ReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    private final ReadSettings how;

    public ReaderFactory(ReadSettings how) {
        this.how = how;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        throw new UnsupportedOperationException("ringmq-jvm returns columns, not rows");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        Slice slice = (Slice) partition;
        switch (slice.way()) {
            case LOG:
                return new LogReader(slice, how);
            case QUEUES:
                return new QueueReader(slice, how);
            default:
                return new OffsetsReader(slice, how);
        }
    }
}
