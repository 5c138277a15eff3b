package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads rows of which only queue and offset are wanted. The units tell which offsets have a record. */
final class OffsetsReader implements PartitionReader<ColumnarBatch> {
    private static final int BATCH_ROWS = 8192;

    private final Slice slice;
    private final ReadSettings how;
    private int span = -1;
    private QueueIndex queue;
    private long offset;
    private long runEnd;
    private long end;
    private long rowsLeft;
    private ColumnarBatch batch;

    OffsetsReader(Slice slice, ReadSettings how) {
        this.slice = slice;
        this.how = how;
        rowsLeft = slice.rowLimit();
    }

    @Override
    public boolean next() throws IOException {
        while (offset >= runEnd) {
            offset = queue == null ? end : queue.nextRecord(offset, end);
            if (offset < end) {
                runEnd = queue.nextLeftOut(offset, end);
            } else if (!openNext()) {
                return false;
            }
        }
        int count = (int) Math.min(Math.min(BATCH_ROWS, runEnd - offset), rowsLeft);
        for (int i = 0; i < batch.numCols(); i++) {
            if (batch.column(i) instanceof OffsetRange range) {
                range.first = offset;
            }
        }
        batch.setNumRows(count);
        offset += count;
        rowsLeft -= count;
        return count > 0;
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() throws IOException {
        if (queue != null) {
            queue.close();
            queue = null;
        }
    }

    private boolean openNext() throws IOException {
        close();
        if (++span >= slice.spans().size()) {
            return false;
        }
        QueueSpan next = slice.spans().get(span);
        queue = how.store().openQueue(next.topic(), next.queueId(), next.isBatch());
        offset = next.begin();
        runEnd = offset;
        end = next.end();
        batch = new ColumnarBatch(vectors(next));
        return true;
    }

    private ColumnVector[] vectors(QueueSpan of) {
        List<Column> columns = how.columns();
        ColumnVector[] vectors = new ColumnVector[columns.size()];
        for (int i = 0; i < vectors.length; i++) {
            vectors[i] = vector(columns.get(i), of);
        }
        return vectors;
    }

    private ColumnVector vector(Column column, QueueSpan of) {
        switch (column) {
            case TOPIC:
                return BatchColumns.text(of.topic());
            case BROKER:
                return BatchColumns.text(how.broker());
            case TIMESTAMP_TYPE:
                return BatchColumns.timestampType();
            case PARTITION:
                ConstantColumnVector partition = new ConstantColumnVector(1, column.type());
                partition.setInt(of.queueId());
                return partition;
            case OFFSET:
                return new OffsetRange();
            default:
                throw new IllegalArgumentException(column.label());
        }
    }

    private static final class OffsetRange extends RowVector {
        private long first;

        OffsetRange() {
            super(Column.OFFSET.type(), null);
        }

        @Override
        public long getLong(int row) {
            return first + row;
        }
    }
}
