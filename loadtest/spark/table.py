"""The table of the Spark bench: every row and its goals."""

from collections.abc import Callable

from ringmq.loadtest.bench.measurement import Goal, Measurement
from ringmq.loadtest.spark.broker_rows import (
    broker_cpu,
    micro_batch,
    newest_age,
    producer_beside_scan,
    sink_row,
    stock_row,
    tcp_row,
)
from ringmq.loadtest.spark.rows import (
    JVM,
    RATIO,
    SparkRow,
    available_now_row,
    count_row,
    group_row,
    scan_row,
    task_memory,
)
from ringmq.loadtest.spark.workbench import Workbench

BATCH_ROWS = 200_000


def _at_least(bound: float) -> tuple[Goal, ...]:
    return (Goal(RATIO, "absolute", at_least=bound),)


def _at_most(ours: float, p95: float | None = None) -> tuple[Goal, ...]:
    goals = [Goal("ours", "absolute", at_most=ours)]
    return (*goals, Goal("p95", "absolute", at_most=p95)) if p95 else tuple(goals)


def _against_parquet(size: str, title: str, scan: float, header: float, jvm: float) -> list[SparkRow]:
    def row(name: str, what: str, bound: float, run: Callable[[Workbench], Measurement]) -> SparkRow:
        return SparkRow(f"{name}-{size}", f"{title}, {what}", "s", "parquet", _at_least(bound), run)

    return [
        row("scan", "all columns", scan, scan_row(size)),
        row("count", "pruned, count", header, count_row(size)),
        row("group", "pruned, group by queue", header, group_row(size)),
        row("jvm-scan", "JVM path, all columns", jvm, scan_row(size, JVM)),
        row("jvm-count", "JVM path, count", 1, count_row(size, JVM)),
        row("jvm-group", "JVM path, group by queue", 1, group_row(size, JVM)),
    ]


ROWS: tuple[SparkRow, ...] = (
    *_against_parquet("1k", "1 KiB", scan=1.0, header=0.5, jvm=2.0),
    *_against_parquet("200b", "200 B", scan=0.9, header=0.3, jvm=1.5),
    SparkRow("stock", "one log, its files against stock lite pull", "rows/s", "stock", _at_least(5), stock_row),
    SparkRow("tcp", "transport tcp against native pulls", "rows/s", "native", _at_least(0.5), tcp_row),
    SparkRow("broker-cpu", "broker CPU during full scans", "% of a CPU", "", _at_most(2), broker_cpu),
    SparkRow(
        "producer",
        "producer beside scans, against a CPU load",
        "msg/s",
        "cpu_load",
        _at_least(0.95),
        producer_beside_scan,
    ),
    SparkRow("micro-batch", "micro-batch at 1,000 msg/s, 1 task", "ms", "", _at_most(75, p95=100), micro_batch),
    SparkRow("age", "age of the newest record seen", "ms", "", _at_most(100), newest_age),
    SparkRow(
        "available-now", "AvailableNow against batch, unlimited", "s", "batch", _at_least(0.8), available_now_row(None)
    ),
    SparkRow(
        "available-now-200k",
        f"AvailableNow against batch, {BATCH_ROWS:,} rows each",
        "s",
        "batch",
        _at_least(0.5),
        available_now_row(BATCH_ROWS),
    ),
    SparkRow("sink", "sink 1 KiB, against native batches of 32", "rows/s", "native", _at_least(0.5), sink_row),
    SparkRow("task-memory", "largest RssAnon of a task", "MiB", "", _at_most(150e6 / (1 << 20)), task_memory),
)


def rows_named(names: list[str]) -> list[SparkRow]:
    """Return the named rows in the table's order, all for an empty list. Raises ValueError for an unknown name."""
    known = {row.name for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown rows {', '.join(unknown)}; there are {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not names or row.name in names]
