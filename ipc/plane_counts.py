"""The counters of queues and pulls in the plane, many entries at a time.

An entry changes while it is read; each of its words is valid by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ringmq.ipc.plane import Plane
from ringmq.native import ffi

_QUEUE = struct.Struct("<I20xQ32xQ16xQ32x")
"""topic_id, log_end, max_offset, put_bytes of struct rmq_queue."""
_PULL = struct.Struct("<QQQ24x")
"""key, messages, bytes of struct rmq_pull_stats."""


def _check(layout: struct.Struct, name: str, *fields: str) -> None:
    members, zero = dict(ffi.typeof(name).fields), bytearray(ffi.sizeof(name))
    for number, field in enumerate(fields):
        zero[members[field].offset] = number + 1
    if layout.size != len(zero) or layout.unpack(zero) != tuple(range(1, len(fields) + 1)):
        raise ImportError(f"{name} has another layout than {layout.format}")


_check(_QUEUE, "struct rmq_queue", "topic_id", "log_end", "max_offset", "put_bytes")
_check(_PULL, "struct rmq_pull_stats", "key", "messages", "bytes")


class PlaneCounts:
    """The counters of one plane."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def queue_count(self) -> int:
        """Queues, live or not."""
        return int(self._plane.header.tables.queue_count)

    def queues(self, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        """(topic id, messages, bytes) of these queues. Messages count since the topic was made, bytes since the start.
        Messages that the start has yet to dispatch count as there."""
        rows = _QUEUE.iter_unpack(ffi.buffer(self._plane.queue(first), count * _QUEUE.size))
        return ((topic_id, max(log_end, end), size) for topic_id, log_end, end, size in rows)

    def pull_tables(self) -> list[tuple[int, int]]:
        """(port, entries) of each worker that counts what groups take."""
        ports = self._plane.header.ports
        return [
            (number, int(ports.port[number].pull_stats.count))
            for number in range(ports.count)
            if ports.port[number].pull_stats_at
        ]

    def pulls(self, port: int, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        """(group id << 32 | queue slot, messages, bytes) of these entries, since the start."""
        at = int(self._plane.header.ports.port[port].pull_stats_at) + first * _PULL.size
        return _PULL.iter_unpack(ffi.buffer(self._plane.struct.base + at, count * _PULL.size))
