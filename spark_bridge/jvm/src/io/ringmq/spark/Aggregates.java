package io.ringmq.spark;

import io.ringmq.spark.read.Column;
import io.ringmq.spark.read.RecordTimes;
import io.ringmq.spark.store.QueueIndex;
import io.ringmq.spark.store.QueueSpan;
import io.ringmq.spark.store.StoreFolder;
import io.ringmq.spark.store.Unit;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Answers COUNT, MIN and MAX of offsets and store times, over all rows or by topic, partition and broker.
 *
 * <p>The values come from the units of the queues, and from the first and last record of each. Offsets without a record
 * are not counted. Store times never fall along a queue, unless the clock of a stock broker was set back. MIN and MAX
 * are then those of the first and last record.
 */
final class Aggregates {
    private static final long MICROS_PER_MS = 1000;

    private final StoreFolder store;
    private final String broker;
    private final List<Column> groups;
    private final AggregateFunc[] functions;

    Aggregates(StoreFolder store, String broker, Aggregation aggregation) {
        this.store = store;
        this.broker = broker;
        groups = Stream.of(aggregation.groupByExpressions()).map(Selection::columnOf).collect(Collectors.toList());
        functions = aggregation.aggregateExpressions();
    }

    /** Returns true if the queues alone give the result. */
    static boolean canAnswer(Aggregation aggregation) {
        for (Expression group : aggregation.groupByExpressions()) {
            Column column = Selection.columnOf(group);
            if (column != Column.TOPIC && column != Column.PARTITION && column != Column.BROKER) {
                return false;
            }
        }
        return Stream.of(aggregation.aggregateExpressions()).allMatch(Aggregates::canAnswer);
    }

    private static boolean canAnswer(AggregateFunc function) {
        if (function instanceof CountStar) {
            return true;
        }
        if (function instanceof Count count) {
            Column column = Selection.columnOf(count.column());
            return !count.isDistinct() && column != null && column.isNeverNull();
        }
        Column column = extremeOf(function);
        return column == Column.OFFSET || column == Column.TIMESTAMP;
    }

    /** Returns the column of a MIN or MAX, null for any other function. */
    private static Column extremeOf(AggregateFunc function) {
        if (function instanceof Min min) {
            return Selection.columnOf(min.column());
        }
        return function instanceof Max max ? Selection.columnOf(max.column()) : null;
    }

    /** Returns the rows, or null if a needed record cannot be read. */
    AggregateScan answer(List<QueueSpan> spans, String description) throws IOException {
        Map<List<Object>, Object[]> values = new LinkedHashMap<>();
        if (groups.isEmpty()) {
            values.put(List.of(), empty());
        }
        try (RecordTimes times = new RecordTimes(store)) {
            for (QueueSpan span : spans) {
                if (first(span) == span.end()) { // all offsets are without a record
                    continue;
                }
                List<Object> group = groups.stream().map(column -> valueOf(column, span)).collect(Collectors.toList());
                if (!add(values.computeIfAbsent(group, unused -> empty()), span, times)) {
                    return null;
                }
            }
        }
        List<InternalRow> rows = new ArrayList<>();
        values.forEach((group, results) ->
                rows.add(new GenericInternalRow(Stream.concat(group.stream(), Stream.of(results)).toArray())));
        return new AggregateScan(schema(), rows.toArray(new InternalRow[0]), description);
    }

    private Object valueOf(Column column, QueueSpan span) {
        switch (column) {
            case TOPIC:
                return UTF8String.fromString(span.topic());
            case PARTITION:
                return span.queueId();
            default:
                return UTF8String.fromString(broker);
        }
    }

    private Object[] empty() {
        return Stream.of(functions).map(function -> extremeOf(function) == null ? 0L : null).toArray();
    }

    private boolean add(Object[] results, QueueSpan span, RecordTimes times) throws IOException {
        for (int i = 0; i < functions.length; i++) {
            Column column = extremeOf(functions[i]);
            boolean isMin = functions[i] instanceof Min;
            if (column == null) {
                results[i] = (Long) results[i] + count(span);
                continue;
            }
            long extreme = isMin ? first(span) : last(span);
            if (column == Column.TIMESTAMP) {
                extreme = times.storeTimeMs(logOffset(span, extreme)) * MICROS_PER_MS;
                if (extreme < 0) {
                    return false;
                }
            }
            Long other = (Long) results[i];
            results[i] = other == null ? extreme : isMin ? Math.min(other, extreme) : Math.max(other, extreme);
        }
        return true;
    }

    private long count(QueueSpan span) throws IOException {
        try (QueueIndex queue = store.openQueue(span.topic(), span.queueId(), span.isBatch())) {
            return queue.countRecords(span.begin(), span.end());
        }
    }

    private long first(QueueSpan span) throws IOException {
        try (QueueIndex queue = store.openQueue(span.topic(), span.queueId(), span.isBatch())) {
            return queue.nextRecord(span.begin(), span.end());
        }
    }

    private long last(QueueSpan span) throws IOException {
        try (QueueIndex queue = store.openQueue(span.topic(), span.queueId(), span.isBatch())) {
            Unit unit = span.isBatch() ? null : queue.lastUnit(span.begin(), span.end());
            return unit == null ? span.end() - 1 : unit.offset();
        }
    }

    private long logOffset(QueueSpan span, long offset) throws IOException {
        try (QueueIndex queue = store.openQueue(span.topic(), span.queueId(), span.isBatch())) {
            long end = queue.endNumber(span.logEnd());
            Unit unit = queue.firstUnit(queue.numberOf(offset, queue.minNumber(span.logBegin(), end), end), end);
            return unit == null ? span.logBegin() : unit.logOffset();
        }
    }

    private StructType schema() {
        StructType schema = RingmqTable.schemaOf(groups);
        for (AggregateFunc function : functions) {
            Column column = extremeOf(function);
            schema = schema.add(function.toString(), column == null ? DataTypes.LongType : column.type(), column != null);
        }
        return schema;
    }
}
