"""`make bench-sdk`: RingMQ's SDK beside the 4.x client `rocketmq` 0.4.4 of PyPI, one process each, one broker."""

import argparse
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, build_tools
from ringmq.loadtest.measuring.command import Command, Options
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import PEER, RINGMQ
from ringmq.loadtest.measuring.rounds import Session
from ringmq.loadtest.measuring.tables import sides_table
from ringmq.loadtest.sdk.environments import python_with
from ringmq.loadtest.sdk.rows import CONSUME, PEER_REQUIREMENT, ROWS, Clients

QUICK = {"rounds": 1, "seconds": 0.5, "consumed_max": 20_000}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(consumed_max=512_000)


def _needed_bytes(options: Options) -> int:
    return options.consumed_max * 1024 if any(row.name == CONSUME for row in options.row_list) else 0


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    folder, python = options.folder.resolve(), python_with(PEER_REQUIREMENT)
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    try:
        with RunningBroker(store, dict(COMMON_SETTINGS)) as broker:
            loader, rows = Loader(build_tools(), broker.port), options.row_list
            clients = Clients(folder, broker, loader, python, options.seconds, options.consumed_max, rows)
            circumstances = {"peer": PEER_REQUIREMENT}
            yield Session(rows, clients.turns, options.rounds,
                          header=lambda: {**circumstances, "loadavg_after": os.getloadavg()})  # fmt: skip
    finally:
        shutil.rmtree(store, ignore_errors=True)


def table(report: Document) -> str:
    """Return both clients beside each other."""
    return sides_table(report, {"ringmq": (RINGMQ, ""), PEER_REQUIREMENT: (PEER, "")})


BENCH = Command(
    "sdk_compare", __doc__, "build/bench-sdk", _opened, table, ROWS, files=("bench.json",), rounds=5,
    options=_options, quick=QUICK, needed_bytes=_needed_bytes, lists_goals=False, conditions=(
        "one process per client, 1 KiB, {rounds} interleaved round(s) of {seconds} s,\n"
        "ASYNC_FLUSH; median +- half of the spread"
    ),
)  # fmt: skip
main = BENCH.main
