package io.ringmq.spark.read;

import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.Unit;
import java.io.IOException;

/** Queue by queue: the index says where each record lies. */
final class QueueReader extends RecordReader {
    private int span = -1;
    private QueueIndex queue;
    private long number;
    private long endNumber;

    QueueReader(Slice slice, ReadSettings how) {
        super(slice, how);
    }

    @Override
    void fill(int wanted) throws IOException {
        while (rows.count < wanted) {
            while (number >= endNumber) {
                if (!openNext()) {
                    return;
                }
            }
            Unit unit = queue.nextUnit(number);
            if (unit == null) {
                passMissing();
                continue;
            }
            number++;
            if (log.open(unit.logOffset())) {
                takeUnit(unit);
            }
        }
    }

    /** A unit that was planned is not there: ends the read, or goes to the first later one that is. */
    private void passMissing() throws IOException {
        QueueSpan of = slice.spans().get(span);
        if (how.failOnDataLoss()) {
            throw new DataLossException(
                    "queue " + of.queueId() + " of " + of.topic() + ", unit " + number
                            + ": gone since the read was planned (retention, or the topic was deleted)",
                    null);
        }
        long after = number + 1;
        closeQueue();
        queue = how.store().openQueue(of.topic(), of.queueId(), of.isBatch());
        number = Math.max(after, queue.minNumber(0, endNumber));
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
        closeQueue();
        if (++span >= slice.spans().size()) {
            return false;
        }
        QueueSpan next = slice.spans().get(span);
        queue = how.store().openQueue(next.topic(), next.queueId(), next.isBatch());
        long end = queue.endNumber(next.logEnd());
        long first = queue.minNumber(next.logBegin(), end);
        number = queue.numberOf(next.begin(), first, end);
        endNumber = next.isBatch() ? end : Math.min(next.end(), end);
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
