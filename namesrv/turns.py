"""The order of requests: hosts take turns, and so do the connections of a host, one step at a time.

A turn of the event loop spends at most TURN_S on requests before it polls the sockets again. Large registrations are
read in slices. Few are in progress at once, one per host, so their memory stays bounded.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

TURN_S = 0.003
"""The time for requests in one turn. A new connection waits four turns for its first answer."""
LARGE_MAX = 4


class Serves(Protocol):
    """A connection as `Turns` sees it."""

    host: str
    is_queued: bool
    waits_for_grant: bool

    @property
    def is_open(self) -> bool: ...

    def step(self) -> bool:
        """Do one bounded piece of work. True if there is more to do at once."""


class Turns:
    """Schedules connections. `call_soon` runs a function at the next turn of the loop, `clock` returns seconds."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._ready: OrderedDict[str, deque[Serves]] = OrderedDict()
        self._is_scheduled = False
        self._large: dict[str, Serves] = {}
        self._large_waiting: OrderedDict[str, deque[Serves]] = OrderedDict()

    def add(self, connection: Serves) -> None:
        """Queue a connection that has work."""
        if connection.is_queued:
            return
        connection.is_queued = True
        self._ready.setdefault(connection.host, deque()).append(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.run)

    def run(self) -> None:
        """Serve until nothing is ready or the turn's time is over."""
        self._is_scheduled = False
        end_s = self._clock() + TURN_S
        while self._ready:
            host, connections = next(iter(self._ready.items()))
            connection = connections.popleft()
            connection.is_queued = False
            if connections:
                self._ready.move_to_end(host)
            else:
                del self._ready[host]
            if connection.step():
                self.add(connection)
            if self._clock() >= end_s:
                break
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.run)

    def ask_for_grant(self, connection: Serves) -> None:
        """Ask for the start of a large request. `waits_for_grant` stays set until the grant."""
        connection.waits_for_grant = True
        self._large_waiting.setdefault(connection.host, deque()).append(connection)
        self._grant()

    def give_back(self, connection: Serves) -> None:
        """Release the grant of a connection whose large request is done, or that is gone."""
        if self._large.get(connection.host) is connection:
            del self._large[connection.host]
            self._grant()

    def _grant(self) -> None:
        for host in list(self._large_waiting):
            if len(self._large) >= LARGE_MAX:
                return
            if host in self._large:
                continue
            waiting = self._large_waiting[host]
            while waiting and host not in self._large:
                connection = waiting.popleft()
                if connection.is_open:
                    connection.waits_for_grant = False
                    self._large[host] = connection
                    self.add(connection)
            if waiting:
                self._large_waiting.move_to_end(host)
            else:
                del self._large_waiting[host]
