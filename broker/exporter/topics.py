"""Families by topic: what came in. One series per topic that has had a message."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ringmq.broker.exporter.labels import is_system, name_of
from ringmq.broker.exporter.table import METRICS
from ringmq.broker.exporter.tables import Tables, live_topics
from ringmq.broker.exporter.text import Page

SIZE_BOUNDS = ("1024.0", "4096.0", "524288.0", "1048576.0", "2097152.0", "4194304.0")
MESSAGE_TYPE = "normal"
"""The type of single messages is not counted apart; those of the other types are refused, ordered ones are normal."""


class TopicFamilies:
    """Keeps the text of labels from scrape to scrape: ids are never used again."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._prefixes: dict[int, tuple[str, str, list[str]]] = {}

    def add_to(self, page: Page) -> None:
        """rocketmq_messages_in_total, rocketmq_throughput_in_total, rocketmq_message_size."""
        topics, queues = self._tables.topics, self._tables.queues
        count = len(topics)
        known = queues["topic_id"] < count
        by = queues["topic_id"][known]

        def total(values: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.bincount(by, np.asarray(values)[known], count).astype(np.int64)

        messages = total(queues["max_offset"])
        written = total(queues["put_bytes"])
        shown = np.flatnonzero(live_topics(topics) & (messages > 0)).tolist()
        for topic_id in shown:
            if topic_id not in self._prefixes:
                self._prefixes[topic_id] = self._texts(page, name_of(topics[topic_id]))
        texts = [self._prefixes[topic_id] for topic_id in shown]
        page.add_prepared(METRICS["rocketmq_messages_in_total"], [text[0] for text in texts], messages[shown].tolist())
        page.add_prepared(METRICS["rocketmq_throughput_in_total"], [text[1] for text in texts], written[shown].tolist())
        classes = [total(queues["sizes"][:, number])[shown] for number in range(len(SIZE_BOUNDS))]
        classes.append(total(queues["huge_records"])[shown])
        counts = np.stack(classes, axis=1).tolist()
        sums = written[shown].tolist()
        page.add_prepared_histograms(
            METRICS["rocketmq_message_size"],
            [(text[2], row, size) for text, row, size in zip(texts, counts, sums, strict=True) if size],
        )

    def _texts(self, page: Page, topic: str) -> tuple[str, str, list[str]]:
        labels: Mapping[str, str] = {"topic": topic, "is_system": is_system(topic), "message_type": MESSAGE_TYPE}
        return (
            page.prefix("rocketmq_messages_in_total", labels),
            page.prefix("rocketmq_throughput_in_total", labels),
            page.histogram_prefixes("rocketmq_message_size", labels, SIZE_BOUNDS),
        )
