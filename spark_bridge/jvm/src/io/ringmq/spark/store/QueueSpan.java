package io.ringmq.spark.store;

import java.io.Serializable;

/**
 * Queue offsets [{@code begin}, {@code end}) of one queue, and the bytes of the log, [{@code logBegin}, {@code logEnd}), in
 * which their records lie among others. The log's bounds also tell the queue's records from those of an earlier topic of
 * the same name.
 */
public record QueueSpan(
        String topic, int queueId, boolean isBatch, long begin, long end, long logBegin, long logEnd)
        implements Serializable {

    /** Messages in it. */
    public long count() {
        return end - begin;
    }
}
