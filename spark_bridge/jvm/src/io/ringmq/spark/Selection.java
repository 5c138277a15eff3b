package io.ringmq.spark;

import io.ringmq.spark.read.Column;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntPredicate;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The queues, offsets and store times that pushed filters leave.
 *
 * <p>A filter on the store time is inexact, so Spark applies it again. The clock of a stock broker may have been set
 * back, so store times may fall along a queue.
 */
final class Selection {
    private static final long MICROS_PER_MS = 1000;

    /** Precision of a pushed filter. */
    enum Outcome {
        /** The read applies the filter completely. */
        EXACT,
        /** The read skips some rows. Spark applies the filter again. */
        NARROWED,
        /** The read ignores the filter. */
        NOT_PUSHED
    }

    long firstOffset = 0;
    long endOffset = Long.MAX_VALUE;
    long firstTimeMs = Long.MIN_VALUE;
    long lastTimeMs = Long.MAX_VALUE;
    private final List<java.util.function.Predicate<UTF8String>> topicTests = new ArrayList<>();
    private final List<IntPredicate> partitionTests = new ArrayList<>();

    /** Returns true if rows of the queue can match. */
    boolean wants(String topic, int queueId) {
        UTF8String name = UTF8String.fromString(topic);
        return topicTests.stream().allMatch(test -> test.test(name))
                && partitionTests.stream().allMatch(test -> test.test(queueId));
    }

    /** Returns true if a filter limits the store times. */
    boolean hasTimes() {
        return firstTimeMs != Long.MIN_VALUE || lastTimeMs != Long.MAX_VALUE;
    }

    /** Applies a filter as far as possible. */
    Outcome push(Predicate filter) {
        Expression[] children = filter.children();
        if (children.length == 0) {
            return Outcome.NOT_PUSHED;
        }
        if (children.length == 2 && columnOf(children[0]) == null && columnOf(children[1]) != null) {
            return push(new Predicate(mirrored(filter.name()), new Expression[] {children[1], children[0]}));
        }
        Column column = columnOf(children[0]);
        if (column == null) {
            return Outcome.NOT_PUSHED;
        }
        if (filter.name().equals("IS_NOT_NULL")) {
            return column.isNeverNull() ? Outcome.EXACT : Outcome.NOT_PUSHED;
        }
        List<Object> values = values(children, column == Column.TOPIC ? UTF8String.class : Number.class);
        if (values == null || !List.of("=", "<=>", "IN", "<", "<=", ">", ">=").contains(filter.name())) {
            return Outcome.NOT_PUSHED;
        }
        switch (column) {
            case TOPIC:
                topicTests.add(topic -> holds(filter.name(), value -> topic.compareTo((UTF8String) value), values));
                return Outcome.EXACT;
            case PARTITION:
                partitionTests.add(id -> holds(filter.name(), value -> Long.compare(id, number(value)), values));
                return Outcome.EXACT;
            case OFFSET:
                return pushOffsets(filter.name(), values);
            case TIMESTAMP:
                return pushTimes(filter.name(), values);
            default:
                return Outcome.NOT_PUSHED;
        }
    }

    /** Compares the left side with a value. */
    @FunctionalInterface
    private interface Comparison {
        int with(Object value);
    }

    private static boolean holds(String operator, Comparison left, List<Object> values) {
        switch (operator) {
            case "<":
                return left.with(values.get(0)) < 0;
            case "<=":
                return left.with(values.get(0)) <= 0;
            case ">":
                return left.with(values.get(0)) > 0;
            case ">=":
                return left.with(values.get(0)) >= 0;
            default:
                return values.stream().anyMatch(value -> left.with(value) == 0);
        }
    }

    private Outcome pushOffsets(String operator, List<Object> values) {
        long lowest = values.stream().mapToLong(Selection::number).min().orElseThrow();
        long highest = values.stream().mapToLong(Selection::number).max().orElseThrow();
        if (!operator.startsWith("<") || operator.equals("<=>")) {
            firstOffset = Math.max(firstOffset, operator.equals(">") ? behind(lowest) : lowest);
        }
        if (!operator.startsWith(">")) {
            endOffset = Math.min(endOffset, operator.equals("<") ? lowest : behind(highest));
        }
        return lowest == highest ? Outcome.EXACT : Outcome.NARROWED;
    }

    private Outcome pushTimes(String operator, List<Object> values) {
        long lowest = values.stream().mapToLong(Selection::number).min().orElseThrow();
        long highest = values.stream().mapToLong(Selection::number).max().orElseThrow();
        if (!operator.startsWith("<") || operator.equals("<=>")) {
            firstTimeMs = Math.max(firstTimeMs, Math.floorDiv(lowest, MICROS_PER_MS));
        }
        if (!operator.startsWith(">")) {
            lastTimeMs = Math.min(lastTimeMs, Math.floorDiv(highest, MICROS_PER_MS));
        }
        return Outcome.NARROWED;
    }

    private static long behind(long offset) {
        return offset == Long.MAX_VALUE ? offset : offset + 1;
    }

    private static long number(Object value) {
        return ((Number) value).longValue();
    }

    private static String mirrored(String operator) {
        switch (operator) {
            case "<":
                return ">";
            case "<=":
                return ">=";
            case ">":
                return "<";
            case ">=":
                return "<=";
            case "=":
            case "<=>":
                return operator;
            default:
                return "";
        }
    }

    /** Returns the column that the expression names, null for any other expression. */
    static Column columnOf(Expression expression) {
        if (!(expression instanceof NamedReference)) {
            return null;
        }
        String[] names = ((NamedReference) expression).fieldNames();
        return names.length == 1 ? Column.named(names[0]) : null;
    }

    /** Returns the literals that the filter compares with, null if one has another type. */
    private static List<Object> values(Expression[] children, Class<?> type) {
        List<Object> values = new ArrayList<>();
        for (int i = 1; i < children.length; i++) {
            Object value = children[i] instanceof Literal<?> literal ? literal.value() : null;
            if (!type.isInstance(value)) {
                return null;
            }
            values.add(value);
        }
        return values.isEmpty() ? null : values;
    }
}
