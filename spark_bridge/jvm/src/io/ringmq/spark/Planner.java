package io.ringmq.spark;

import io.ringmq.spark.read.RecordTimes;
import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.StoreFolder.QueueName;
import io.ringmq.spark.store.StoreFolder.Readable;
import io.ringmq.spark.store.Unit;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Plans a read: the first and last offset of each queue that options and filters leave.
 *
 * <p>The plan fixes the ends. It sends no request to the broker.
 */
final class Planner {
    private static final Logger LOG = LoggerFactory.getLogger(Planner.class);
    private static final long CLOCK_STEP_MS = 10_000; // a clock that is set back by less loses no rows

    private final ReadOptions options;
    private final Readable readable;

    /** Reads the state of the store once. Raises IOException. */
    Planner(ReadOptions options) throws IOException {
        this.options = options;
        readable = options.store.readable();
    }

    /**
     * Returns the spans of the read, sorted, without queues that have no rows. Raises IllegalArgumentException,
     * IOException.
     */
    List<QueueSpan> spans(Selection selection) throws IOException {
        List<QueueName> names = options.store.queueNames(options.namesTopics() || options.includeSystemTopics).stream()
                .filter(name -> options.includeSystemTopics || Topics.isUserTopic(name.topic()))
                .filter(name -> options.wants(name.topic(), name.queueId()))
                .sorted(Comparator.comparing(QueueName::topic).thenComparing(QueueName::queueId))
                .collect(Collectors.toList());
        options.check(names);
        List<QueueSpan> spans = new ArrayList<>();
        try (RecordTimes times = new RecordTimes(options.store)) {
            for (QueueName name : names) {
                if (selection.wants(name.topic(), name.queueId())) {
                    try (QueueIndex queue = options.store.openQueue(name.topic(), name.queueId(), name.isBatch())) {
                        addSpan(spans, name, queue, selection, times);
                    }
                }
            }
        }
        return spans;
    }

    private void addSpan(List<QueueSpan> spans, QueueName name, QueueIndex queue, Selection selection, RecordTimes times)
            throws IOException {
        long endNumber = queue.endNumber(readable.end());
        long firstNumber = queue.minNumber(readable.begin(), endNumber);
        Unit first = firstNumber < endNumber ? queue.unit(firstNumber) : null;
        Unit last = first == null ? null : queue.lastUnit(firstNumber, endNumber);
        if (last == null) {
            firstNumber = endNumber;
        }
        long there = last == null ? 0 : first.offset();
        long until = last == null ? 0 : last.end();
        long begin = Math.max(start(name, there, until), selection.firstOffset);
        long end = Math.min(end(name, there, until), selection.endOffset);
        if (begin >= end) {
            return;
        }
        long low = queue.numberOf(begin, firstNumber, endNumber);
        long high = queue.numberOf(end - 1, firstNumber, endNumber) + 1;
        if (selection.hasTimes()) {
            low = queue.firstNumber(
                    low, high, unit -> times.storeTimeMs(unit.logOffset()) + CLOCK_STEP_MS >= selection.firstTimeMs);
            high = queue.firstNumber(
                    low, high, unit -> times.storeTimeMs(unit.logOffset()) - CLOCK_STEP_MS > selection.lastTimeMs);
        }
        if (low < high) {
            Unit from = queue.firstUnit(low, high);
            Unit to = queue.lastUnit(low, high);
            if (from == null || to == null) {
                return; // these offsets have no record
            }
            spans.add(new QueueSpan(
                    name.topic(), name.queueId(), name.isBatch(), Math.max(begin, from.offset()),
                    Math.min(end, to.end()), from.logOffset(), to.logEnd()));
        }
    }

    private long start(QueueName name, long first, long end) throws IOException {
        long asked = options.startingOffsets == null
                ? Offsets.EARLIEST
                : options.startingOffsets.of(name.topic(), name.queueId());
        return asked == Offsets.EARLIEST ? first : within("startingOffsets", name, asked, first, end);
    }

    private long end(QueueName name, long first, long end) throws IOException {
        long asked =
                options.endingOffsets == null ? Offsets.LATEST : options.endingOffsets.of(name.topic(), name.queueId());
        return asked == Offsets.LATEST ? end : within("endingOffsets", name, asked, first, end);
    }

    private long within(String option, QueueName name, long asked, long first, long end) throws IOException {
        if (asked < first || asked > end) {
            String text = "queue " + name.queueId() + " of " + name.topic() + ": " + option + " asks for offset "
                    + asked + ", the queue has " + first + " to " + end;
            if (options.failOnDataLoss) {
                throw new IOException(text + "; failOnDataLoss=false reads the offsets that exist");
            }
            LOG.warn("{}. The read covers the offsets that exist", text);
        }
        return Math.min(Math.max(asked, first), end);
    }
}
