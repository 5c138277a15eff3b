"""Families by consumer group and topic: lag, messages in flight, messages out.

A pair is shown while its group and topic exist. The group must have a committed offset of the topic, or a member that
subscribes to it. Stock shows members' subscriptions alone, but a group without members has lag, too. Retry topics are
left out, as in stock. Pulls count from the broker's start. Before its first pull all of a group's lag is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ringmq.broker.exporter.label_rows import LabelCache
from ringmq.broker.exporter.labels import RETRY_PREFIX, is_system, java_bool, name_of
from ringmq.broker.exporter.pull_stats import PullStatsIndex, index_of
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
StoreTime = Callable[[str, int, int], int]
"""(topic, queue id, queue offset) -> ms. 0 or less = unknown."""


class _Pairs(Struct, frozen=True):
    """The (group, topic) pairs, and the pair of each entry of the offset table."""

    keys: Ints
    of_offset: Ints
    stamp: tuple[int, int]


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
        self._lag_labels, self._out_labels = LabelCache(), LabelCache()
        self._store_time = store_time
        self._lag_times, self._ready_times = StoreTimes(self._time_at), StoreTimes(self._time_at)

    def add_to(self, page: Page, now_ms: int) -> None:
        """Add every family of LAG and OUT."""
        tables = self._tables
        # Tables that name others are read first: all that an entry names has its place when the other table is read.
        offsets, subscriptions, pull_stats = tables.offsets, tables.subscriptions, tables.pull_stats()
        topics, groups, queues = tables.topics, tables.groups, tables.queues
        pairs = self._grouped(offsets, queues, subscriptions)
        index = self._index = index_of(self._index, pull_stats, offsets, groups, queues)
        of, count = pairs.of_offset, len(pairs.keys)
        offsets = offsets[: len(of)]
        slots = offsets["queue_slot"].astype(np.int64)
        ends, committed = queues["max_offset"].astype(np.int64)[slots], offsets["offset"]
        valid = committed >= 0
        lag = np.where(valid, np.maximum(ends - committed, 0), 0)
        following = np.maximum(index.next_offsets(pull_stats, len(offsets)), committed)
        begins = queues["min_offset"].astype(np.int64)[slots]  # a group that retention has overtaken waits at the rest
        ready = np.where(valid, np.maximum(ends - following, 0), 0)
        shown = self._shown(pairs.keys, topics, groups, valid, of)
        more = {"is_retry": java_bool(False)}
        rows = self._lag_labels.rows(pairs.keys[shown], lambda key: _label_text(page, key, topics, groups, more))
        sums = {
            LAG[0]: _total(of, lag, count),
            LAG[2]: _total(of, lag - ready, count),
            LAG[3]: _total(of, ready, count),
        }
        visible = np.zeros(count + 1, bool)
        visible[shown] = True
        seen = visible[of]
        sums[LAG[1]] = self._ages(self._lag_times, seen & (lag > 0), np.maximum(committed, begins), of, count, now_ms)
        sums[LAG[4]] = self._ages(
            self._ready_times, seen & (ready > 0), np.maximum(following, begins), of, count, now_ms
        )
        for name in LAG:
            page.add_rows(name, rows, sums[name][shown])
        self._add_out(page, index, pull_stats, topics, groups)

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

    def _add_out(
        self, page: Page, index: PullStatsIndex, pull_stats: NDArray[Any], topics: NDArray[Any], groups: NDArray[Any]
    ) -> None:
        keys = index.pairs
        live = live_groups(groups)[keys >> 32] & live_topics(topics)[keys & 0xFFFFFFFF]
        shown = np.flatnonzero(live & (index.total(pull_stats["messages"]) > 0))
        rows = self._out_labels.rows(keys[shown], lambda key: _label_text(page, key, topics, groups, {}))
        for name, column in zip(OUT, ("messages", "bytes"), strict=True):
            page.add_rows(name, rows, index.total(pull_stats[column])[shown])


def _label_text(page: Page, key: int, topics: NDArray[Any], groups: NDArray[Any], more: Mapping[str, str]) -> str:
    group, topic = name_of(groups[key >> 32]), name_of(topics[key & 0xFFFFFFFF])
    return page.label_text({"consumer_group": group, "topic": topic, "is_system": is_system(topic, group), **more})


def _total(of: Ints, values: Any, count: int) -> Ints:
    return np.bincount(of, values, count).astype(np.int64)
