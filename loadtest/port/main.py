"""`make bench-port`: small records a second that a service republishes through its port, on a broker's default CPUs.

A topic is filled. Then a worker of the table (`port/worker.py`) republishes it for some seconds, again from the
beginning after its end. A round counts if no copy was refused and the target holds every copy. In the second table
clients send meanwhile.
"""

import argparse
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

from ringmq.loadtest.load.tools import Tools, build_tools
from ringmq.loadtest.measuring.command import Command, Options
from ringmq.loadtest.measuring.documents import Document, runs_of
from ringmq.loadtest.measuring.measurement import RINGMQ
from ringmq.loadtest.measuring.rounds import Session, Turn
from ringmq.loadtest.measuring.tables import rounds_tables
from ringmq.loadtest.port import pressure, rates

COLUMNS = {rates.ROW.name: rates.COLUMNS, pressure.ROW.name: pressure.COLUMNS}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=500_000, help="of the source")
    parser.add_argument("--body", type=int, default=100, help="bytes")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH")
    parser.add_argument("--profile", action="store_true", help="where the worker's time goes; it is slower meanwhile")
    parser.add_argument("--pressure-rounds", type=int, default=5, help="of the second table: beside clients")
    parser.add_argument("--pressure-seconds", type=float, default=5.0)
    parser.add_argument("--pressure-records", type=int, default=pressure.RECORDS)


def turns(options: Options, tools: Tools, number: int) -> Generator[Turn, None, None]:
    """Both rows, each in as many rounds as it has."""
    folder = options.folder.resolve()
    if number < options.rounds:
        shape = {"records": options.records, "body": options.body, "profile": options.profile}
        step = partial(rates.measure, folder, tools, seconds=options.seconds, sync=options.sync, **shape)
        yield Turn(rates.ROW, RINGMQ, step)
    if number < options.pressure_rounds:
        size = {"seconds": options.pressure_seconds, "records": options.pressure_records}
        yield Turn(
            pressure.ROW, RINGMQ, partial(pressure.measure, folder, tools, number=number, sync=options.sync, **size)
        )


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    steps = partial(turns, options, build_tools())
    yield Session([rates.ROW, pressure.ROW], steps, max(options.rounds, options.pressure_rounds))


def tables(report: Document) -> str:
    """Return a table of rounds for each row, and profiles."""
    profiles = [run.raw["profile"] for row in report["rows"] for run in runs_of(row) if run.raw.get("profile")]
    return "\n".join([rounds_tables(report, COLUMNS), *profiles])


def faults(report: Document) -> list[str]:
    """Return rounds that do not count."""
    return [f"{row['name']}: {run.note}" for row in report["rows"] for run in runs_of(row) if not run.ok]


BENCH = Command(
    "python -m ringmq.loadtest.port", __doc__, "build/port", _opened, tables, seconds=10.0, options=_options,
    needed_bytes=lambda options: options.records * options.body if options.rounds else 0, faults=faults,
)  # fmt: skip
main = BENCH.main
