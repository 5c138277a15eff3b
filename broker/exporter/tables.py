"""The plane's tables as numpy arrays over the shared memory itself. A read of a column copies nothing but that column.

Words change during a read; each is valid by itself. The count of entries is read before the entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_WORDS = {"uint64_t": "<u8", "int64_t": "<i8", "uint32_t": "<u4", "int32_t": "<i4", "uint16_t": "<u2"}


def struct_dtype(name: str, *fields: str) -> np.dtype[Any]:
    """Some fields of a C struct, at their offsets."""
    kind = ffi.typeof(name)
    members = dict(kind.fields)
    formats: list[Any] = []
    for field in fields:
        of = members[field].type
        if of.kind == "array" and of.item.cname == "char":
            formats.append(f"S{of.length}")
        elif of.kind == "array":
            formats.append((_WORDS[of.item.cname], of.length))
        else:
            formats.append(_WORDS[of.cname])
    offsets = [members[field].offset for field in fields]
    layout: Any = {"names": fields, "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(kind)}
    made: np.dtype[Any] = np.dtype(layout)
    return made


class Tables:
    """Views of one plane. Every property reads it again."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        header = plane.header
        base = ffi.buffer(plane.struct.base, header.plane_bytes)

        def table(name: str, at: int, count: int, *fields: str) -> NDArray[Any]:
            return np.frombuffer(base, struct_dtype(name, *fields), count, at)

        self._topics = table(
            "struct rmq_topic",
            header.tables.topics_at,
            header.tables.topic_capacity + 1,
            "config",
            "name_length",
            "name",
        )
        self._groups = table(
            "struct rmq_group",
            header.tables.groups_at,
            header.tables.group_capacity + 1,
            "config",
            "name_length",
            "name",
        )
        self._queues = table(
            "struct rmq_queue", header.tables.queues_at, header.tables.queue_capacity,
            "topic_id", "queue_id", "max_offset", "min_offset", "put_bytes", "sizes", "huge_records",
        )  # fmt: skip
        self._offsets = table(
            "struct rmq_consumer_offset",
            header.tables.offsets_at,
            header.tables.offset_capacity,
            "group_id",
            "queue_slot",
            "offset",
        )
        self._subscriptions = table(
            "struct rmq_subscription",
            header.tables.subscriptions_at,
            header.tables.subscription_capacity,
            "group_id",
            "topic_id",
        )
        fields = ("key", "messages", "bytes", "next_offset", "time_mono_ms", "open")
        readers = [reader.port for reader in plane.readers]
        others = [number for number in range(header.ports.count) if number not in readers]
        self._readers = len(readers)
        self._rows = [row for number in readers + others if (row := header.ports.port[number]).pull_stats_at]
        self._pull_stats = [
            table("struct rmq_pull_stats", row.pull_stats_at, lib.RMQ_PULL_STATS_CAPACITY, *fields)
            for row in self._rows
        ]

    @property
    def topics(self) -> NDArray[Any]:
        """The topics. Index = topic id; 0 is unused."""
        return self._topics[: int(self._plane.header.tables.topic_count) + 1]

    @property
    def groups(self) -> NDArray[Any]:
        """The groups. Index = group id; 0 is unused."""
        return self._groups[: int(self._plane.header.tables.group_count) + 1]

    @property
    def queues(self) -> NDArray[Any]:
        """The queues. Index = queue slot."""
        return self._queues[: int(self._plane.header.tables.queue_count)]

    @property
    def offsets(self) -> NDArray[Any]:
        """The consumer offsets. An entry never moves."""
        return self._offsets[: int(self._plane.header.tables.offset_count)]

    @property
    def subscriptions(self) -> NDArray[Any]:
        """(group, topic) pairs that were ever subscribed."""
        return self._subscriptions[: int(self._plane.header.tables.subscription_count)]

    def pull_stats(self) -> tuple[NDArray[Any], int]:
        """(entries, number of those of pulls). The entries of readers are in front, then those of workers that give
        single messages. They are a copy if there are several ports. A (group, queue) pair may occur twice."""
        parts = [table[: int(row.pull_stats.count)] for table, row in zip(self._pull_stats, self._rows, strict=True)]
        entries = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return entries, sum(len(part) for part in parts[: self._readers])

    @property
    def pull_stats_left_out(self) -> int:
        """Pulls and pops whose pair of a group and a queue has found no place."""
        return sum(int(row.pull_stats.overflow) for row in self._rows)

    def topic_id(self, name: str) -> int | None:
        """The id of a topic, None if there is none of that name."""
        return self._plane.topic_find(name)

    def group_id(self, name: str) -> int | None:
        """The id of a group, None if there is none of that name."""
        return self._plane.group_find(name)


def live_topics(topics: NDArray[Any]) -> Bools:
    """For each id, True if it is a topic now."""
    live: Bools = ((topics["config"] >> np.uint64(40)) & np.uint64(lib.RMQ_TOPIC_LIVE)) != 0
    return live


def live_groups(groups: NDArray[Any]) -> Bools:
    """For each id, True if it is a group now."""
    live: Bools = (groups["config"] & np.uint64(lib.RMQ_GROUP_LIVE)) != 0
    return live
