"""Transition tables of state machines. A table gives each pair of a state and a type of event its `Cell`.

Tests walk the tables cell by cell. docs/state-machines.md is made from them.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct


class ImpossibleEventError(KeyError):
    """An event that cannot come in this state."""


class Kind(Enum):
    """Kind of a cell."""

    ACTS = "acts"
    IGNORED = "ignored"
    IMPOSSIBLE = "impossible"


class Cell(Struct, frozen=True):
    """An event in a state. `act(core, event, now_ms)` returns the effects."""

    act: Callable[[Any, Any, int], Sequence[Any]]
    text: str
    """Words for the action, or the reason why there is none."""
    to: tuple[Enum, ...] = ()
    """Other states that the action may lead to."""
    kind: Kind = Kind.ACTS


Table = Mapping[tuple[Enum, type], Cell]


def ignored(reason: str) -> Cell:
    """The cell of an event that may come and changes nothing."""

    def nothing(core: object, event: object, now_ms: int) -> Sequence[Any]:
        return []

    return Cell(nothing, reason, kind=Kind.IGNORED)


def impossible(reason: str) -> Cell:
    """The cell of an event that cannot come. It raises ImpossibleEventError."""

    def refuse(core: object, event: object, now_ms: int) -> Sequence[Any]:
        raise ImpossibleEventError(f"{event} is impossible, because {reason}")

    return Cell(refuse, reason, kind=Kind.IMPOSSIBLE)


def transitions(*rows: tuple[type | tuple[type, ...], Enum | tuple[Enum, ...], Cell]) -> Table:
    """The table of these rows: events, states, and the cell of each pair of them. Raises ValueError for a pair that
    has two cells."""
    table: dict[tuple[Enum, type], Cell] = {}
    for events, states, cell in rows:
        for event in events if isinstance(events, tuple) else (events,):
            for state in states if isinstance(states, tuple) else (states,):
                if (state, event) in table:
                    raise ValueError(f"{event.__name__} in {state} has two cells")
                table[state, event] = cell
    return table
