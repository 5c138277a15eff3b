package io.ringmq.spark.store;

/**
 * One entry of a queue's index: a record of the log and the messages in it.
 *
 * @param offset queue offset of its first message
 * @param count messages in the record; more than 1 only in a batch queue
 * @param logOffset where the record begins in the commit log
 * @param size bytes of the record
 */
public record Unit(long offset, long count, long logOffset, int size) {
    static final int FILLER_SIZE = Integer.MAX_VALUE;

    /** Queue offset behind its last message. */
    public long end() {
        return offset + count;
    }

    /** Commit-log offset behind the record. */
    public long logEnd() {
        return logOffset + size;
    }

    /** Stands for messages that were never there: a queue that began at a later offset is filled with these. */
    public boolean isFiller() {
        return size == FILLER_SIZE && logOffset == 0;
    }
}
