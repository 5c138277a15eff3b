package io.ringmq.spark.store;

/**
 * One unit of a queue: a record of the log and its messages.
 *
 * @param offset queue offset of the first message
 * @param count messages in the record, over 1 only in a batch queue
 * @param logOffset log offset of the record
 * @param size bytes of the record
 */
public record Unit(long offset, long count, long logOffset, int size) {
    static final int FILLER_SIZE = Integer.MAX_VALUE;

    /** Returns the queue offset behind the last message. */
    public long end() {
        return offset + count;
    }

    /** Returns the log offset behind the record. */
    public long logEnd() {
        return logOffset + size;
    }

    /** Returns true for a filler, which fills a queue in front of its first message. */
    public boolean isFiller() {
        return size == FILLER_SIZE && logOffset == 0;
    }
}
