"""The rows of the bench about replication, with their goals."""

from collections.abc import Mapping

from ringmq.loadtest.bench.measurement import RINGMQ, Goal
from ringmq.loadtest.bench.rows import RATE, REPLICATION, Alone, Row
from ringmq.loadtest.replication.catch_up import catch_up_row, production_row
from ringmq.loadtest.replication.link import delay_row
from ringmq.loadtest.replication.link_loss import link_loss_row
from ringmq.loadtest.replication.pairs import SYNC_MASTER
from ringmq.loadtest.replication.rows import BATCH, MANY, replicated_row, sync_cost_row
from ringmq.loadtest.replication.stall import stall_row

SETTINGS = {name: str(value) for name, value in SYNC_MASTER.items()}
SLAVE_TIMEOUT_MS = 3000  # the client sees the way there and back, too
WINDOW_MIB = 16  # ringmqHaWindowBytes' default


def _replicated(name: str, title: str, stock: float, command: str, options: Mapping[str, int]) -> Row:
    goals = (Goal(RATE, "stock", at_least=stock),)
    run = replicated_row(name, command, options)
    return Row(name, title, RATE, "msg/s", goals, run, settings=SETTINGS, group=REPLICATION, slaves=1)


def _alone(name: str, title: str, metric: str, unit: str, goals: tuple[Goal, ...], alone: Alone) -> Row:
    return Row(name, title, metric, unit, goals, None, group=REPLICATION, alone=alone)


def _link(delay_ms: int) -> Row:
    title = f"bytes/s acknowledged, {delay_ms} ms each way, of those at 0 ms"
    goals = (Goal("kept", "absolute", at_least=0.9),)
    return _alone(f"repl-link-{delay_ms}", title, "kept", "part", goals, delay_row(delay_ms))


REPLICATION_ROWS: tuple[Row, ...] = (
    _replicated("repl-1x1", "SYNC_MASTER, 1 slave: 1 connection, 1 in flight, 200 B", 1.5, "send",
                {"connections": 1, "depth": 1, "size": 200}),
    _replicated("repl-64x1", "SYNC_MASTER, 1 slave: 64 connections, 1 in flight, 200 B", 3, "send",
                {"connections": 64, "depth": 1, "size": 200}),
    _replicated("repl-64x16", "SYNC_MASTER, 1 slave: 64 connections, 16 in flight", 10, "send", MANY),
    _replicated("repl-batch", "SYNC_MASTER, 1 slave: batches of 32 x 1 KiB, 16x4", 5, "batch", BATCH),
    Row("repl-cost", "64x16 that waits for the slave, of 64x16 that does not", "kept", "part",
        (Goal("kept", "absolute", at_least=0.75),), None, systems=(RINGMQ,), group=REPLICATION, alone=sync_cost_row),
    _link(2),
    _link(20),
    _alone("repl-catch-up", "empty slave gets the log, of a file's copy through TCP", "of_copy", "part",
           (Goal("of_copy", "absolute", at_least=0.5),), catch_up_row),
    _alone("repl-production", "p99 while a slave catches up with flow control, of before", "p99_ratio", "times",
           (Goal("p99_ratio", "absolute", at_most=1.5),), production_row),
    _alone("repl-stall", "growth of the master's memory while its slave is stopped", "grown_mib", "MiB",
           (Goal("grown_mib", "absolute", at_most=WINDOW_MIB),), stall_row),
    _alone("repl-link-loss", "64 parked requests answered after a reset of the link", "reset_ms", "ms",
           (Goal("reset_ms", "absolute", at_most=50), Goal("close_ms", "absolute", at_most=50),
            Goal("silence_first_ms", "absolute", at_most=SLAVE_TIMEOUT_MS + 50),
            Goal("silence_later_ms", "absolute", at_most=10)),
           link_loss_row),
)  # fmt: skip
