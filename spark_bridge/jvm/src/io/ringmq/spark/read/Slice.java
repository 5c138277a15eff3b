package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueSpan;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * One task's rows: those of the spans, found in one of three ways that all give the same rows.
 *
 * @param way how the task goes through them
 * @param spans queues with their offsets
 * @param logBegin with {@link Way#LOG}: where its range of the log begins, at a record
 * @param logEnd with {@link Way#LOG}: where it ends, at a record or at the end of a file
 * @param rowLimit rows after which it may stop
 */
public record Slice(Way way, ArrayList<QueueSpan> spans, long logBegin, long logEnd, long rowLimit)
        implements InputPartition {

    /** How a task goes through its rows. */
    public enum Way {
        /** Record by record along the log: for most of the log's rows. */
        LOG,
        /** Queue by queue through the index: for some of the rows. */
        QUEUES,
        /** No record is looked at: what is wanted follows from queue and offset. */
        OFFSETS
    }

    /** A range of the log with those spans that reach into it. */
    public static Slice ofLog(List<QueueSpan> spans, long logBegin, long logEnd, long rowLimit) {
        ArrayList<QueueSpan> inside = new ArrayList<>();
        for (QueueSpan span : spans) {
            if (span.logBegin() < logEnd && span.logEnd() > logBegin) {
                inside.add(span);
            }
        }
        return new Slice(Way.LOG, inside, logBegin, logEnd, rowLimit);
    }

    /** Spans read by their queues. */
    public static Slice ofQueues(Way way, List<QueueSpan> spans, long rowLimit) {
        return new Slice(way, new ArrayList<>(spans), 0, 0, rowLimit);
    }
}
