"""Publication of control's decisions as entries of the shared-memory plane, which the hot paths read.

A topic is published in an order that suits concurrent readers: entry without LIVE, its queues, then LIVE by one store.
A deletion is one store of 0. Ids are never reused. A topic that is made again gets a new entry and new queue slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ringmq.broker.tables import protocols
from ringmq.broker.tables.filter_programs import FilterPrograms
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.subscription import SubscriptionData

QueueKey = tuple[str, int]
QueueRange = tuple[int, int, int]
"""Minimum, maximum, and the log offset below which no record gets a unit."""
QUEUES_MAX = 65535
"""Queues of one topic that fit into the plane's config word."""
QUEUE_ID_END = 1 << 31
"""Queue ids are smaller, because they are int32 in records. Bodies of other brokers and files may hold any number."""
_RECOVERED = protocols.TOPIC_LIVE | protocols.TOPIC_SEND_COLD | protocols.TOPIC_PULL_COLD | protocols.TOPIC_RECOVERED


class QueueState(Struct, frozen=True):
    """A queue as dispatch has published it. `max_offset` is the next offset; no message at or above it is readable."""

    min_offset: int
    max_offset: int
    last_store_time_ms: int


def topic_word(perm: int, read_queues: int, write_queues: int, flags: int) -> int:
    """The one-word form of a topic's settings (struct rmq_topic.config)."""
    return perm & 0xFF | (read_queues & 0xFFFF) << 8 | (write_queues & 0xFFFF) << 24 | flags << 40


class PlaneTables:
    """Topics, groups, subscriptions and queue states by name."""

    def __init__(self, plane: PlaneProtocol) -> None:
        self.plane = plane
        self.filters = FilterPrograms(plane)
        self._remembered: dict[str, dict[int, QueueRange]] = {}
        self._batch_topics: frozenset[str] = frozenset()
        self._withdrawn: dict[tuple[int, int], None] = {}
        """(group id, topic id) of entries of the subscription table that are NONE. The oldest is reused first."""

    # ---- topics ----

    def publish_topic(self, config: TopicConfig, flags: int) -> None:
        """Make or change a topic. Raises PlaneFullError if a table is full; then nothing new is live."""
        word = topic_word(config.perm, config.read_queue_nums, config.write_queue_nums, flags | protocols.TOPIC_LIVE)
        self._publish(config.topic_name, set(range(config.queue_count)), word)

    def remember(self, ranges: Mapping[QueueKey, QueueRange], batch_topics: Iterable[str] = ()) -> None:
        """Remember the queues that recovery has found, and the topics with BatchConsumeQueues. `publish_topic` uses
        them."""
        for (topic, queue_id), bounds in ranges.items():
            self._remembered.setdefault(topic, {})[queue_id] = bounds
        self._batch_topics = self._batch_topics.union(batch_topics)

    def publish_remembered(self) -> None:
        """Publish topics that are on disk and in no configuration.

        Their records are still dispatched, and their offsets go on. Requests of clients for them are cold, and control
        does not know the topic.
        """
        for topic in sorted(self._remembered):
            batch = protocols.TOPIC_BATCH_QUEUE * (topic in self._batch_topics)
            self._publish(topic, set(), topic_word(0, 0, 0, _RECOVERED | batch))

    def publish_queue(self, topic: str, queue_id: int, *, batch: bool, replay_from: int | None = None) -> None:
        """Make the entry of a queue whose records have come before the settings of its topic. Raises PlaneFullError.

        Records below `replay_from` get no unit. None = all records that are not dispatched yet get one.
        """
        live = self.plane.topic_find(topic)
        topic_id = self.plane.topic_add(topic, 0) if live is None else live
        if self.plane.queue_find(topic_id, queue_id) is None:
            self.plane.queue_add(topic_id, queue_id, 0, 0, replay_from)
        if live is None:
            flags = _RECOVERED | protocols.TOPIC_BATCH_QUEUE * batch
            self.plane.topic_set(topic_id, topic_word(0, 0, 0, flags))

    def withdraw_topic(self, topic: str) -> None:
        """Delete the topic: no later frame finds it."""
        topic_id = self.plane.topic_find(topic)
        if topic_id is not None:
            self.plane.topic_set(topic_id, 0)

    def _publish(self, topic: str, queue_ids: set[int], word: int) -> None:
        topic_id = self.plane.topic_find(topic)
        remembered = self._remembered.get(topic, {})
        wanted = self._missing_queues(topic, queue_ids)
        self._check_room(f"topic {topic}", "queue", len(wanted))
        if topic_id is None:
            topic_id = self.plane.topic_add(topic, 0)
        for queue_id in wanted:
            self.plane.queue_add(topic_id, queue_id, *remembered.get(queue_id, ()))
        self._remembered.pop(topic, None)
        self.plane.topic_set(topic_id, word)

    def check_room(self, group: str | None, topics: Iterable[TopicConfig]) -> None:
        """Raise PlaneFullError unless there is room for this group and all of these topics."""
        if group is not None:
            self._check_room(f"group {group}", "group", self.plane.group_find(group) is None)
        entries, queues = 0, 0
        for config in topics:
            name = f"topic {config.topic_name}"
            entries += self.plane.topic_find(config.topic_name) is None
            queues += len(self._missing_queues(config.topic_name, set(range(config.queue_count))))
            self._check_room(name, "topic", entries)
            self._check_room(name, "queue", queues)

    def _check_room(self, name: str, table: str, more: int) -> None:
        tables = self.plane.header.tables
        capacity = int(getattr(tables, f"{table}_capacity"))
        room = capacity - int(getattr(tables, f"{table}_count"))
        if more <= room:
            return
        limit = f"(ringmq{table.title()}sMax = {capacity})"
        if table == "queue":
            raise PlaneFullError(f"{name} needs {more} more queues, there is room for {room} {limit}")
        raise PlaneFullError(f"{name} has no place: the table of {table}s is full {limit}")

    def _missing_queues(self, topic: str, queue_ids: set[int]) -> list[int]:
        """Those of the topic's queues that have no entry yet, and those that recovery has found."""
        wanted = sorted(queue_ids | self._remembered.get(topic, {}).keys())
        topic_id = self.plane.topic_find(topic)
        if topic_id is None:
            return wanted
        return [queue_id for queue_id in wanted if self.plane.queue_find(topic_id, queue_id) is None]

    def live_topics(self) -> Iterator[TopicConfig]:
        """The live topics in the plane. They survive a restart of control."""
        for topic_id in range(1, int(self.plane.header.tables.topic_count) + 1):
            entry = self.plane.topic(topic_id)
            word = int(entry.config)
            if word >> 40 & protocols.TOPIC_LIVE and not word >> 40 & protocols.TOPIC_RECOVERED:
                yield TopicConfig(entry_name(entry), word >> 8 & 0xFFFF, word >> 24 & 0xFFFF, word & 0xFF)

    def live_names(self) -> Iterator[tuple[int, str, int]]:
        """(topic id, name, TOPIC_*) of the live topics, those included that no configuration names."""
        for topic_id in range(1, int(self.plane.header.tables.topic_count) + 1):
            entry = self.plane.topic(topic_id)
            if (flags := int(entry.config) >> 40) & protocols.TOPIC_LIVE:
                yield topic_id, entry_name(entry), flags

    def withdrawn_topics(self) -> set[str]:
        """Topics that have been in the plane and are not live now."""
        ids = range(1, int(self.plane.header.tables.topic_count) + 1)
        names = (
            entry_name(entry)
            for entry in map(self.plane.topic, ids)
            if not int(entry.config) >> 40 & protocols.TOPIC_LIVE
        )
        return {name for name in names if self.plane.topic_find(name) is None}

    # ---- queues ----

    def slot(self, topic: str, queue_id: int) -> int | None:
        """Queue slot of a live topic's queue."""
        if not 0 <= queue_id < QUEUE_ID_END:
            return None
        topic_id = self.plane.topic_find(topic)
        return None if topic_id is None else self.plane.queue_find(topic_id, queue_id)

    def queue(self, topic: str, queue_id: int) -> QueueState | None:
        """The state of a queue. None if it does not exist."""
        slot = self.slot(topic, queue_id)
        if slot is None:
            return None
        entry = self.plane.queue(slot)
        return QueueState(int(entry.min_offset), int(entry.max_offset), int(entry.last_store_time_ms))

    def names_of(self, group_id: int, slot: int) -> tuple[str, str, int] | None:
        """(group, topic, queue id) of an entry of the offset table. None if the topic is not live."""
        queue = self.plane.queue(slot)
        topic = self.plane.topic(int(queue.topic_id))
        if not int(topic.config) >> 40 & protocols.TOPIC_LIVE:
            return None
        return entry_name(self.plane.group(group_id)), entry_name(topic), int(queue.queue_id)

    # ---- groups and subscriptions ----

    def group_id(self, group: str) -> int:
        """Id of a group. A new group is made without LIVE."""
        group_id = self.plane.group_find(group)
        return self.plane.group_add(group, 0) if group_id is None else group_id

    def publish_group(self, group: str, flags: int) -> None:
        """Set a group's flags (GROUP_*). 0 withdraws it; its offsets stay. A group without flags gets no entry."""
        if flags or self.plane.group_find(group) is not None:
            self.plane.group_set(self.group_id(group), flags)

    def publish_subscription(self, group: str, topic: str, subscription: SubscriptionData | None) -> None:
        """Publish the subscription of the group to a topic. None = no subscription. A missing topic is left for later.

        Raises PlaneFullError if the table is full and has no NONE entry.
        """
        topic_id = self.plane.topic_find(topic)
        if topic_id is None:
            return
        pair = self.group_id(group), topic_id
        kind, hashes = self._kind(pair, subscription)
        version = 0 if subscription is None else subscription.sub_version
        self._withdrawn.pop(pair, None)
        try:
            self.plane.subscription_set(*pair, kind, version, hashes)
        except PlaneFullError:
            oldest = next(iter(self._withdrawn), None)
            if oldest is None:
                raise
            del self._withdrawn[oldest]
            self.plane.subscription_replace(oldest, pair)
            self.plane.subscription_set(*pair, kind, version, hashes)
        if kind == protocols.SUBSCRIPTION_NONE:
            self._withdrawn[pair] = None

    def _kind(self, pair: tuple[int, int], subscription: SubscriptionData | None) -> tuple[int, list[int]]:
        """`subscription_kind`; an expression that has been compiled gets its place. The first pull has it compiled."""
        kind, hashes = subscription_kind(subscription)
        place = None
        if subscription is not None and subscription.is_sql and kind == protocols.SUBSCRIPTION_COLD:
            place = self.filters.find(subscription.sub_string)
        if subscription is None or place is None:
            self.filters.name(pair, None)
            return kind, hashes
        self.filters.name(pair, subscription.sub_string)
        return protocols.SUBSCRIPTION_FILTER, [place.slot, _signed(place.version)]


def subscription_kind(subscription: SubscriptionData | None) -> tuple[int, list[int]]:
    """(RMQ_SUBSCRIPTION_*, tag hashes) of a subscription. One that the hot path cannot filter is COLD."""
    if subscription is None:
        return protocols.SUBSCRIPTION_NONE, []
    if subscription.class_filter_mode:
        return protocols.SUBSCRIPTION_ALL, []
    if not subscription.is_tags:
        return protocols.SUBSCRIPTION_COLD, []
    if subscription.is_all:
        return protocols.SUBSCRIPTION_ALL, []
    hashes = sorted(code for code in subscription.code_set if -(1 << 31) <= code < 1 << 31)
    if not hashes or len(hashes) > protocols.TAGS_MAX:
        return protocols.SUBSCRIPTION_COLD, []
    return protocols.SUBSCRIPTION_TAGS, hashes


def group_flags(config: SubscriptionGroupConfig | None, *, members: bool, broadcasting: bool, cold: bool) -> int:
    """RMQ_GROUP_* of a group, with the broker ids from which it reads. None = it has no configuration."""
    if config is None:
        return 0
    return (
        protocols.GROUP_LIVE
        | protocols.GROUP_CONSUME_ENABLE * config.consume_enable
        | protocols.GROUP_BROADCAST_ENABLE * config.consume_broadcast_enable
        | protocols.GROUP_HAS_MEMBERS * members
        | protocols.GROUP_BROADCASTING * broadcasting
        | protocols.GROUP_PULL_COLD * cold
        | _between(config.retry_queue_nums, protocols.GROUP_RETRY_QUEUES_MAX) << protocols.GROUP_RETRY_QUEUES_SHIFT
        | _between(config.retry_max_times, protocols.GROUP_RETRY_TIMES_MAX) << protocols.GROUP_RETRY_TIMES_SHIFT
        | _between(config.which_broker_when_consume_slowly, 0xFFFF) << protocols.GROUP_SLOW_BROKER_SHIFT
        | _between(config.broker_id, 0xFFFF) << protocols.GROUP_BROKER_SHIFT
    )


def _between(number: int, largest: int) -> int:
    """The number in the bits of its field."""
    return max(0, min(number, largest))


def _signed(word: int) -> int:
    """A 32-bit word as an int32."""
    return word - (1 << 32) if word >> 31 else word


def entry_name(entry: Any) -> str:
    """The name of a topic's or a group's entry."""
    raw = entry.name
    if isinstance(raw, bytes):
        return raw[: entry.name_length].decode()
    return b"".join(raw[index] for index in range(entry.name_length)).decode()
