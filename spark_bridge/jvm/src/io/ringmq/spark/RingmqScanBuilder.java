package io.ringmq.spark;

import io.ringmq.spark.read.Column;
import io.ringmq.spark.store.QueueSpan;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Collects pushed operations in Spark's order: filters, aggregates, limit, columns. */
final class RingmqScanBuilder
        implements ScanBuilder,
                SupportsPushDownV2Filters,
                SupportsPushDownAggregates,
                SupportsPushDownLimit,
                SupportsPushDownRequiredColumns {
    private final ReadOptions options;
    private final Selection selection = new Selection();
    private final List<Predicate> pushed = new ArrayList<>();
    private List<Column> columns;
    private long rowLimit = Long.MAX_VALUE;
    private boolean isAllPushed = true;
    private AggregateScan aggregate;

    RingmqScanBuilder(ReadOptions options, List<Column> columns) {
        this.options = options;
        this.columns = columns;
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] filters) {
        List<Predicate> left = new ArrayList<>();
        for (Predicate filter : filters) {
            Selection.Outcome outcome = selection.push(filter);
            if (outcome != Selection.Outcome.NOT_PUSHED) {
                pushed.add(filter);
            }
            if (outcome != Selection.Outcome.EXACT) {
                left.add(filter);
            }
        }
        isAllPushed = left.isEmpty();
        return left.toArray(new Predicate[0]);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return pushed.toArray(new Predicate[0]);
    }

    @Override
    public boolean supportCompletePushDown(Aggregation aggregation) {
        return isAllPushed && Aggregates.canAnswer(aggregation);
    }

    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        if (!supportCompletePushDown(aggregation)) {
            return false;
        }
        try {
            aggregate = new Aggregates(options.store, options.broker, aggregation).answer(spans(), description());
            return aggregate != null;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    @Override
    public boolean pushLimit(int limit) {
        rowLimit = limit;
        return true;
    }

    @Override
    public boolean isPartiallyPushed() {
        return true; // each task stops at the limit, and Spark cuts the rows of all tasks
    }

    @Override
    public void pruneColumns(StructType required) {
        columns = Arrays.stream(required.fieldNames()).map(Column::named).collect(Collectors.toList());
    }

    @Override
    public Scan build() {
        if (aggregate != null) {
            return aggregate;
        }
        try {
            return new RingmqScan(options, spans(), columns, rowLimit, description());
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private List<QueueSpan> spans() throws IOException {
        return new Planner(options).spans(selection);
    }

    private String description() {
        String filters = pushed.stream().map(Predicate::toString).collect(Collectors.joining(", "));
        return options.store.root() + " PushedFilters: [" + filters + "]"
                + (rowLimit == Long.MAX_VALUE ? "" : ", PushedLimit: LIMIT " + rowLimit);
    }
}
