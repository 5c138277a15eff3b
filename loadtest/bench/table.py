"""The table: every row, its goals and its references."""

from collections.abc import Sequence
from importlib.util import find_spec

from ringmq.loadtest.bench import open_pops, pops, timers, waiting_pops, waiting_timers
from ringmq.loadtest.bench.delays import LEVELS, beside_waiting, delayed_sends, due_at_once, lateness
from ringmq.loadtest.bench.restart import restart_row
from ringmq.loadtest.bench.rows import (
    BenchRow,
    filtered_pull_row,
    idle_row,
    java_row,
    memory_row,
    open_loop_row,
    pull_row,
    sdk_pop_row,
    sdk_row,
    send_back_row,
    send_row,
    transaction_row,
)
from ringmq.loadtest.load.pops import serves_pop
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, STOCK, goals
from ringmq.loadtest.measuring.rounds import named

OURS = (RINGMQ,)
POPPING = (STOCK, RINGMQ) if serves_pop() else (STOCK,)
PULL: dict[str, object] = {"command": "pull", "connections": 16, "depth": 4, "count": 32}
MOST: dict[str, object] = {"command": "send", "connections": 16, "depth": 64, "size": 200}
FDATASYNC: dict[str, object] = {"command": "fdatasync", "factor": 64}
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
ONE_LEVEL = {"messageDelayLevel": "1h"}
FILTERED = {"enablePropertyFilter": "true"}


def _send(name: str, title: str, reached: str, command: str = "send", **options: object) -> BenchRow:
    run = send_row(name, command, **options)
    return BenchRow(name, title, RATE, "msg/s", goals(reached), run, ceiling={"command": command, **options})


def _replication_rows() -> tuple[BenchRow, ...]:
    """Return the rows of replication, none if they are not installed."""
    if find_spec("ringmq.loadtest.replication") is None:
        return ()
    from ringmq.loadtest.replication.table import REPLICATION_ROWS

    return REPLICATION_ROWS


ROWS: tuple[BenchRow, ...] = (
    _send("1x1", "1 connection, 1 in flight, 200 B", f"{RATE} >=1.5x stock, {RATE} >=0.75x ceiling",
          connections=1, depth=1, size=200),
    _send("64x1", "64 connections, 1 in flight, 200 B", f"{RATE} >=3x stock, {RATE} >=0.5x ceiling",
          connections=64, depth=1, size=200),
    _send("64x1-1k", "64 connections, 1 in flight, 1 KiB", f"{RATE} >=3x stock, {RATE} >=0.5x ceiling",
          connections=64, depth=1, size=1024),
    _send("64x16", "64 connections, 16 in flight, 200 B", f"{RATE} >=10x stock, {RATE} >=0.25x ceiling",
          connections=64, depth=16, size=200),
    _send("batch", "batches of 32 x 200 B, 16x4", f"{RATE} >=5x stock", "batch",
          connections=16, depth=4, size=200, batch=32),
    BenchRow("pull", "pull 32 x 1 KiB, 16x4", RATE, "msg/s", goals(f"{RATE} >=2.3x stock, {RATE} >=0.8x ceiling"),
             pull_row, ceiling=PULL),
    BenchRow("pull-sql", "pull 32 x 1 KiB by SQL92, one in ten matches, 16x4", RATE, "msg/s",
             goals(f"{RATE} >=5x stock"), filtered_pull_row, settings=FILTERED),
    BenchRow("transaction", "half message and answered commit, 200 B, 64x16", RATE, "pairs/s",
             goals(f"{RATE} >=5x stock, cpu_us_per_pair <=0.2x stock"), transaction_row),
    BenchRow("send-backs", "send-backs (36) of failed messages, answered, 200 B, 64x16", RATE, "msg/s",
             goals(f"{RATE} >=3x stock"), send_back_row, settings=ONE_LEVEL),
    BenchRow("pop-batch", "pops of 32 x 200 B of 8 queues, an ack for each pop, 4x4", RATE, "msg/s",
             goals(f"{RATE} >=5x stock, cpu_us <=0.2x stock"),
             pops.pop_row("pop_batch", count=32, connections=4, depth=4), POPPING, settings=pops.SETTINGS),
    BenchRow("pop-acks", "pops of 32 x 200 B of 8 queues, an ack for each message, 4x4", RATE, "msg/s",
             goals(f"{RATE} >=10x stock"),
             pops.pop_row("pop_acks", count=32, single_acks=True, connections=4, depth=4), POPPING,
             settings=pops.SETTINGS),
    BenchRow("pop-one", "pops of one message of 200 B, each with its ack, 4x16", RATE, "msg/s", goals("cpu_us <=12.5"),
             pops.pop_row("pop_one", count=1, single_acks=True, connections=4, depth=16), POPPING,
             settings=pops.SETTINGS),
    BenchRow("pop-revival", "p99 from the end of the invisible time until a pop finds a message, 32 each 50 ms",
             "p99_ms", "ms", goals("p99_ms <=50, max_ms <=0.1x stock"), pops.revival_row(1000, 0.05), POPPING,
             settings=pops.SETTINGS),
    BenchRow("pop-wave", "20,000 open messages that are due at once, until pops have found them", RATE, "msg/s",
             goals(f"{RATE} >=5x stock"), pops.revival_row(20_000, 0.0), settings=pops.SETTINGS),
    BenchRow("pop-log-bytes", "handlers of 30 s, 10,000 open, pops of 32 with an ack each: bytes of log a message",
             "log_bytes", "B", goals("log_bytes <=0.25x stock"), open_pops.log_bytes_row(), POPPING,
             settings=pops.SETTINGS),
    BenchRow("pop-logged-acks", "acks behind a restart, 1,000,000 open by check points in the log, to those without",
             "to_plain", "x", goals("to_plain >=0.5"), None, POPPING[1:], alone=open_pops.logged_acks_row),
    BenchRow("poll-late", "20,000/s: p99 from send to receipt of 64 waiting pops, and of pulls", "p99_ms", "ms",
             goals("to_pulls <=2"), waiting_pops.late_row, POPPING, settings=waiting_pops.SETTINGS),
    BenchRow("poll-wake", "one message to 10,000 waiting pops of one group, until one has it", "p99_ms", "ms",
             goals("p99_ms <=5"), waiting_pops.wake_row("poll_wake", waiting_pops.ONE_GROUP), POPPING,
             settings=waiting_pops.SETTINGS),
    BenchRow("poll-groups", "one message to 1,000 groups with 10 waiting pops each, until each group has it", "p99_ms",
             "ms", goals("p99_ms <=100"), waiting_pops.wake_row("poll_groups", waiting_pops.MANY_GROUPS), POPPING[1:],
             settings=waiting_pops.SETTINGS),
    BenchRow("poll-beside", "rows pop-batch, pop-acks, pop-one beside 1,000 pops that wait elsewhere, to those without",
             "one_ratio", "x", goals("batch_ratio >=0.95, acks_ratio >=0.95, one_ratio >=0.95"),
             waiting_pops.beside_row, POPPING[1:], settings=waiting_pops.SETTINGS),
    BenchRow("open-loop", "open loop at half of stock's best rate: p99.9", "p99_9", "us",
             goals("p99_9 <=0.1x stock, max <=0.1x stock"), open_loop_row),
    BenchRow("delay-sends", "sends with a delay level, 64x16, 200 B", RATE, "msg/s",
             goals(f"to_plain >=0.8, {RATE} >=8x stock"), delayed_sends, settings=LEVELS),
    BenchRow("delay-due", "delivery of 200,000 messages of one level that are due at once", RATE, "msg/s",
             goals(f"{RATE} >=5x stock"), None, alone=due_at_once),
    BenchRow("delay-late", "20,000/s due: p99 of the delay's lateness, above a bare sleep loop's", "above_p99_ms", "ms",
             goals("above_p50_ms <=2, above_p99_ms <=10, early <=0"), lateness, OURS, settings=LEVELS),
    BenchRow("delay-beside", "plain sends beside 1,000,000 waiting messages and 100,000 open halves, to those without",
             "send_ratio", "x", goals("send_ratio >=0.95, pull_ratio >=0.95, total_mib <=250"), None, OURS,
             alone=beside_waiting),
    BenchRow("timer-accept", "timer messages for an hour from now, 64x16, 200 B", RATE, "msg/s",
             goals(f"to_plain >=0.7, {RATE} >=10x stock"), timers.accepted),
    BenchRow("timer-slot", "delivery of 1,000,000 timer messages that are due in the same millisecond", RATE, "msg/s",
             goals(f"{RATE} >=5x stock, first_ms <=10"), timers.full_slot),
    BenchRow("timer-late", "20,000/s due beside 20,000/s plain: p99 of the timers' lateness, above a bare sleep loop's",
             "above_p99_ms", "ms", goals("above_p50_ms <=2, above_p99_ms <=10, above_p99_9_ms <=50, early <=0"),
             timers.lateness, OURS),
    BenchRow("timer-beside", "plain sends beside the delivery of 1,000,000 timer messages, to those without",
             "send_ratio", "x", goals("send_ratio >=0.7, p99_ratio <=3"), timers.beside_delivery, OURS),
    BenchRow("timer-waiting", "timer messages beside 10,000,000 that wait for tomorrow, to those with none",
             "accept_ratio", "x", goals("accept_ratio >=0.9, total_mib <=250, idle_percent <=1, restart_s <=2"), None,
             OURS, alone=waiting_timers.waiting_timers),
    BenchRow("java", "stock Java producer, 64 threads, 1 KiB", RATE, "msg/s", goals(f"{RATE} >=1.3x stock"), java_row),
    BenchRow("sdk-batch", "Python SDK, one process, 1 KiB, batches of 20", RATE, "msg/s", goals(f"{RATE} >=100000"),
             sdk_row("batch"), OURS),
    BenchRow("sdk-await", "Python SDK, one process, 1 KiB, one await each", RATE, "msg/s", goals(f"{RATE} >=15000"),
             sdk_row("pipelined"), OURS),
    BenchRow("sdk-pop-batch", "Python SDK, one process, pops of 32 x 1 KiB, an ack for each pop", RATE, "msg/s",
             goals(f"{RATE} >=20000"), sdk_pop_row("pop-batch"), POPPING[1:]),
    BenchRow("sdk-pop-tasks", "Python SDK, 64 tasks with one consumer, pops of one message, each with its ack", RATE,
             "msg/s", goals(f"{RATE} >=6000"), sdk_pop_row("pop-tasks"), POPPING[1:]),
    BenchRow("sdk-pop-one", "Python SDK, one message after the other with its ack; ratio to sends one after the other",
             "to_round_trips", "x", goals("to_round_trips >=0.45"), sdk_pop_row("pop-one"), POPPING[1:]),
    BenchRow("sdk-push", "PushConsumer, 64 handlers of 1 ms in one process, 1 KiB; ratio to 64,000/s",
             "to_handlers", "x", goals("to_handlers >=0.15, cpu_to_sleeps <=10"), sdk_pop_row("push"), POPPING[1:]),
    BenchRow("idle", "CPU of the broker with 1,000 idle connections", "cpu_percent", "%", goals("cpu_percent <=1"),
             idle_row),
    BenchRow("memory", "private memory of all processes after 10M messages", "total_mib", "MiB",
             goals("total_mib <=250"), memory_row),
    BenchRow("sync", "sync flush, 64 connections, 1 in flight, 200 B", RATE, "msg/s",
             goals(f"{RATE} >=3x stock, {RATE} >=0.4x ceiling"),
             send_row("sync", "send", connections=64, depth=1, size=200), settings=SYNC_FLUSH, ceiling=FDATASYNC),
    BenchRow("restart", "restart after kill -9 with 4 GB of log (page cache hot)", "hot_s", "s", goals("hot_s <=3"),
             None, OURS, alone=restart_row),
    BenchRow("ceiling-max", "highest proven rate of the loader (ceiling, 16x64)", RATE, "msg/s", (), None, (),
             ceiling=MOST),
    *_replication_rows(),
)  # fmt: skip
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))


def rows_named(names: Sequence[str], groups: Sequence[str] = GROUPS) -> list[BenchRow]:
    """Return the named rows in the table's order, all of `groups` without names. Raises ValueError."""
    return [row for row in named(ROWS, names) if names or row.group in groups]
