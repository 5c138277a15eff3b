package io.ringmq.spark.read;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The common part of both record readers: batches, the limit, broken records, and the end of the task. */
abstract class RecordReader implements PartitionReader<ColumnarBatch> {
    /** Small enough that the heads of the records stay in the processor's cache until their values are read. */
    static final int BATCH_ROWS = 1024;

    private static final Logger LOG = LoggerFactory.getLogger(RecordReader.class);

    final Slice slice;
    final ReadSettings how;
    final RowTable rows;
    final RecordDecoder decoder;
    final OpenLog log;
    final boolean wantsBodies;
    private final BatchColumns columns;
    private long rowsLeft;
    private boolean hasLeftOut;
    private Thread reading;

    RecordReader(Slice slice, ReadSettings how) {
        this.slice = slice;
        this.how = how;
        rows = new RowTable(new QueueTable(slice.spans()), BATCH_ROWS);
        decoder = new RecordDecoder(how.verifyCrc());
        log = new OpenLog(how.store(), how.failOnDataLoss());
        columns = new BatchColumns(how.columns(), how.broker(), rows);
        wantsBodies = how.columns().contains(Column.VALUE);
        rowsLeft = slice.rowLimit();
    }

    /** Adds rows until the table is full or the slice ends. */
    abstract void fill(int wanted) throws IOException;

    @Override
    public final boolean next() throws IOException {
        reading = Thread.currentThread();
        rowsLeft -= rows.count;
        rows.clear();
        log.forgetEarlier();
        if (rowsLeft > 0) {
            fill((int) Math.min(BATCH_ROWS, rowsLeft));
        }
        return rows.count > 0;
    }

    @Override
    public final ColumnarBatch get() {
        return columns.batch(rowsLeft);
    }

    /**
     * Ends the use of the files by this task. The thread that feeds a Python worker may read a few rows after the end
     * of the task.
     */
    @Override
    public void close() throws IOException {
        boolean isDone = reading == null || reading == Thread.currentThread();
        log.close(isDone);
        if (isDone) {
            rows.clear();
            columns.close();
        }
    }

    /** Returns true if the table has the rows of a batch. */
    final boolean isFull(int wanted) {
        return rows.count >= wanted || rows.isHeavy();
    }

    /** Adds the messages of the record that the span wants, none if a message cannot be unpacked. */
    final void take(long record, int queueIndex) {
        int before = rows.count;
        int kept = rows.keptCount();
        try {
            addRows(record, queueIndex);
        } catch (BrokenRecordException notUnpacked) {
            rows.count = before;
            broken(RecordDecoder.logOffset(record), notUnpacked.getMessage());
        }
        if (rows.count == before) {
            rows.forgetKept(kept);
        }
    }

    private void addRows(long record, int queueIndex) {
        if ((decoder.sysFlag & RecordDecoder.SYS_INNER_BATCH) != 0) {
            InnerBatch.addRows(rows, record, queueIndex, decoder);
        } else if (decoder.queueOffset >= rows.queues.spans[queueIndex].begin()
                && decoder.queueOffset < rows.queues.spans[queueIndex].end()) {
            boolean isUnpacked = wantsBodies && decoder.isCompressed();
            rows.add(record, queueIndex, decoder, isUnpacked ? Bodies.decompress(decoder) : null);
        }
    }

    /** Handles lost rows: an error, or with failOnDataLoss=false a line in the log. */
    final void lost(String text) throws DataLossException {
        if (how.failOnDataLoss()) {
            throw new DataLossException(text, null);
        }
        LOG.warn("{}; skipped (failOnDataLoss=false)", text);
    }

    /** Logs the first offset or record of a slice that no queue has. It has no row. */
    final void leftOut(String text) {
        if (!hasLeftOut) {
            LOG.warn("{}; skipped, and further ones of this task are not logged", text);
            hasLeftOut = true;
        }
    }

    /** Handles a broken record: an error, or with failOnDataLoss=false a line in the log. */
    final void broken(long logOffset, int result) {
        broken(logOffset, RecordDecoder.reason(result));
    }

    private void broken(long logOffset, String reason) {
        String text = log.fileName() + ", commit log offset " + logOffset + ": " + reason;
        if (how.failOnDataLoss()) {
            throw new BrokenRecordException(text + "; failOnDataLoss=false skips it");
        }
        LOG.warn("{}; skipped (failOnDataLoss=false)", text);
    }
}
