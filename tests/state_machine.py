"""A state machine of the product: its table, what the test of it has to show, and the lines that draw it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ringmq.ipc.transitions import Cell, Kind, Table

LINE_MAX = 120
PLACES_CHARS_MAX = 80
"""Length of a list of states that is always written as it is."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One table, with all states and events that it has to answer."""

    title: str
    intro: str
    states: type[Enum]
    events: tuple[type, ...]
    table: Table
    start: Enum

    def arrows(self) -> set[tuple[Enum, type, Enum]]:
        """The changes of state that the table allows."""
        return {(state, event, then) for (state, event), cell in self.table.items() for then in cell.to}

    def cells(self, kind: Kind) -> list[tuple[Enum, type]]:
        """The pairs of a state and an event that have cells of this kind."""
        return [pair for pair, cell in self.table.items() if cell.kind is kind]

    def allows(self, state: Enum, event: object, then: Enum) -> bool:
        """True if the event may lead from the one state to the other one."""
        return state is then or then in self.table[state, type(event)].to

    def check(self) -> None:
        """Each pair of a state and an event has one cell, and no cell leads where it comes from."""
        assert set(self.table) == {(state, event) for state in self.states for event in self.events}
        assert not [(state, event) for state, event, then in self.arrows() if state is then]

    def check_walked(self, walked: Iterable[tuple[Enum, type, Enum]]) -> None:
        """The cases of a test run each cell that acts and each change of state, and make no other change."""
        seen = set(walked)
        assert {(state, event) for state, event, _ in seen} >= set(self.cells(Kind.ACTS)), "a cell without a case"
        changes = {(state, event, then) for state, event, then in seen if state is not then}
        assert changes == self.arrows(), changes ^ self.arrows()


def wrapped(text: str, indent: str = "") -> list[str]:
    """Lines of a paragraph, or of an item with this indent."""
    return textwrap.wrap(text, LINE_MAX, subsequent_indent=indent, break_on_hyphens=False)


def word(name: str) -> str:
    """The name of a state on the page."""
    return name.lower().replace("_", " ")


def places(machine: Machine, names: list[str]) -> str:
    """The states of a cell. Of many states, those without it are the shorter list."""
    listed, rest = ", ".join(names), [word(state.name) for state in machine.states if word(state.name) not in names]
    if not rest:
        return "every state"
    without = f"every state but {', '.join(rest)}"
    return without if len(without) < len(listed) > PLACES_CHARS_MAX else listed


def drawing(machine: Machine) -> Iterable[str]:
    """The states and arrows, in Mermaid's words."""
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> {machine.start.name}")
    for state in machine.states:
        yield f"    {state.name}: {word(state.name)}"
    labels: dict[tuple[Enum, Enum], list[str]] = {}
    for (state, event), cell in machine.table.items():
        for then in cell.to:
            labels.setdefault((state, then), []).append(event.__name__)
    for state in machine.states:
        for then in machine.states:
            if names := labels.get((state, then)):
                yield f"    {state.name} --> {then.name}: {', '.join(names)}"
    yield "```"


def actions(machine: Machine) -> Iterable[str]:
    """The cells that act: one row for all states of an event that share a cell."""
    yield from ("| Event | In | Action | May lead to |", "|---|---|---|---|")
    for event in machine.events:
        cells: dict[Cell, list[str]] = {}
        for state in machine.states:
            if (cell := machine.table[state, event]).kind is Kind.ACTS:
                cells.setdefault(cell, []).append(word(state.name))
        for cell, states in cells.items():
            then = ", ".join(word(state.name) for state in cell.to) or "stays"
            yield f"| `{event.__name__}` | {places(machine, states)} | {cell.text} | {then} |"


def others(machine: Machine) -> Iterable[str]:
    """The cells that do not act, one paragraph for each reason."""
    events: dict[str, dict[str, list[str]]] = {}
    for event in machine.events:
        states: dict[str, list[str]] = {}
        for state in machine.states:
            if (cell := machine.table[state, event]).kind is not Kind.ACTS:
                reason = f"{cell.kind.value}, because {cell.text}"
                states.setdefault(reason, []).append(word(state.name))
        for reason, names in states.items():
            events.setdefault(reason, {}).setdefault(places(machine, names), []).append(f"`{event.__name__}`")
    for reason, found in events.items():
        text = "; ".join(f"{', '.join(names)} in {where}" for where, names in found.items())
        yield from wrapped(f"- {reason}: {text}", "  ")
