package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.Unit;
import java.io.IOException;

/**
 * Reads a range of the log record by record.
 *
 * <p>The position of a record is known only after the record before it. So each record would wait for memory. If bodies
 * are wanted, all bytes of the range are, so the reader touches them ahead of the decoder.
 */
final class LogReader extends RecordReader {
    /** Small enough to stay in the processor's cache until Spark has copied the values. */
    private static final int BATCH_BYTES = 256 << 10;

    private static final int AHEAD_BYTES = 16 << 10;

    private long at;
    private long touchedTo;
    private int touched;

    LogReader(Slice slice, ReadSettings how) {
        super(slice, how);
        at = slice.logBegin();
    }

    @Override
    void fill(int wanted) throws IOException {
        long enough = at + BATCH_BYTES;
        while (at < slice.logEnd() && !isFull(wanted) && (at < enough || rows.count == 0)) {
            if (log.open(at)) {
                fillFromFile(Math.min(slice.logEnd(), log.end()), wanted, enough);
            } else {
                at = log.nextFile(at);
            }
        }
    }

    private void fillFromFile(long end, int wanted, long enough) throws IOException {
        long base = log.base();
        while (at < end && !isFull(wanted) && (at < enough || rows.count == 0)) {
            long record = base + at;
            if (wantsBodies) {
                touchAhead(base, end);
            }
            int size = decoder.decode(record, end - at, at);
            if (size == RecordDecoder.BLANK) {
                at = log.nextFile(at);
                return;
            }
            if (size == RecordDecoder.BAD_PLACE && nextBorder(at - 1) != at) {
                // dispatch skips such a record, so no queue has it
                leftOut(log.fileName() + ", commit log offset " + at + ": " + RecordDecoder.reason(size));
                at += RecordDecoder.size(record);
                continue;
            }
            if (size < 0) {
                broken(at, size);
                at = nextBorder(at);
                return;
            }
            takeWanted(record);
            at += size;
        }
    }

    private void touchAhead(long base, long end) {
        long from = Math.max(touchedTo, at);
        long to = Math.min(end, at + AHEAD_BYTES);
        if (from < to) {
            touched ^= Memory.touch(base + from, base + to);
            touchedTo = to;
        }
    }

    private void takeWanted(long record) {
        if (decoder.isHalfOrRolledBack()) {
            return;
        }
        int index = rows.queues.find(decoder.topic, decoder.topicLength, decoder.queueId);
        if (index < 0 || at < rows.queues.spans[index].logBegin() || at >= rows.queues.spans[index].logEnd()) {
            return;
        }
        if (decoder.isCrcRight(record)) {
            take(record, index);
        } else {
            broken(at, RecordDecoder.BAD_CRC);
        }
    }

    /** Returns the next log offset behind a broken record at which a wanted queue has a record. */
    private long nextBorder(long broken) throws IOException {
        long next = slice.logEnd();
        for (QueueSpan span : slice.spans()) {
            try (QueueIndex queue = how.store().openQueue(span.topic(), span.queueId(), span.isBatch())) {
                long end = queue.endNumber(next);
                long number = queue.firstNumber(
                        Math.min(queue.minNumber(0, end), end), end, unit -> unit == null || unit.logOffset() > broken);
                Unit unit = number < end ? queue.unit(number) : null;
                next = unit == null ? next : Math.min(next, unit.logOffset());
            }
        }
        return next;
    }
}
