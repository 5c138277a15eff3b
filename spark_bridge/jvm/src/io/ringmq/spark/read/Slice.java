package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueSpan;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * The rows of one task: those of the spans. All three ways return the same rows.
 *
 * @param way how the task finds its rows
 * @param spans queues with their offsets
 * @param logBegin with {@link Way#LOG}: begin of the log range, at a record
 * @param logEnd with {@link Way#LOG}: end of the log range, at a record or at the end of a file
 * @param rowLimit the task may stop after this number of rows
 */
public record Slice(Way way, ArrayList<QueueSpan> spans, long logBegin, long logEnd, long rowLimit)
        implements InputPartition {

    /** How a task finds its rows. */
    public enum Way {
        /** Along the log, record by record: for most of the rows of a range. */
        LOG,
        /** Through the index, queue by queue: for few of the rows. */
        QUEUES,
        /** From queue and offset alone, without the records. */
        OFFSETS
    }

    /** Returns a slice over a range of the log, with the spans that overlap it. */
    public static Slice ofLog(List<QueueSpan> spans, long logBegin, long logEnd, long rowLimit) {
        ArrayList<QueueSpan> inside = new ArrayList<>();
        for (QueueSpan span : spans) {
            if (span.logBegin() < logEnd && span.logEnd() > logBegin) {
                inside.add(span);
            }
        }
        return new Slice(Way.LOG, inside, logBegin, logEnd, rowLimit);
    }

    /** Returns a slice over spans. */
    public static Slice ofQueues(Way way, List<QueueSpan> spans, long rowLimit) {
        return new Slice(way, new ArrayList<>(spans), 0, 0, rowLimit);
    }
}
