package io.ringmq.spark;

import io.ringmq.spark.read.Column;
import io.ringmq.spark.read.Slice;
import io.ringmq.spark.read.Slice.Way;
import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.Unit;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * Cuts spans into tasks.
 *
 * <p>A read of most rows in a range of the log goes along the log. A read of few rows goes through the queues. If only
 * queue and offset are wanted, no record is read.
 */
final class Slicer {
    private static final long TASK_BYTES_MAX = 128L << 20; // size of a task of Spark's file sources
    private static final long TASK_BYTES_MIN = 8L << 20; // a smaller task ends before Spark starts the next
    private static final long TASK_ROWS_MIN = 50_000;
    private static final int TASKS_PER_CORE = 4;
    private static final int SAMPLES = 3;
    private static final int BORDER_QUEUES_MAX = 16; // enough for a border near each cut, and bounded for 10,000 topics
    private static final double LOG_SHARE_MIN = 0.4; // a row by its queue costs about twice as much

    private final ReadOptions options;
    private final int cores;

    Slicer(ReadOptions options, int cores) {
        this.options = options;
        this.cores = cores;
    }

    /** Returns the tasks of a read. The read may end after {@code rowLimit} rows. */
    List<Slice> slices(List<QueueSpan> all, List<Column> columns, long rowLimit) throws IOException {
        List<QueueSpan> spans = limited(all, rowLimit);
        if (spans.isEmpty()) {
            return List.of();
        }
        if (!options.verifyCrc && columns.stream().allMatch(Column::isOfQueue)) {
            return byQueues(Way.OFFSETS, spans, rowLimit);
        }
        long begin = spans.stream().mapToLong(QueueSpan::logBegin).min().orElseThrow();
        long end = spans.stream().mapToLong(QueueSpan::logEnd).max().orElseThrow();
        boolean isAlong = options.maxRecordsPerPartition == Long.MAX_VALUE && wantedBytes(spans) > LOG_SHARE_MIN * (end - begin);
        return isAlong ? alongLog(spans, begin, end, rowLimit) : byQueues(Way.QUEUES, spans, rowLimit);
    }

    /** Returns the first spans that have the rows of the limit. */
    private List<QueueSpan> limited(List<QueueSpan> spans, long rowLimit) throws IOException {
        List<QueueSpan> kept = new ArrayList<>();
        long left = rowLimit;
        for (QueueSpan span : spans) {
            if (left <= 0) {
                break;
            }
            kept.add(span.count() <= left ? span : part(span, span.begin(), span.begin() + left));
            left -= span.count();
        }
        return kept;
    }

    private List<Slice> byQueues(Way way, List<QueueSpan> spans, long rowLimit) throws IOException {
        long rows = spans.stream().mapToLong(QueueSpan::count).sum();
        long tasks = Math.max(options.minPartitions, Math.min((long) cores * TASKS_PER_CORE, rows / TASK_ROWS_MIN + 1));
        long each = Math.min(options.maxRecordsPerPartition, Math.max(1, (rows + tasks - 1) / tasks));
        List<Slice> slices = new ArrayList<>();
        List<QueueSpan> open = new ArrayList<>();
        long room = each;
        for (QueueSpan span : spans) {
            long at = span.begin();
            while (at < span.end()) {
                long count = Math.min(room, span.end() - at);
                open.add(count == span.count() ? span : way == Way.OFFSETS
                        ? new QueueSpan(span.topic(), span.queueId(), span.isBatch(), at, at + count, span.logBegin(), span.logEnd())
                        : part(span, at, at + count));
                at += count;
                room -= count;
                if (room == 0) {
                    slices.add(Slice.ofQueues(way, open, rowLimit));
                    open.clear();
                    room = each;
                }
            }
        }
        if (!open.isEmpty()) {
            slices.add(Slice.ofQueues(way, open, rowLimit));
        }
        return slices;
    }

    private List<Slice> alongLog(List<QueueSpan> spans, long begin, long end, long rowLimit) throws IOException {
        long bytes = end - begin;
        long tasks = Math.max(
                Math.max(options.minPartitions, (bytes + TASK_BYTES_MAX - 1) / TASK_BYTES_MAX),
                Math.min((long) cores * TASKS_PER_CORE, bytes / TASK_BYTES_MIN));
        List<Slice> slices = new ArrayList<>();
        List<QueueIndex> queues = borderQueues(spans);
        try {
            long at = begin;
            for (long task = 1; task <= tasks && at < end; task++) {
                long target = begin + bytes / tasks * task;
                long cut = task == tasks ? end : Math.max(at, borderAt(queues, target, end));
                if (cut > at) {
                    slices.add(Slice.ofLog(spans, at, cut, rowLimit));
                    at = cut;
                }
            }
        } finally {
            for (QueueIndex queue : queues) {
                queue.close();
            }
        }
        return slices;
    }

    /** Estimates the bytes of the spans' records from a few samples. */
    private long wantedBytes(List<QueueSpan> spans) throws IOException {
        double bytes = 0;
        for (QueueSpan span : spans) {
            try (QueueIndex queue = open(span)) {
                long end = queue.endNumber(span.logEnd());
                long first = queue.minNumber(span.logBegin(), end);
                double sampled = 0;
                long messages = 0;
                for (int i = 0; i < SAMPLES && first < end; i++) {
                    Unit unit = queue.unit(first + (end - 1 - first) * i / (SAMPLES - 1));
                    boolean isRecord = unit != null && !unit.isFiller();
                    sampled += isRecord ? unit.size() : 0;
                    messages += isRecord ? unit.count() : 0;
                }
                bytes += messages == 0 ? 0 : sampled / messages * span.count();
            }
        }
        return (long) bytes;
    }

    private List<QueueIndex> borderQueues(List<QueueSpan> spans) throws IOException {
        List<QueueSpan> longest = new ArrayList<>(spans);
        longest.sort(Comparator.comparingLong(QueueSpan::count).reversed());
        List<QueueIndex> queues = new ArrayList<>();
        for (QueueSpan span : longest.subList(0, Math.min(longest.size(), BORDER_QUEUES_MAX))) {
            queues.add(open(span));
        }
        return queues;
    }

    /** Returns the first log offset at or behind {@code target} at which a queue has a record, else {@code end}. */
    private static long borderAt(List<QueueIndex> queues, long target, long end) throws IOException {
        long best = end;
        for (QueueIndex queue : queues) {
            long last = queue.endNumber(end);
            long number = queue.minNumber(target, last);
            Unit unit = number < last ? queue.unit(number) : null;
            best = unit == null ? best : Math.min(best, unit.logOffset());
        }
        return best;
    }

    /** Returns offsets [begin, end) of a span with their own range of the log. */
    private QueueSpan part(QueueSpan span, long begin, long end) throws IOException {
        try (QueueIndex queue = open(span)) {
            long last = queue.endNumber(span.logEnd());
            long first = queue.minNumber(span.logBegin(), last);
            long low = queue.numberOf(begin, first, last);
            long high = queue.numberOf(end - 1, first, last) + 1;
            Unit from = queue.firstUnit(low, high);
            Unit to = queue.lastUnit(low, high);
            return from == null || to == null
                    ? new QueueSpan(span.topic(), span.queueId(), span.isBatch(), begin, end, span.logBegin(), span.logEnd())
                    : new QueueSpan(span.topic(), span.queueId(), span.isBatch(), begin, end, from.logOffset(), to.logEnd());
        }
    }

    private QueueIndex open(QueueSpan span) throws IOException {
        return options.store.openQueue(span.topic(), span.queueId(), span.isBatch());
    }
}
