package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.Unit;
import java.io.IOException;

/**
 * Queue by queue: the index says where each record lies. What the plan found in the index and the index has no more is a
 * loss: its files may be gone since, the queue itself, or the queue was made anew and its units mean other records.
 */
final class QueueReader extends RecordReader {
    private int span = -1;
    private QueueIndex queue;
    private long number;
    private long endNumber;
    private long offset;

    QueueReader(Slice slice, ReadSettings how) {
        super(slice, how);
    }

    @Override
    void fill(int wanted) throws IOException {
        while (!isFull(wanted)) {
            while (number >= endNumber) {
                if (!openNext()) {
                    return;
                }
            }
            Unit unit = queue.nextUnit(number);
            if (unit != null && unit.isFiller()) { // dispatch has left its record out, or the offset never had one
                QueueSpan of = slice.spans().get(span);
                leftOut("queue " + of.queueId() + " of " + of.topic() + ": offset " + number + " has no record");
                number++;
                offset = Math.max(offset, number);
                continue;
            }
            if (unit == null || !isPlanned(unit)) {
                passMissing();
                continue;
            }
            number++;
            comeTo(unit.offset());
            offset = unit.end();
            if (log.open(unit.logOffset())) {
                takeUnit(unit);
            }
        }
    }

    private boolean isPlanned(Unit unit) {
        QueueSpan of = slice.spans().get(span);
        return unit.logOffset() >= of.logBegin() && unit.logEnd() <= of.logEnd();
    }

    /** Goes to the next number that may have a unit. */
    private void passMissing() {
        number = queue.hadBytes(number) ? number + 1 : Math.min(queue.nextFile(number), endNumber);
    }

    /** All of the span's offsets below this one have been read, or they are lost. */
    private void comeTo(long reached) throws IOException {
        if (reached > offset) {
            QueueSpan of = slice.spans().get(span);
            lost("queue " + of.queueId() + " of " + of.topic() + ": offsets " + offset + " to " + (reached - 1)
                    + " are gone since the read was planned (retention, or the topic was deleted)");
        }
    }

    private void takeUnit(Unit unit) {
        long at = unit.logOffset();
        long record = log.base() + at;
        int size = decoder.decode(record, log.end() - at, at);
        if (size != unit.size()) {
            broken(at, size > 0 || size == RecordDecoder.BLANK ? RecordDecoder.BAD_LENGTH : size);
        } else if (rows.queues.find(decoder.topic, decoder.topicLength, decoder.queueId) != span
                || !slice.spans().get(span).isBatch() && decoder.queueOffset != unit.offset()) {
            broken(at, RecordDecoder.STRANGER);
        } else if (!decoder.isCrcRight(record)) {
            broken(at, RecordDecoder.BAD_CRC);
        } else if (!decoder.isHalfOrRolledBack()) {
            take(record, span);
        }
    }

    private boolean openNext() throws IOException {
        if (span >= 0 && span < slice.spans().size()) {
            comeTo(slice.spans().get(span).end());
        }
        if (++span >= slice.spans().size()) {
            return false;
        }
        closeQueue();
        QueueSpan next = slice.spans().get(span);
        queue = how.store().openQueue(next.topic(), next.queueId(), next.isBatch());
        offset = next.begin();
        number = next.begin();
        endNumber = next.end();
        if (next.isBatch()) {
            endNumber = queue.endNumber(next.logEnd());
            number = queue.numberOf(next.begin(), queue.minNumber(next.logBegin(), endNumber), endNumber);
        }
        return true;
    }

    private void closeQueue() throws IOException {
        if (queue != null) {
            queue.close();
            queue = null;
        }
    }

    @Override
    public void close() throws IOException {
        super.close();
        closeQueue();
    }
}
