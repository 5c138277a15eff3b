"""SimpleConsumer beside the 5.x Python client of PyPI, which receives through RocketMQ's proxy. One broker of RingMQ.

python -m tests.proxy.receive_bench [--rounds 5] [--seconds 5]

Each client is one process, and reads the same topic of 1 KiB messages with new groups. The client of PyPI cannot
acknowledge several messages by one request: 32 threads do it.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.sdk import POPS
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, Report, build_tools, run_json
from ringmq.loadtest.measuring.command import Command, Options
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import PEER, RATE, RINGMQ, Measurement, goals
from ringmq.loadtest.measuring.rounds import Row, Session, Turn, rotated
from ringmq.loadtest.measuring.tables import sides_table
from ringmq.loadtest.sdk.environments import python_with
from ringmq.loadtest.stock import StockServer
from tests.proxy.stand import HERE, PYTHON_REQUIREMENT, start_proxy

PROGRAM = HERE / "python" / "receive_rates.py"
TOPIC, BODY_BYTES = "ProxyRates", 1024
CPU = "cpu_us"
HEAP_MB = 1024
SETTLE_S = 1.0


def _row(name: str, title: str, times_the_peer: float) -> Row:
    wanted = goals(f"{RATE} >={times_the_peer:g}x peer, {CPU} <=0.25x peer")
    return Row(name, title, RATE, "msg/s", wanted, shown=(CPU,))


ROWS = (
    _row("pop-batch", "receive 32, acknowledge them", 5),
    _row("pop-tasks", "receive 1, acknowledge it, 64 workers with one consumer", 5),
)
"""Their names are modes of `loadtest/bench/sdk.py`."""


@dataclass(frozen=True)
class Clients:
    """A broker, the proxy in front of it, and both clients in turn."""

    folder: Path
    broker: RunningBroker
    proxy: StockServer
    rows: list[Row]
    seconds: float

    def turns(self, number: int) -> Generator[Turn, None, None]:
        """All rows. The order of the clients changes from round to round."""
        for row in self.rows:
            for side in rotated((RINGMQ, PEER), number):
                yield Turn(row, side, partial(self._measure, row, side))

    def _measure(self, row: Row, side: str) -> Measurement:
        report = self._report(row, side)
        twice = report["duplicates"]
        values = {name: float(report[name]) for name in (RATE, CPU)}
        note = f"{twice} messages came twice" if twice else ""
        return Measurement(values, ok=report["messages"] > 0 and not twice, note=note, raw=report)

    def _report(self, row: Row, side: str) -> Report:
        if side == RINGMQ:
            words = [sys.executable, "-m", "ringmq.loadtest.bench.sdk", "--namesrv", self.broker.namesrv]
            words += ["--topic", TOPIC, "--mode", row.name, "--seconds", str(self.seconds)]
        else:
            # the client writes its log below $HOME
            words = ["env", f"HOME={self.folder}", str(python_with(PYTHON_REQUIREMENT)), str(PROGRAM)]
            words += [self.proxy.address, TOPIC, *map(str, POPS[row.name]), str(self.seconds)]
        return run_json(words, timeout_s=120 + 4 * self.seconds)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=400_000, help="of the topic (%(default)s)")


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    python_with(PYTHON_REQUIREMENT)
    with tempfile.TemporaryDirectory(prefix="ringmq-proxy-bench-") as name:
        folder = Path(name)
        with RunningBroker(folder / "store", dict(COMMON_SETTINGS)) as broker:
            loader = Loader(build_tools(), broker.port)
            shape = {"size": BODY_BYTES, "connections": 8, "depth": 2, "messages": options.messages}
            loader.run("batch", topic=TOPIC, create=True, check=True, read_back=True, **shape)
            proxy = start_proxy(broker.namesrv, folder / "proxy", HEAP_MB, enableBatchAck=True)
            try:
                clients = Clients(folder, broker, proxy, options.row_list, options.seconds)
                yield Session(
                    clients.rows, clients.turns, options.rounds, SETTLE_S,
                    header=lambda: {"peer": PYTHON_REQUIREMENT, "loadavg_after": os.getloadavg()},
                )  # fmt: skip
            finally:
                proxy.kill()


def table(report: Document) -> str:
    """Return both clients beside each other."""
    sides = {
        "ringmq": (RINGMQ, ""),
        PYTHON_REQUIREMENT: (PEER, ""),
        "us": (RINGMQ, CPU),
        "us of the other": (PEER, CPU),
    }
    return sides_table(report, sides)


BENCH = Command(
    "python -m tests.proxy.receive_bench", __doc__, "build/proxy-bench", _opened, table, ROWS, files=("bench.json",),
    rounds=5, options=_options, quick={"rounds": 1, "seconds": 0.5, "messages": 20_000}, lists_goals=False,
    needed_bytes=lambda options: 2 * BODY_BYTES * options.messages, conditions=(
        "one process per client, 1 KiB, {rounds} interleaved round(s) of {seconds} s,\n"
        "ASYNC_FLUSH; median +- half of the spread; us: processor time of the client for a message"
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(BENCH.main())
