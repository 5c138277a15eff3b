"""Families by consumer group and topic: lag, messages in flight, messages out.

A pair is shown while its group and topic exist. The group must have a committed offset of the topic, or a member that
subscribes to it. Stock shows members' subscriptions alone, but a group without members has lag, too. Retry topics are
left out, as in stock. Pulls count from the broker's start. Before its first pull all of a group's lag is ready.

A group that takes single messages has two series of a topic. The one with is_retry="true" is of the topics in which
messages of this topic come again. In flight are its open messages, and they are no gap in front of what is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ringmq.broker.exporter.label_rows import LabelCache
from ringmq.broker.exporter.labels import RETRY_PREFIX, is_system, java_bool, name_of
from ringmq.broker.exporter.pull_stats import PullStatsIndex, column_at, index_of
from ringmq.broker.exporter.retry_topics import RetryTopics
from ringmq.broker.exporter.tables import Ints, Tables, live_groups, live_topics
from ringmq.broker.exporter.text import Page
from ringmq.native import lib

LAG = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_ready_messages",
    "rocketmq_consumer_queueing_latency_milliseconds",
)
OUT = ("rocketmq_messages_out_total", "rocketmq_throughput_out_total")
LOOKUPS_PER_SCRAPE = 500
"""Store times that one scrape reads from disk, some 30 us each. The others keep their last value."""
_SINGLE, _RETRY = 1 << 61, 1 << 62
"""Bits of an id of labels beside the pair: the series is of single messages, and of those that come again."""
StoreTime = Callable[[str, int, int], int]
"""(topic, queue id, queue offset) -> ms. 0 or less = unknown."""


class _Pairs(Struct, frozen=True):
    """The (group, topic) pairs, and the pair of each entry of the offset table."""

    keys: Ints
    of_offset: Ints
    stamp: tuple[int, int]

    def at(self, keys: Ints) -> Ints:
        """Per key, the index of its pair, -1 if there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1)


class StoreTimes:
    """Times of the messages at which groups wait, by entry of the offset table.

    Each scrape reads a limited number of them in turn. An entry whose group has progressed keeps its older time until
    its turn.
    """

    def __init__(self, read: Callable[[int, int], int], budget: int = LOOKUPS_PER_SCRAPE) -> None:
        """`read`: (entry, queue offset) -> ms. 0 or less = unknown."""
        self._read = read
        self._budget = budget
        self._offsets = np.zeros(0, np.int64)
        self._times = np.zeros(0, np.int64)
        self._next = 0

    def look(self, waiting: NDArray[np.bool_], at: Ints) -> Ints:
        """For each entry, the time of its message at the offset `at`. 0 if it is unknown or no message waits."""
        more = len(at) - len(self._offsets)
        self._offsets = np.concatenate([self._offsets, np.full(more, -1)])
        self._times = np.concatenate([self._times, np.zeros(more, np.int64)])
        stale = np.flatnonzero(waiting & (self._offsets != at))
        turn = np.searchsorted(stale, self._next)
        chosen = np.concatenate([stale[turn:], stale[:turn]])[: self._budget].tolist()
        for entry in chosen:
            self._times[entry] = max(0, self._read(entry, int(at[entry])))
            self._offsets[entry] = at[entry]
            self._next = entry + 1
        return np.where(waiting, self._times, 0)


class GroupFamilies:
    """The families by group. The grouping of offsets is reused from scrape to scrape."""

    def __init__(self, tables: Tables, store_time: StoreTime) -> None:
        self._tables = tables
        self._pairs = _Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), (-1, -1))
        self._index = PullStatsIndex()
        self._retries = RetryTopics(tables)
        self._lag_labels, self._out_labels = LabelCache(), LabelCache()
        self._store_time = store_time
        self._lag_times, self._ready_times = StoreTimes(self._time_at), StoreTimes(self._time_at)

    def add_to(self, page: Page, now_ms: int) -> None:
        """Add every family of LAG and OUT."""
        tables = self._tables
        # Tables that name others are read first: all that an entry names has its place when the other table is read.
        offsets, subscriptions, (pull_stats, pulls) = tables.offsets, tables.subscriptions, tables.pull_stats()
        topics, groups, queues = tables.topics, tables.groups, tables.queues
        pairs = self._grouped(offsets, queues, subscriptions)
        index = self._index = index_of(self._index, pull_stats, offsets, groups, queues)
        of, count = pairs.of_offset, len(pairs.keys)
        offsets = offsets[: len(of)]
        slots = offsets["queue_slot"].astype(np.int64)
        ends, committed = queues["max_offset"].astype(np.int64)[slots], offsets["offset"]
        valid = committed >= 0
        latest = index.latest(pull_stats, len(offsets))
        single = latest >= pulls
        following = np.maximum(column_at(pull_stats["next_offset"], latest, -1), committed)
        begins = queues["min_offset"].astype(np.int64)[slots]  # a group that retention has overtaken waits at the rest
        ready = np.where(valid, np.maximum(ends - following, 0), 0)
        lag = np.where(valid, np.maximum(ends - committed, 0), 0)
        lag = np.where(single & valid, ready + column_at(pull_stats["open"], latest, 0), lag)
        shown = self._shown(pairs.keys, topics, groups, valid, of)
        families = _Families(pairs, shown, self._retries.of_pairs(pairs.keys), of[single])
        rows = self._lag_labels.rows(families.ids, lambda key: _label_text(page, key, topics, groups, has_retry=True))
        sums = {
            LAG[0]: _total(of, lag, count),
            LAG[2]: _total(of, lag - ready, count),
            LAG[3]: _total(of, ready, count),
        }
        for name, values in sums.items():
            page.add_rows(name, rows, families.sums(values))
        seen = families.is_seen[of]
        for name, times, waiting, at in (
            (LAG[1], self._lag_times, lag, committed), (LAG[4], self._ready_times, ready, following),
        ):  # fmt: skip
            ages = self._ages(times, seen & (waiting > 0), np.maximum(at, begins), of, count, now_ms)
            page.add_rows(name, rows, families.highest(ages))
        self._add_out(page, index, pull_stats, pulls)

    def _grouped(self, offsets: NDArray[Any], queues: NDArray[Any], subscriptions: NDArray[Any]) -> _Pairs:
        stamp = (len(offsets), len(subscriptions))
        if stamp != self._pairs.stamp:
            topic = queues["topic_id"].astype(np.int64)[offsets["queue_slot"].astype(np.int64)]
            keys = offsets["group_id"].astype(np.int64) << 32 | topic
            more = subscriptions["group_id"].astype(np.int64) << 32 | subscriptions["topic_id"].astype(np.int64)
            unique, inverse = np.unique(np.concatenate([keys, more]), return_inverse=True)
            self._pairs = _Pairs(unique, inverse[: len(keys)], stamp)
        return self._pairs

    def _shown(
        self, keys: Ints, topics: NDArray[Any], groups: NDArray[Any], valid: NDArray[np.bool_], of: Ints
    ) -> Ints:
        group_ids, topic_ids = keys >> 32, keys & 0xFFFFFFFF
        sound = (group_ids < len(groups)) & (topic_ids < len(topics))
        group_ids, topic_ids = group_ids * sound, topic_ids * sound
        has_offset = np.bincount(of, valid, len(keys)) > 0
        members = (groups["config"] & np.uint64(lib.RMQ_GROUP_HAS_MEMBERS)) != 0
        live = live_groups(groups)[group_ids] & live_topics(topics)[topic_ids]
        retry = np.char.startswith(topics["name"], RETRY_PREFIX.encode())[topic_ids]
        shown: Ints = np.flatnonzero(sound & live & (has_offset | members[group_ids]) & ~retry)
        return shown

    def _ages(self, times: StoreTimes, waiting: NDArray[np.bool_], at: Ints, of: Ints, count: int, now_ms: int) -> Ints:
        """Per pair, the age of the oldest message at which one of its queues waits."""
        oldest = np.full(count, now_ms, np.int64)
        found = times.look(waiting, at)
        known = np.flatnonzero(found)
        np.minimum.at(oldest, of[known], found[known])
        return now_ms - oldest

    def _time_at(self, entry: int, offset: int) -> int:
        queue = self._tables.queues[int(self._tables.offsets["queue_slot"][entry])]
        return self._store_time(name_of(self._tables.topics[int(queue["topic_id"])]), int(queue["queue_id"]), offset)

    def _add_out(self, page: Page, index: PullStatsIndex, pull_stats: NDArray[Any], pulls: int) -> None:
        topics, groups = self._tables.topics, self._tables.groups
        origins = self._retries.of_pairs(index.pairs)
        singles = np.where(origins < 0, index.pairs | _SINGLE, origins | _SINGLE | _RETRY)
        ids, of = np.unique(np.where(index.known < pulls, index.pairs, singles), return_inverse=True)
        messages = _total(of, pull_stats["messages"][index.known], len(ids))
        group_ids, topic_ids = (ids & ~(_SINGLE | _RETRY)) >> 32, ids & 0xFFFFFFFF
        live = live_groups(groups)[group_ids] & live_topics(topics)[topic_ids]
        shown = np.flatnonzero(live & (messages > 0))
        rows = self._out_labels.rows(
            ids[shown], lambda key: _label_text(page, key, topics, groups, has_retry=bool(key & _SINGLE))
        )
        page.add_rows(OUT[0], rows, messages[shown])
        page.add_rows(OUT[1], rows, _total(of, pull_stats["bytes"][index.known], len(ids))[shown])


class _Families:
    """The series of the families of LAG: those of shown pairs, then those of messages that come again.

    `origins`: per pair, the key of the pair whose messages come again there, or -1. `singles`: pairs of entries that
    are of single messages.
    """

    def __init__(self, pairs: _Pairs, shown: Ints, origins: Ints, singles: Ints) -> None:
        count = len(pairs.keys)
        parents = np.where(origins < 0, -1, pairs.at(origins))
        is_single = np.zeros(count + 1, bool)
        is_single[singles] = True
        is_single[parents[is_single[:count]]] = True
        self._children = np.flatnonzero(parents >= 0)
        self._parents = parents[self._children]
        self._shown, self._again = shown, shown[is_single[shown]]
        self.ids = np.concatenate([pairs.keys[shown], pairs.keys[self._again] | _RETRY])
        self.is_seen = np.zeros(count + 1, bool)
        self.is_seen[shown] = True
        self.is_seen[self._children] = self.is_seen[self._parents]
        """Pairs that a series shows."""

    def sums(self, values: Ints) -> Ints:
        """The values of the series, out of those of the pairs."""
        again = np.bincount(self._parents, values[self._children], len(values)).astype(np.int64)
        return np.concatenate([values[self._shown], again[self._again]])

    def highest(self, values: Ints) -> Ints:
        """The same for values of which the highest counts."""
        again = np.zeros(len(values), np.int64)
        np.maximum.at(again, self._parents, values[self._children])
        return np.concatenate([values[self._shown], again[self._again]])


def _label_text(page: Page, key: int, topics: NDArray[Any], groups: NDArray[Any], *, has_retry: bool) -> str:
    """The labels of a series. `has_retry`: with is_retry."""
    group = name_of(groups[(key & ~(_SINGLE | _RETRY)) >> 32])
    topic = name_of(topics[key & 0xFFFFFFFF])
    labels = {"consumer_group": group, "topic": topic, "is_system": is_system(topic, group)}
    return page.label_text(labels | ({"is_retry": java_bool(bool(key & _RETRY))} if has_retry else {}))


def _total(of: Ints, values: Any, count: int) -> Ints:
    return np.bincount(of, values, count).astype(np.int64)
