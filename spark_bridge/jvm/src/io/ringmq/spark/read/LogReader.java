package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.Unit;
import java.io.IOException;

/** Record by record along a range of the log. */
final class LogReader extends RecordReader {
    private long at;

    LogReader(Slice slice, ReadSettings how) {
        super(slice, how);
        at = slice.logBegin();
    }

    @Override
    void fill(int wanted) throws IOException {
        while (at < slice.logEnd() && rows.count < wanted) {
            if (log.open(at)) {
                fillFromFile(Math.min(slice.logEnd(), log.end()), wanted);
            } else {
                at = log.nextFile(at);
            }
        }
    }

    private void fillFromFile(long end, int wanted) throws IOException {
        long base = log.base();
        while (at < end && rows.count < wanted) {
            long record = base + at;
            int size = decoder.decode(record, end - at, at);
            if (size == RecordDecoder.BLANK) {
                at = log.nextFile(at);
                return;
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

    /** The next place behind a broken one where some wanted queue knows a record. */
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
