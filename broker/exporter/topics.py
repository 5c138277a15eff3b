"""Families by topic: incoming messages. One series per topic that has had a message."""

from __future__ import annotations

import numpy as np

from ringmq.broker.exporter.label_rows import LabelCache
from ringmq.broker.exporter.labels import DLQ_PREFIX, is_system, name_of
from ringmq.broker.exporter.tables import Tables, live_topics
from ringmq.broker.exporter.text import Page

SIZE_BOUNDS = ("1024.0", "4096.0", "524288.0", "1048576.0", "2097152.0", "4194304.0")
MESSAGE_TYPE = "normal"
"""The type of all messages. Queues have one count for all types (docs/monitoring.md)."""


class TopicFamilies:
    """The families by topic of one plane."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._labels, self._histogram_labels, self._dead_labels = LabelCache(), LabelCache(), LabelCache()

    def add_to(self, page: Page) -> None:
        """Add rocketmq_messages_in_total, rocketmq_throughput_in_total, rocketmq_message_size, and
        rocketmq_send_to_dlq_messages_total."""
        topics, queues = self._tables.topics, self._tables.queues
        count = len(topics)
        known = queues["topic_id"] < count
        by = queues["topic_id"][known]

        def total(values: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.bincount(by, np.asarray(values)[known], count).astype(np.int64)

        messages = total(queues["max_offset"])
        written = total(queues["put_bytes"])

        def text_of(topic_id: int) -> str:
            topic = name_of(topics[topic_id])
            return page.label_text({"topic": topic, "is_system": is_system(topic), "message_type": MESSAGE_TYPE})

        def dead_text_of(topic_id: int) -> str:
            topic = name_of(topics[topic_id])
            group = topic.removeprefix(DLQ_PREFIX)
            return page.label_text({"consumer_group": group, "topic": topic, "is_system": is_system(topic, group)})

        shown = np.flatnonzero(live_topics(topics) & (messages > 0))
        rows = self._labels.rows(shown, text_of)
        page.add_rows("rocketmq_messages_in_total", rows, messages[shown])
        page.add_rows("rocketmq_throughput_in_total", rows, written[shown])
        prefix = DLQ_PREFIX.encode()
        dead = shown[topics["name"][shown].astype(f"S{len(prefix)}") == prefix]
        page.add_rows("rocketmq_send_to_dlq_messages_total", self._dead_labels.rows(dead, dead_text_of), messages[dead])
        sized = shown[written[shown] > 0]
        classes = [total(queues["sizes"][:, number])[sized] for number in range(len(SIZE_BOUNDS))]
        counts = np.stack([*classes, total(queues["huge_records"])[sized]], axis=1)
        rows = self._histogram_labels.rows(sized, text_of)
        page.add_histogram_rows("rocketmq_message_size", SIZE_BOUNDS, rows, counts, written[sized])
