"""Families of POP. All groups are counted together, but for the copies in topics of retries."""

from __future__ import annotations

import time

import numpy as np

from ringmq.broker.exporter.label_rows import LabelCache
from ringmq.broker.exporter.labels import name_of
from ringmq.broker.exporter.retry_topics import RetryTopics
from ringmq.broker.exporter.sources import Add, Sources
from ringmq.broker.exporter.tables import Tables, live_groups, live_topics
from ringmq.broker.exporter.text import Page
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.pop.revival_words import Gauge, RevivalWord, SnapshotFault
from ringmq.pop.role_words import Counter

_SINGLE = {
    "ringmq_pop_messages_total": Counter.MESSAGES,
    "ringmq_pop_changes_total": Counter.CHANGES,
    "ringmq_pop_unsent_total": Counter.UNSENT,
    "ringmq_pop_unreadable_total": Counter.UNREADABLE,
    "ringmq_pop_open_messages": Gauge.OPEN,
    "ringmq_pop_entries": Gauge.ENTRIES,
    "ringmq_pop_entries_max": Gauge.ENTRIES_MAX,
    "ringmq_pop_windows": Gauge.WINDOWS,
    "ringmq_pop_windows_max": Gauge.WINDOWS_MAX,
    "ringmq_pop_polls": Gauge.POLLS,
    "ringmq_pop_polls_max": Gauge.POLLS_MAX,
    "ringmq_pop_reviving": Gauge.REVIVING,
    "rocketmq_pop_checkpoint_buffer_size": Gauge.ENTRIES,
}
_BY_RESULT: dict[str, dict[str, int]] = {
    "ringmq_pop_requests_total": {
        "found": Counter.POPS, "empty": Counter.EMPTY, "bound": Counter.BOUND, "full": Counter.FULL,
    },
    "ringmq_pop_notifications_total": {
        "found": Counter.NOTIFIED, "empty": Counter.NOT_NOTIFIED, "full": Counter.NOTIFY_FULL,
    },
    "ringmq_pop_acks_total": {
        "done": Counter.ACKS, "late": Counter.ACKS_LATE, "foreign": Counter.ACKS_FOREIGN,
        "withdrawn": Counter.PASSED_OVER,
    },
    "ringmq_pop_revived_total": {
        "copied": RevivalWord.STORED, "dead": RevivalWord.DEAD, "failed": RevivalWord.FAILED, "gone": RevivalWord.GONE,
    },
}  # fmt: skip


_FAULTS = {"no_room": SnapshotFault.NO_ROOM, "failed": SnapshotFault.FAILED}
ACKED_BOUNDS = tuple(f"{(1 << number) / 1e3:g}" for number in range(lib.RMQ_LATENCY_BUCKETS - 1))
"""Bounds of the times until an acknowledgement, in seconds."""
REVIVE_QUEUE = {"queue_id": "0"}
"""RocketMQ has series for each of its queues of checkpoints. Here all due messages are one."""
PUT_OK = "PUT_OK"


def families(sources: Sources) -> Add:
    """Those of a master."""
    return sources.of_master(PopFamilies(sources.plane).add_to)


class PopFamilies:
    """The families of one plane."""

    def __init__(self, plane: Plane) -> None:
        self._plane, self._tables = plane, Tables(plane)
        self._retries, self._labels = RetryTopics(self._tables), LabelCache()

    def add_to(self, page: Page, now_ms: int) -> None:
        """Add all families. `now_ms`: of the wall clock."""
        words = self._plane.role(lib.RMQ_ROLE_POP).counters
        for name, word in _SINGLE.items():
            page.add(name, int(words[word]))
        for name, results in _BY_RESULT.items():
            page.add(name, [({"result": result}, int(words[word])) for result, word in results.items()])
        page.add("ringmq_pop_oldest_open_seconds", _age(int(words[Gauge.OLDEST_POP_MS]), now_ms) / 1000)
        page.add("rocketmq_pop_revive_lag_milliseconds", [(REVIVE_QUEUE, int(words[Gauge.DUE]))])
        late_ms = _age(int(words[Gauge.OLDEST_DUE_MS]), now_ms)
        page.add("rocketmq_pop_revive_latency_milliseconds", [(REVIVE_QUEUE, late_ms)])
        unsaved_ms = _age(int(words[Gauge.UNSAVED_MS]), time.monotonic_ns() // 1_000_000)
        page.add("ringmq_pop_unsaved_seconds", unsaved_ms / 1000)
        fault = int(words[Gauge.SNAPSHOT_FAULT])
        page.add("ringmq_pop_snapshot_fault", [({"cause": cause}, int(fault == of)) for cause, of in _FAULTS.items()])
        times = self._plane.header.latency[lib.RMQ_ROLE_POP][lib.RMQ_POP_LATENCY_ACKED]
        counts = [int(count) for count in times.counts]
        page.add_histograms("ringmq_pop_acked_seconds", ACKED_BOUNDS, [({}, counts, int(times.sum_ns) / 1e6)])
        self._add_copies(page)

    def _add_copies(self, page: Page) -> None:
        """Add the messages that topics of retries have ever had, by group and topic of origin."""
        queues = self._tables.queues  # before the topics that they name
        origins = self._retries.origins()
        topics, groups = self._tables.topics, self._tables.groups
        of_queue = origins[queues["topic_id"].astype(np.int64)]
        known = of_queue >= 0
        keys, of = np.unique(of_queue[known], return_inverse=True)
        messages = np.bincount(of, queues["max_offset"][known], len(keys)).astype(np.int64)
        shown = (messages > 0) & live_groups(groups)[keys >> 32] & live_topics(topics)[keys & 0xFFFFFFFF]

        def text_of(key: int) -> str:
            group, topic = name_of(groups[key >> 32]), name_of(topics[key & 0xFFFFFFFF])
            return page.label_text({"consumer_group": group, "topic": topic, "put_status": PUT_OK})

        rows = self._labels.rows(keys[shown], text_of)
        page.add_rows("rocketmq_pop_revive_retry_messages_total", rows, messages[shown])


def _age(since_ms: int, now_ms: int) -> int:
    """0 for a time of 0: there is none."""
    return max(0, now_ms - since_ms) if since_ms else 0
