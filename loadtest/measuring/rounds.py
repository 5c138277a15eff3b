"""Rounds of turns: each turn measures one row on one side. A row that fails is recorded, and the rest continues."""

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ringmq.loadtest.load.beforehand import Say
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import Goal, Measurement, failed
from ringmq.loadtest.measuring.tables import number_text

T = TypeVar("T")
ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class Row:
    """One line of a bench. `metric` is its figure in tables and plots."""

    name: str
    title: str
    metric: str
    unit: str
    goals: tuple[Goal, ...]
    place: Mapping[str, object] = field(default_factory=dict, kw_only=True)
    """Coordinates of a row that is a point of a scenario or a cell of a matrix."""
    shown: tuple[str, ...] = field(default=(), kw_only=True)
    """Metrics that the line of progress has beside the row's figure."""


class Named(Protocol):
    """A row, or a scenario of rows."""

    @property
    def name(self) -> str:
        """The name on the command line."""


AnyNamed = TypeVar("AnyNamed", bound=Named)


@dataclass(frozen=True)
class Turn:
    """One measurement of a row. `measure` returns None if the row has nothing more to measure."""

    row: Row
    side: str
    measure: Callable[[], Measurement | None]


Runs = dict[str, dict[str, list[Measurement]]]
"""Runs by row and side."""
Turns = Callable[[int], Generator[Turn, None, None]]
"""The turns of a round by its number, from 0 on."""


@dataclass
class Session:
    """The opened parts of one run of a bench. `header`: the circumstances, asked for after the rounds."""

    rows: Sequence[Row]
    turns: Turns
    rounds: int = 1
    settle_s: float | None = None
    """Seconds of rest before each turn, behind a sync of the disk. None: neither."""
    header: Callable[[], Document] = dict
    runs: Runs = field(default_factory=dict)


def run_rounds(session: Session, say: Say) -> Runs:
    """Run all rounds of a session. The runs are in the session at any time."""
    for number in range(session.rounds):
        say(f"round {number + 1} of {session.rounds}")
        with closing(session.turns(number)) as turns:
            for turn in turns:
                if session.settle_s is not None:
                    os.sync()
                    time.sleep(session.settle_s)
                if (measured := attempt(turn.measure)) is not None:
                    session.runs.setdefault(turn.row.name, {}).setdefault(turn.side, []).append(measured)
                    say(progress(turn.row, turn.side, measured))
    return session.runs


def attempt(measure: Callable[[], T]) -> T | Measurement:
    """Measure. An error becomes a run that does not count."""
    try:
        return measure()
    except Exception as error:  # of Spark, stock and the native tools, which have no common base
        return failed(f"{type(error).__name__}: {str(error)[:ERROR_CHARACTERS]}")


def progress(row: Row, side: str, measured: Measurement) -> str:
    """Return the line about a run."""
    names = [name for name in (row.metric, *row.shown) if name in measured.values]
    text = ", ".join(f"{number_text(measured.values[name])} {name}" for name in names)
    mark = "" if measured.ok else "  (does not count)"
    return f"  {side:9} {row.name:20} {text or '-':>28}{mark}  {measured.note}"


def rotated(sides: Sequence[T], number: int) -> list[T]:
    """Return the sides in the order of a round: each round begins with another one."""
    first = number % len(sides)
    return [*sides[first:], *sides[:first]]


def named(rows: Sequence[AnyNamed], names: Sequence[str], option: str = "--rows") -> list[AnyNamed]:
    """Return the named rows in the table's order, all for no name. Raises ValueError for an unknown name."""
    known = [row.name for row in rows]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{option}: {', '.join(unknown)} unknown; there are {', '.join(known)}")
    return [row for row in rows if not names or row.name in names]
