"""Compiled SQL92 expressions in the plane: where each stands, and which may give its place to another.

A program stands once, for all groups and pulls that name its expression. A program that a published subscription names
stays. Of the others the oldest gives way, so pulls with expressions of their own cannot drive out those of consumers.

A place counts for the connection, and for the host, whose pull had the program placed. A connection or host that has
its share gets a further place only in exchange for its own oldest one that no subscription names.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.requests.request import Connection
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.protocols import FILTERS_MAX, PlaneProtocol
from ringmq.broker.tables.shares import Shares, is_same_host
from ringmq.filters.errors import FilterError
from ringmq.filters.program import Program

CONNECTION_FILTERS_MAX = FILTERS_MAX // 4
HOST_FILTERS_MAX = FILTERS_MAX // 2
REFUSED_MAX = 128
"""Refused expressions that are remembered: their clients ask again every few seconds."""
REFUSED_CHARS_MAX = 16_384
RECENT_MAX = 8
"""Programs that are kept for messages that control reads itself."""
Pair = tuple[int, int]


class Place(Struct, frozen=True):
    """A slot of the plane's table, and the version of its program."""

    slot: int
    version: int
    connection: Connection
    """The connection whose pull had the program placed."""


def load_compiler() -> None:
    """Import the compiler. Its parser takes 70 ms of CPU time to build, too much for a client's request.

    A broker builds it when it starts with enablePropertyFilter, or when request 25 turns that on. In the first case
    the image of the workers has it.
    """
    from ringmq.filters import compiler  # noqa: F401


class FilterPrograms:
    """All programs that control has placed since its start."""

    def __init__(self, plane: PlaneProtocol) -> None:
        self._plane = plane
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._shares = Shares()
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

    def placing(self, expression: str, connection: Connection) -> Steps[Place]:
        """Compile and publish an expression for a connection's pull, unless it stands. Raises FilterError."""
        place = self._places.get(expression)
        if place is not None:
            return place
        program = yield from self.compiling(expression)
        encoded = self._encode(expression, program)
        place = self._places.get(expression)  # another request may have placed it between two steps
        if place is None:
            slot = self._slot(connection)
            place = Place(slot, self._plane.filter_put(slot, expression.encode(), encoded), connection)
            self._places[expression] = place
            self._shares.add(connection)
        return place

    def compiling(self, expression: str) -> Steps[Program]:
        """The program of an expression. Raises FilterError, without work if it has been refused before."""
        if expression in self._refused:
            raise FilterError(self._refused[expression])
        program = self._recent.get(expression)
        if program is None:
            from ringmq.filters.compiler import compiling  # here: `load_compiler` says why

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

    def _slot(self, connection: Connection) -> int:
        if self._shares.of_connection(connection) >= CONNECTION_FILTERS_MAX:
            owner = f"of connection {connection.address}"
            return self._give_way(lambda place: place.connection == connection, owner, CONNECTION_FILTERS_MAX)
        if self._shares.of_host(connection) >= HOST_FILTERS_MAX:
            owner = f"of host {connection.host}"
            return self._give_way(lambda place: is_same_host(place.connection, connection), owner, HOST_FILTERS_MAX)
        if len(self._places) < FILTERS_MAX:
            return len(self._places)
        return self._give_way(lambda place: True, "of all consumers", FILTERS_MAX)

    def _give_way(self, is_owned: Callable[[Place], bool], owner: str, limit: int) -> int:
        """Remove the oldest program of an owner that no subscription names. Returns its slot. Raises FilterError."""
        oldest = next((text for text, place in self._places.items() if not self._names[text] and is_owned(place)), None)
        if oldest is None:
            raise FilterError(f"subscriptions {owner} name {limit} expressions, the most that are kept for them")
        place = self._places.pop(oldest)
        self._shares.remove(place.connection)
        return place.slot
