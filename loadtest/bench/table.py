"""The table: every row, its goals and its references."""

from collections.abc import Sequence
from importlib.util import find_spec

from ringmq.loadtest.bench import timers, waiting_timers
from ringmq.loadtest.bench.delays import LEVELS, beside_waiting, delayed_sends, due_at_once, lateness
from ringmq.loadtest.bench.measurement import RINGMQ, Goal
from ringmq.loadtest.bench.restart import restart_row
from ringmq.loadtest.bench.rows import (
    RATE,
    Row,
    filtered_pull_row,
    idle_row,
    java_row,
    memory_row,
    open_loop_row,
    pull_row,
    sdk_row,
    send_back_row,
    send_row,
    transaction_row,
)


def _goals(metric: str, stock: float | None = None, ceiling: float | None = None) -> tuple[Goal, ...]:
    goals = []
    if stock is not None:
        goals.append(Goal(metric, "stock", at_least=stock))
    if ceiling is not None:
        goals.append(Goal(metric, "ceiling", at_least=ceiling))
    return tuple(goals)


def _at_least(**bounds: float) -> tuple[Goal, ...]:
    return tuple(Goal(metric, "absolute", at_least=bound) for metric, bound in bounds.items())


def _at_most(**bounds: float) -> tuple[Goal, ...]:
    return tuple(Goal(metric, "absolute", at_most=bound) for metric, bound in bounds.items())


def _send(name: str, title: str, stock: float, ceiling: float | None, command: str = "send", **options: object) -> Row:
    return Row(
        name,
        title,
        "messages_per_s",
        "msg/s",
        _goals("messages_per_s", stock, ceiling),
        send_row(name, command, **options),
        ceiling={"command": command, **options},
    )


def _replication_rows() -> tuple[Row, ...]:
    """Return the rows of replication, none if they are not installed."""
    if find_spec("ringmq.loadtest.replication") is None:
        return ()
    from ringmq.loadtest.replication.table import REPLICATION_ROWS

    return REPLICATION_ROWS


DELAY_ROWS: tuple[Row, ...] = (
    Row(
        "delay-sends",
        "sends with a delay level, 64x16, 200 B",
        RATE,
        "msg/s",
        (Goal("to_plain", "absolute", at_least=0.8), Goal(RATE, "stock", at_least=8)),
        delayed_sends,
        settings=LEVELS,
    ),
    Row(
        "delay-due",
        "delivery of 200,000 messages of one level that are due at once",
        RATE,
        "msg/s",
        _goals(RATE, 5),
        None,
        alone=due_at_once,
    ),
    Row(
        "delay-late",
        "20,000/s due: p99 of the delay's lateness, above a bare sleep loop's",
        "above_p99_ms",
        "ms",
        _at_most(above_p50_ms=2, above_p99_ms=10, early=0),
        lateness,
        systems=(RINGMQ,),
        settings=LEVELS,
    ),
    Row(
        "delay-beside",
        "plain sends beside 1,000,000 waiting messages and 100,000 open halves, to those without",
        "send_ratio",
        "x",
        (*_at_least(send_ratio=0.95, pull_ratio=0.95), *_at_most(total_mib=250)),
        None,
        systems=(RINGMQ,),
        alone=beside_waiting,
    ),
)
TIMER_ROWS: tuple[Row, ...] = (
    Row(
        "timer-accept",
        "timer messages for an hour from now, 64x16, 200 B",
        RATE,
        "msg/s",
        (Goal("to_plain", "absolute", at_least=0.7), Goal(RATE, "stock", at_least=10)),
        timers.accepted,
    ),
    Row(
        "timer-slot",
        "delivery of 1,000,000 timer messages that are due in the same millisecond",
        RATE,
        "msg/s",
        (Goal(RATE, "stock", at_least=5), Goal("first_ms", "absolute", at_most=10)),
        timers.full_slot,
    ),
    Row(
        "timer-late",
        "20,000/s due beside 20,000/s plain: p99 of the timers' lateness, above a bare sleep loop's",
        "above_p99_ms",
        "ms",
        _at_most(above_p50_ms=2, above_p99_ms=10, above_p99_9_ms=50, early=0),
        timers.lateness,
        systems=(RINGMQ,),
    ),
    Row(
        "timer-beside",
        "plain sends beside the delivery of 1,000,000 timer messages, to those without",
        "send_ratio",
        "x",
        (*_at_least(send_ratio=0.7), *_at_most(p99_ratio=3)),
        timers.beside_delivery,
        systems=(RINGMQ,),
    ),
    Row(
        "timer-waiting",
        "timer messages beside 10,000,000 that wait for tomorrow, to those with none",
        "accept_ratio",
        "x",
        (*_at_least(accept_ratio=0.9), *_at_most(total_mib=250, idle_percent=1, restart_s=2)),
        None,
        systems=(RINGMQ,),
        alone=waiting_timers.waiting_timers,
    ),
)
ONE_LEVEL = {"messageDelayLevel": "1h"}
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
ROWS: tuple[Row, ...] = (
    _send("1x1", "1 connection, 1 in flight, 200 B", 1.5, 0.75, connections=1, depth=1, size=200),
    _send("64x1", "64 connections, 1 in flight, 200 B", 3, 0.5, connections=64, depth=1, size=200),
    _send("64x1-1k", "64 connections, 1 in flight, 1 KiB", 3, 0.5, connections=64, depth=1, size=1024),
    _send("64x16", "64 connections, 16 in flight, 200 B", 10, 0.25, connections=64, depth=16, size=200),
    _send("batch", "batches of 32 x 200 B, 16x4", 5, None, "batch", connections=16, depth=4, size=200, batch=32),
    Row(
        "pull",
        "pull 32 x 1 KiB, 16x4",
        RATE,
        "msg/s",
        _goals(RATE, 2.3, 0.8),
        pull_row,
        ceiling={"command": "pull", "connections": 16, "depth": 4, "count": 32},
    ),
    Row(
        "pull-sql",
        "pull 32 x 1 KiB by SQL92, one in ten matches, 16x4",
        RATE,
        "msg/s",
        _goals(RATE, 5),
        filtered_pull_row,
        settings={"enablePropertyFilter": "true"},
    ),
    Row(
        "transaction",
        "half message and answered commit, 200 B, 64x16",
        RATE,
        "pairs/s",
        (*_goals(RATE, 5), Goal("cpu_us_per_pair", "stock", at_most=0.2)),
        transaction_row,
    ),
    Row(
        "send-backs",
        "send-backs (36) of failed messages, answered, 200 B, 64x16",
        RATE,
        "msg/s",
        _goals(RATE, 3),
        send_back_row,
        settings=ONE_LEVEL,
    ),
    Row(
        "open-loop",
        "open loop at half of stock's best rate: p99.9",
        "p99_9",
        "us",
        (Goal("p99_9", "stock", at_most=0.1), Goal("max", "stock", at_most=0.1)),
        open_loop_row,
    ),
    *DELAY_ROWS,
    *TIMER_ROWS,
    Row("java", "stock Java producer, 64 threads, 1 KiB", RATE, "msg/s", _goals(RATE, 1.3), java_row),
    Row(
        "sdk-batch",
        "Python SDK, one process, 1 KiB, batches of 20",
        RATE,
        "msg/s",
        (Goal(RATE, "absolute", at_least=100_000),),
        sdk_row("batch"),
        systems=(RINGMQ,),
    ),
    Row(
        "sdk-await",
        "Python SDK, one process, 1 KiB, one await each",
        RATE,
        "msg/s",
        (Goal(RATE, "absolute", at_least=15_000),),
        sdk_row("pipelined"),
        systems=(RINGMQ,),
    ),
    Row(
        "idle",
        "CPU of the broker with 1,000 idle connections",
        "cpu_percent",
        "%",
        _at_most(cpu_percent=1.0),
        idle_row,
    ),
    Row(
        "memory",
        "private memory of all processes after 10M messages",
        "total_mib",
        "MiB",
        _at_most(total_mib=250),
        memory_row,
    ),
    Row(
        "sync",
        "sync flush, 64 connections, 1 in flight, 200 B",
        RATE,
        "msg/s",
        _goals(RATE, 3, 0.4),
        send_row("sync", "send", connections=64, depth=1, size=200),
        settings=SYNC_FLUSH,
        ceiling={"command": "fdatasync", "factor": 64},
    ),
    Row(
        "restart",
        "restart after kill -9 with 4 GB of log (page cache hot)",
        "hot_s",
        "s",
        _at_most(hot_s=3.0),
        None,
        systems=(RINGMQ,),
        alone=restart_row,
    ),
    Row("ceiling-max", "highest proven rate of the loader (ceiling, 16x64)", RATE, "msg/s", (), None, systems=(),
        ceiling={"command": "send", "connections": 16, "depth": 64, "size": 200}),
    *_replication_rows(),
)  # fmt: skip
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


def rows_named(names: list[str], groups: Sequence[str] = GROUPS) -> list[Row]:
    """Return the named rows in the table's order, all of `groups` without names.

    Raises ValueError for an unknown name.
    """
    known = {row.name for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown rows {', '.join(unknown)}; there are {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if (row.name in names if names else row.group in groups)]
