"""`make bench-versions OLD=CHECKOUT`: this checkout's broker beside an older one's, by alternating rounds.

Each round runs old, old once more, and new, in an order that turns from round to round. The ratio new / old is the
result of a row. The ratio old / old in the same rounds is its tolerance. Loader and rows are this checkout's for all
three, so only the broker differs. A row counts only if everything acknowledged was read back.

`--old . --engine epoll` compares the engines of this checkout: new runs on epoll, old on io_uring.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.rows import context_of
from ringmq.loadtest.measuring.command import Command, Options
from ringmq.loadtest.measuring.comparison import AGAIN, NEW, OLD, Comparison, compare
from ringmq.loadtest.measuring.documents import Document, runs_of
from ringmq.loadtest.measuring.rounds import Session
from ringmq.loadtest.measuring.tables import markdown_table
from ringmq.loadtest.versions.rows import ROWS, Broker, check_version, turns


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--old", type=Path, required=True, help="a checkout with its own .venv (make dev there)")
    parser.add_argument("--engine", choices=("io_uring", "epoll"), help="of the new broker alone (default: its own)")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds of rest before a run (%(default)s)")


def _check(options: Options) -> None:
    options.old_python = options.old.absolute() / ".venv" / "bin" / "python"
    if not options.old_python.exists():
        raise ValueError(f"--old: {options.old_python} is not there: run `make dev` in that checkout")


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    check_version(options.old_python)
    old, engine = Broker(options.old_python), {"ringmqEngine": options.engine} if options.engine else {}
    brokers = {OLD: old, AGAIN: old, NEW: Broker(Path(sys.executable), engine)}
    with context_of(options) as context:
        steps = partial(turns, options.row_list, brokers, context)
        yield Session(options.row_list, steps, options.rounds, options.settle, context.circumstances)


def compared(report: Document) -> dict[str, Comparison | None]:
    """Return the comparison of each row."""
    found = {}
    for row in report["rows"]:
        sides = [runs_of(row, side) for side in (OLD, AGAIN, NEW)]
        rounds = [dict(zip((OLD, AGAIN, NEW), runs, strict=True)) for runs in zip(*sides, strict=False)]
        found[row["name"]] = compare(rounds, row["metric"])
    return found


def table(report: Document) -> str:
    """Return one line per row."""
    lines = []
    for row, (name, found) in zip(report["rows"], compared(report).items(), strict=True):
        if found is None:
            sides = [side for side in (OLD, AGAIN, NEW) if not row["systems"].get(side, {}).get("counted")]
            lines.append([name, "0", "-", "-", "-", "-", f"did not count: {', '.join(sides)}"])
            continue
        cpu = "-" if found.cpu is None else f"{found.cpu:.2f}"
        verdict = "SLOWER" if found.is_slower else "not slower"
        figures = [f"{found.ratio:.2f}", f"{found.spread:.2f}", f"{found.tolerance:.2f}"]
        lines.append([name, str(found.rounds), *figures, cpu, verdict])
    head = ["Row", "Rounds", "New / old", "Spread", "Old / old differs by", "CPU a message, new / old", "Verdict"]
    return markdown_table(head, lines)


def faults(report: Document) -> list[str]:
    """Return rows that are slower or did not count."""
    return [name for name, found in compared(report).items() if found is None or found.is_slower]


BENCH = Command(
    "make bench-versions", __doc__, "build/versions", _opened, table, ROWS, files=("versions.json",), rounds=5,
    seconds=4.0, options=_options, check=_check, separator=";", faults=faults,
)  # fmt: skip
main = BENCH.main
