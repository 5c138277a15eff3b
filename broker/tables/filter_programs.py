"""Compiled SQL92 expressions in the plane: where each stands, and which may give its place to another.

A program stands once, for all groups and pulls that name its expression. A program that a published subscription names
stays. Of the others the oldest gives way, so pulls with expressions of their own cannot drive out those of consumers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.protocols import FILTERS_MAX, PlaneProtocol
from ringmq.filters.compiler import compiling
from ringmq.filters.errors import FilterError
from ringmq.filters.program import Program

REFUSED_MAX = 128
"""Refused expressions that are remembered: their clients ask again every few seconds."""
REFUSED_CHARS_MAX = 16_384
RECENT_MAX = 8
"""Programs that are kept for messages that control reads itself."""
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """A slot of the plane's table, and the version of its program."""

    slot: int
    version: int


class FilterPrograms:
    """All programs that control has placed since its start."""

    def __init__(self, plane: PlaneProtocol) -> None:
        self._plane = plane
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._named: dict[Pair, str] = {}
        """Expressions of published subscriptions, by group id and topic id."""
        self._names: Counter[str] = Counter()
        self._refused: OrderedDict[str, str] = OrderedDict()
        self._recent: OrderedDict[str, Program] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def find(self, expression: str) -> Place | None:
        """The place of an expression that stands in the plane."""
        return self._places.get(expression)

    def may_be_placed(self, expression: str) -> bool:
        """True if the expression does not stand in the plane, and has not been refused."""
        return expression not in self._places and expression not in self._refused

    def name(self, pair: Pair, expression: str | None) -> None:
        """Say which expression a published subscription names; None = no expression."""
        before = self._named.pop(pair, None)
        if before is not None:
            self._names[before] -= 1
            if not self._names[before]:
                del self._names[before]
        if expression is not None:
            self._named[pair] = expression
            self._names[expression] += 1

    def placing(self, expression: str) -> Steps[Place]:
        """Compile and publish an expression, unless it stands. Raises FilterError."""
        place = self._places.get(expression)
        if place is not None:
            return place
        program = yield from self.compiling(expression)
        encoded = self._encode(expression, program)
        place = self._places.get(expression)  # another request may have placed it between two steps
        if place is None:
            slot = self._slot()
            place = Place(slot, self._plane.filter_put(slot, expression.encode(), encoded))
            self._places[expression] = place
        return place

    def compiling(self, expression: str) -> Steps[Program]:
        """The program of an expression. Raises FilterError, without work if it has been refused before."""
        if expression in self._refused:
            raise FilterError(self._refused[expression])
        program = self._recent.get(expression)
        if program is None:
            try:
                program = yield from compiling(expression)
            except FilterError as error:
                self._refuse(expression, error)
                raise
            self._recent[expression] = program
            if len(self._recent) > RECENT_MAX:
                self._recent.popitem(last=False)
        return program

    def _encode(self, expression: str, program: Program) -> bytes:
        try:
            return program.encode()
        except FilterError as error:
            self._refuse(expression, error)
            raise

    def _refuse(self, expression: str, error: FilterError) -> None:
        if len(expression) <= REFUSED_CHARS_MAX:
            self._refused[expression] = str(error)
        if len(self._refused) > REFUSED_MAX:
            self._refused.popitem(last=False)

    def _slot(self) -> int:
        if len(self._places) < FILTERS_MAX:
            return len(self._places)
        oldest = next((expression for expression in self._places if not self._names[expression]), None)
        if oldest is None:
            raise FilterError(f"subscriptions of consumers name {FILTERS_MAX} expressions, the most that are kept")
        return self._places.pop(oldest).slot
