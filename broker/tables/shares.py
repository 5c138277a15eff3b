"""Entries of a table by the connection and the host that they count for, so that neither takes more than its share."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from ringmq.broker.requests.request import Connection
from ringmq.remoting.networks import host_key

Key = TypeVar("Key")


class Shares:
    """Counts of entries. The caller knows the limits. Nothing is kept for who has no entry."""

    def __init__(self) -> None:
        self._of_connection: Counter[Connection] = Counter()
        self._of_host: Counter[str] = Counter()

    def of_connection(self, connection: Connection) -> int:
        """Entries of one connection."""
        return self._of_connection[connection]

    def of_host(self, connection: Connection) -> int:
        """Entries of all connections of the connection's host."""
        return self._of_host[host_key(connection.host)]

    def add(self, connection: Connection) -> None:
        """Count one entry more."""
        self._of_connection[connection] += 1
        self._of_host[host_key(connection.host)] += 1

    def remove(self, connection: Connection) -> None:
        """Count one entry less."""
        _remove_one(self._of_connection, connection)
        _remove_one(self._of_host, host_key(connection.host))


def is_same_host(one: Connection, other: Connection) -> bool:
    """True if both connections count for the same host."""
    return host_key(one.host) == host_key(other.host)


def _remove_one(counts: Counter[Key], key: Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
