package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.Unit;
import java.io.IOException;

/**
 * Reads queue by queue, with the log offsets of the index.
 *
 * <p>Units of the plan that the index no longer has are a data loss. Retention has deleted their files, the queue was
 * deleted, or a queue that was created again has other records under these units.
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
            if (unit != null && unit.isFiller()) { // dispatch skipped its record, or the offset never had one
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

    /** Moves to the next number that may have a unit. */
    private void passMissing() {
        number = queue.hadBytes(number) ? number + 1 : Math.min(queue.nextFile(number), endNumber);
    }

    /** Accounts for all offsets of the span below {@code reached}: those not read are lost. */
    private void comeTo(long reached) throws IOException {
        if (reached > offset) {
            QueueSpan of = slice.spans().get(span);
            lost("queue " + of.queueId() + " of " + of.topic() + ": offsets " + offset + " to " + (reached - 1)
                    + " were deleted since the read was planned, by retention or with the topic");
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
