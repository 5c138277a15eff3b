"""Items of many connections, taken from hosts in turn. One client cannot make the items of others wait for all of its
own.

The host whose turn it is gives the first item of its next connection. So an item waits for at most one item of each
other host, for each item before it from its own connection, and for one of each other connection of its host in
between. The items of one connection keep their order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ringmq.broker.requests.request import Connection
from ringmq.remoting.networks import host_key

T = TypeVar("T")


class FairQueue(Generic[T]):
    """The caller limits its length. Nothing is kept of connections without items."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, OrderedDict[Connection, deque[T]]] = OrderedDict()
        """Hosts and their connections, each in the order of their turns."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def of_connection(self, connection: Connection) -> int:
        """Number of items of one connection."""
        return len(self._hosts.get(host_key(connection.host), OrderedDict()).get(connection, ()))

    def of_host(self, connection: Connection) -> int:
        """Number of items of all connections of the connection's host."""
        return _length(self._hosts.get(host_key(connection.host), OrderedDict()))

    def add(self, connection: Connection, item: T) -> None:
        """Add an item behind those of its connection."""
        connections = self._hosts.setdefault(host_key(connection.host), OrderedDict())
        connections.setdefault(connection, deque()).append(item)
        self._length += 1

    def take(self) -> T | None:
        """Remove the next item. None if there is none."""
        if not self._hosts:
            return None
        host, connections = self._hosts.popitem(last=False)
        connection, items = connections.popitem(last=False)
        item = items.popleft()
        if items:
            connections[connection] = items
        if connections:
            self._hosts[host] = connections
        self._length -= 1
        return item

    def push_out(self, connection: Connection, *, of_own_host: bool) -> T | None:
        """Remove the last item of another connection, so that one of `connection` may take its place: of the host with
        the most items, or `of_own_host`, the connection with the most. None if neither has two more than the host or
        the connection itself: then nothing would become fairer."""
        own = self._hosts.get(host_key(connection.host), OrderedDict())
        most = own if of_own_host else max(self._hosts.values(), key=_length, default=own)
        if _length(most) < _length(own) + 2:
            most = own
        longest = max(most, key=lambda one: len(most[one]), default=connection)
        if most is own and self.of_connection(longest) < self.of_connection(connection) + 2:
            return None
        item = most[longest].pop()
        if not most[longest]:
            del most[longest]
        self._length -= 1
        return item

    def take_all(self, is_taken: Callable[[T], bool] = lambda item: True) -> list[T]:
        """Remove all items, or those that `is_taken` names."""
        taken, kept = list[T](), list[tuple[Connection, T]]()
        for connections in self._hosts.values():
            for connection, items in connections.items():
                for item in items:
                    if is_taken(item):
                        taken.append(item)
                    else:
                        kept.append((connection, item))
        if taken:
            self._hosts.clear()
            self._length = 0
            for connection, item in kept:
                self.add(connection, item)
        return taken


def _length(connections: OrderedDict[Connection, deque[T]]) -> int:
    return sum(map(len, connections.values()))
