package io.ringmq.spark.read;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What the two ways through records have in common: batches, the limit, what becomes of broken records, the end. */
abstract class RecordReader implements PartitionReader<ColumnarBatch> {
    /** Few enough that the records' heads are still in the processor's cache when the values are read. */
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

    /** Adds rows until the table is full, or there are no more. */
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

    /** Ends the task's use of the files. A thread that feeds a Python worker may outlive the task by a few rows. */
    @Override
    public void close() throws IOException {
        boolean isDone = reading == null || reading == Thread.currentThread();
        log.close(isDone);
        if (isDone) {
            rows.clear();
            columns.close();
        }
    }

    /** Whether the table has enough rows for a batch. */
    final boolean isFull(int wanted) {
        return rows.count >= wanted || rows.isHeavy();
    }

    /** Adds the decoded record's messages that the span wants; none when one of them cannot be unpacked. */
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

    /** Planned rows are gone: ends the read, or is told in the log when rows may be lost. */
    final void lost(String text) throws DataLossException {
        if (how.failOnDataLoss()) {
            throw new DataLossException(text, null);
        }
        LOG.warn("{}; passed by, as failOnDataLoss=false says", text);
    }

    /** An offset or a record that no queue has gives no row: the first one of a slice is told in the log. */
    final void leftOut(String text) {
        if (!hasLeftOut) {
            LOG.warn("{}; left out, more like it are not listed", text);
            hasLeftOut = true;
        }
    }

    /** A record is not what it should be: ends the read, or is told in the log when rows may be lost. */
    final void broken(long logOffset, int result) {
        broken(logOffset, RecordDecoder.reason(result));
    }

    private void broken(long logOffset, String reason) {
        String text = log.fileName() + ", commit log offset " + logOffset + ": " + reason;
        if (how.failOnDataLoss()) {
            throw new BrokenRecordException(text + "; failOnDataLoss=false passes it by");
        }
        LOG.warn("{}; passed by, as failOnDataLoss=false says", text);
    }
}
