package io.ringmq.spark.store;

import java.io.Serializable;

/**
 * Queue offsets [{@code begin}, {@code end}) of one queue, and the log range [{@code logBegin}, {@code logEnd}) of
 * their records.
 *
 * <p>The log range also separates the records from those of an earlier topic with the same name.
 */
public record QueueSpan(
        String topic, int queueId, boolean isBatch, long begin, long end, long logBegin, long logEnd)
        implements Serializable {

    /** Returns the number of messages. */
    public long count() {
        return end - begin;
    }
}
