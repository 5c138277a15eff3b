"""The table of the Spark bench: every row and its goals. The unit names the other side, where there is one."""

from collections.abc import Callable

from ringmq.loadtest.measuring.measurement import Measurement, goals
from ringmq.loadtest.spark.broker_rows import (
    broker_cpu,
    micro_batch,
    newest_age,
    producer_beside_scan,
    sink_row,
    stock_row,
    tcp_row,
)
from ringmq.loadtest.spark.rows import JVM, available_now_row, count_row, group_row, scan_row, task_memory
from ringmq.loadtest.spark.workbench import SparkRow, Workbench

BATCH_ROWS = 200_000


def _row(name: str, title: str, unit: str, reached: str, run: Callable[[Workbench], Measurement]) -> SparkRow:
    found = goals(reached)
    return SparkRow(name, title, found[0].metric, unit, found, run)


def _against_parquet(size: str, title: str, scan: float, header: float, jvm: float) -> list[SparkRow]:
    def row(name: str, what: str, bound: float, run: Callable[[Workbench], Measurement]) -> SparkRow:
        return _row(f"{name}-{size}", f"{title}, {what}", "s, parquet", f"ratio >={bound}", run)

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
    _row("stock", "one log, its files against stock lite pull", "rows/s, stock", "ratio >=5", stock_row),
    _row("tcp", "transport tcp against native pulls", "rows/s, native", "ratio >=0.5", tcp_row),
    _row("broker-cpu", "broker CPU during full scans", "% of a CPU", "ours <=2", broker_cpu),
    _row("producer", "producer beside scans, against a CPU load", "msg/s, cpu_load", "ratio >=0.95",
         producer_beside_scan),
    _row("micro-batch", "micro-batch at 1,000 msg/s, 1 task", "ms", "ours <=75, p95 <=100", micro_batch),
    _row("age", "age of the newest record seen", "ms", "ours <=100", newest_age),
    _row("available-now", "AvailableNow against batch, unlimited", "s, batch", "ratio >=0.8", available_now_row(None)),
    _row("available-now-200k", f"AvailableNow against batch, {BATCH_ROWS:,} rows each", "s, batch", "ratio >=0.5",
         available_now_row(BATCH_ROWS)),
    _row("sink", "sink 1 KiB, against native batches of 32", "rows/s, native", "ratio >=0.5", sink_row),
    _row("task-memory", "largest RssAnon of a task", "MiB", f"ours <={150e6 / (1 << 20):.3f}", task_memory),
)  # fmt: skip
