"""The rows of the bench about replication, with their goals."""

from collections.abc import Mapping

from ringmq.loadtest.bench.rows import REPLICATION, Alone, BenchRow
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, STOCK, goals
from ringmq.loadtest.replication.catch_up import catch_up_row, production_row
from ringmq.loadtest.replication.link import delay_row
from ringmq.loadtest.replication.link_loss import link_loss_row
from ringmq.loadtest.replication.pairs import SYNC_MASTER
from ringmq.loadtest.replication.rows import BATCH, MANY, replicated_row, sync_cost_row
from ringmq.loadtest.replication.stall import stall_row

SETTINGS = {name: str(value) for name, value in SYNC_MASTER.items()}
SLAVE_TIMEOUT_MS = 3000  # the client sees the way there and back, too
WINDOW_MIB = 16  # ringmqHaWindowBytes' default


def _replicated(name: str, title: str, stock: float, command: str, options: Mapping[str, int]) -> BenchRow:
    reached, run = goals(f"{RATE} >={stock}x stock"), replicated_row(name, command, options)
    return BenchRow(name, title, RATE, "msg/s", reached, run, settings=SETTINGS, group=REPLICATION, slaves=1)


def _alone(
    name: str, title: str, unit: str, reached: str, alone: Alone, systems: tuple[str, ...] = (STOCK, RINGMQ)
) -> BenchRow:
    found = goals(reached)
    return BenchRow(name, title, found[0].metric, unit, found, None, systems, group=REPLICATION, alone=alone)


def _link(delay_ms: int) -> BenchRow:
    title = f"bytes/s acknowledged, {delay_ms} ms each way, of those at 0 ms"
    return _alone(f"repl-link-{delay_ms}", title, "part", "kept >=0.9", delay_row(delay_ms))


REPLICATION_ROWS: tuple[BenchRow, ...] = (
    _replicated("repl-1x1", "SYNC_MASTER, 1 slave: 1 connection, 1 in flight, 200 B", 1.5, "send",
                {"connections": 1, "depth": 1, "size": 200}),
    _replicated("repl-64x1", "SYNC_MASTER, 1 slave: 64 connections, 1 in flight, 200 B", 3, "send",
                {"connections": 64, "depth": 1, "size": 200}),
    _replicated("repl-64x16", "SYNC_MASTER, 1 slave: 64 connections, 16 in flight", 10, "send", MANY),
    _replicated("repl-batch", "SYNC_MASTER, 1 slave: batches of 32 x 1 KiB, 16x4", 5, "batch", BATCH),
    _alone("repl-cost", "64x16 that waits for the slave, of 64x16 that does not", "part", "kept >=0.75", sync_cost_row,
           (RINGMQ,)),
    _link(2),
    _link(20),
    _alone("repl-catch-up", "empty slave gets the log, of a file's copy through TCP", "part", "of_copy >=0.5",
           catch_up_row),
    _alone("repl-production", "p99 while a slave catches up with flow control, of before", "times", "p99_ratio <=1.5",
           production_row),
    _alone("repl-stall", "growth of the master's memory while its slave is stopped", "MiB",
           f"grown_mib <={WINDOW_MIB}", stall_row),
    _alone("repl-link-loss", "64 parked requests answered after a reset of the link", "ms",
           f"reset_ms <=50, close_ms <=50, silence_first_ms <={SLAVE_TIMEOUT_MS + 50}, silence_later_ms <=10",
           link_loss_row),
)  # fmt: skip
