"""The interfaces that the core needs, as protocols: the shared-memory tables and the store.

`ringmq.ipc.plane.Plane` is the real `PlaneProtocol`; tests have one in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ringmq.ipc.admission import Rule

TOPIC_LIVE = 0x1
TOPIC_SEND_COLD = 0x2
TOPIC_PULL_COLD = 0x4
TOPIC_RECOVERED = 0x10
"""Flag of a topic on disk and in no configuration: live for dispatch and write, unknown to clients."""
TOPIC_BATCH_QUEUE = 0x20
"""Flag of a topic for which dispatch writes BatchConsumeQueues."""
TOPIC_RESERVED = 0x40
"""Flag of a system topic or a compacted one: services publish no client's messages to it. Other reserved topics are
recognized by name.
"""

GROUP_LIVE = 0x1
GROUP_CONSUME_ENABLE = 0x2
GROUP_BROADCAST_ENABLE = 0x4
GROUP_HAS_MEMBERS = 0x8
GROUP_BROADCASTING = 0x10
GROUP_PULL_COLD = 0x20
GROUP_RETRY_QUEUES_SHIFT, GROUP_RETRY_QUEUES_MAX = 8, 255
GROUP_RETRY_TIMES_SHIFT, GROUP_RETRY_TIMES_MAX = 16, 65535
GROUP_SLOW_BROKER_SHIFT = 32
GROUP_BROKER_SHIFT = 48

SUBSCRIPTION_NONE = 0
SUBSCRIPTION_ALL = 1
SUBSCRIPTION_TAGS = 2
SUBSCRIPTION_COLD = 3
SUBSCRIPTION_FILTER = 4
"""Kind of a subscription with a compiled expression: its slot and version stand in the place of tags."""
FILTERS_MAX = 1024
TAGS_MAX = 56


Wants = Callable[[Mapping[str, str]], bool]


class PlaneProtocol(Protocol):
    """The methods of `ringmq.ipc.plane.Plane` that tables and offsets call."""

    header: Any
    watermarks: Any

    @property
    def readers(self) -> Sequence[Any]: ...
    def role(self, number: int) -> Any: ...

    def topic_find(self, name: str) -> int | None: ...
    def topic_add(self, name: str, config: int) -> int: ...
    def topic_set(self, topic_id: int, config: int) -> None: ...
    def topic(self, topic_id: int) -> Any: ...
    def queue_find(self, topic_id: int, queue_id: int) -> int | None: ...
    def queue_add(
        self, topic_id: int, queue_id: int, min_offset: int = 0, max_offset: int = 0, replay_from: int | None = None
    ) -> int: ...
    def queue(self, queue_slot: int) -> Any: ...
    def group_find(self, name: str) -> int | None: ...
    def group_add(self, name: str, config: int) -> int: ...
    def group(self, group_id: int) -> Any: ...
    def group_set(self, group_id: int, config: int) -> None: ...
    def subscription_set(
        self, group_id: int, topic_id: int, kind: int, sub_version: int, tag_hashes: list[int]
    ) -> None: ...
    def subscription_replace(self, old: tuple[int, int], new: tuple[int, int]) -> None: ...
    def filter_put(self, slot: int, expression: bytes, program: bytes) -> int: ...
    def offset_get(self, group_id: int, queue_slot: int) -> int: ...
    def pull_stats_next(self, group_id: int, queue_slot: int) -> int: ...
    def pull_stats_open(self, group_id: int, queue_slot: int) -> int: ...
    def popped(self, group_id: int, queue_slot: int) -> int: ...
    def offset_put(self, group_id: int, queue_slot: int, offset: int) -> None: ...
    def offset_drain(self) -> int: ...
    def offset_keys(self, first: int, count_max: int | None = None) -> list[tuple[int, int]]: ...
    def confirm_offset(self) -> int: ...
    def admission_rules(self) -> tuple[Rule, ...]: ...
    def admission_publish(self, rules: tuple[Rule, ...]) -> None: ...
    def ha_command_put(self, json: bytes) -> bool: ...
    def hold(self, role: int, duration_s: int) -> None: ...


class KeyQuery(Struct, frozen=True):
    """The result of a lookup of a key in the index. `messages`: stored records, oldest first."""

    messages: list[bytes]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class BatchPull(Struct, frozen=True):
    """A pull of a BatchCQ topic. `status`: stock's name of the result (FOUND, NO_MESSAGE_IN_QUEUE, ...)."""

    status: str
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""


class LogState(Struct, frozen=True):
    """Positions in the log, and free space on its disk."""

    min_offset: int
    append_offset: int
    flushed_offset: int
    dispatched_offset: int
    confirm_offset: int
    commit_log_path: str
    disk_total_bytes: int
    disk_free_bytes: int
    """Free bytes, including those that only the superuser may use, as stock counts them."""
    disk_ratio: float
    """Share of the disk in use, 0..1, by the rule of retention."""


class StoreProtocol(Protocol):
    """Reads of the store for cold requests. Every one is bounded by the confirm offset."""

    def view(self, commit_log_offset: int) -> bytes | None:
        """The stored record that begins at `commit_log_offset`. None if none begins there."""

    def raw_record(self, commit_log_offset: int) -> memoryview | None:
        """Like `view`, without a copy and unchecked: bytes of the mapped log, as many as the first four give."""

    def log_file(self, commit_log_offset: int) -> tuple[int, Any] | None:
        """(first offset, mapping) of the log file that holds this offset."""

    def log_bytes(self, offset: int, length: int) -> bytes:
        """A copy of at most `length` bytes of the log from `offset` on, up to the end of their file. Empty if none is
        there. The caller limits it to the log's end."""

    def log_crc(self, offset: int, length: int) -> int | None:
        """CRC-32 of a range of the log. None if a byte of it is missing."""

    def query_by_key(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> KeyQuery:
        """The newest `max_num` records under a key, stored in [begin_ms, end_ms]."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        """First queue offset stored at or after the time. `upper`: the last at or before it."""

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time in ms of one message of a queue. -1 if it is missing."""

    def batch_pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_num: int,
        tag_codes: list[int],
        wants: Wants | None = None,
    ) -> BatchPull:
        """A pull from a BatchConsumeQueue. No tag codes = all messages. `wants`: a condition over the properties."""

    def queue_units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Consume-queue units (commit-log offset, size, tags code) from `queue_offset` on."""

    def topics_on_disk(self) -> set[str]:
        """Every topic that has queues on disk."""

    def delete_topic(self, topic: str) -> None:
        """Remove the consume queues of a topic that was deleted."""

    def refresh(self) -> None:
        """Unmap files that retention has deleted. Called several times a minute."""

    def log_state(self) -> LogState:
        """Positions and free space."""

    def earliest_store_time(self) -> int:
        """Store time of the first record in the log. -1 if it is empty."""
