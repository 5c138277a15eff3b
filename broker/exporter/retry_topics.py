"""Topics in which messages of one group and one topic come again: `%RETRY%group_topic` and `%RETRY%group+topic`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ringmq.broker.exporter.labels import RETRY_PREFIX, name_of
from ringmq.broker.exporter.tables import Ints, Tables, live_topics

_IDS = 0xFFFFFFFF


class RetryTopics:
    """The group and the topic of origin of each of them. `%RETRY%group`, whose messages are of any topic, is none."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._origins = np.full(0, -1, np.int64)
        """By topic id: group id << 32 | id of the topic of origin, -1 for another topic."""
        self._stamp = (-1, -1)

    def origins(self) -> Ints:
        """By topic id: the key of the group and the topic of origin, group id << 32 | topic id. -1: another topic."""
        topics, groups = self._tables.topics, self._tables.groups
        if self._stamp != (len(topics), len(groups)):
            self._stamp = len(topics), len(groups)
            self._origins = np.concatenate([self._origins, np.full(len(topics) - len(self._origins), -1, np.int64)])
            live = live_topics(topics)
            is_known = (self._origins >= 0) & live[np.maximum(self._origins, 0) & _IDS]
            is_retry = np.char.startswith(topics["name"], RETRY_PREFIX.encode())
            for topic_id in np.flatnonzero(is_retry & live & ~is_known).tolist():
                self._origins[topic_id] = self._origin(name_of(topics[topic_id]).removeprefix(RETRY_PREFIX))
        return self._origins

    def of_pairs(self, keys: Ints) -> Ints:
        """For each group id << 32 | topic id: the key with the topic of origin, if messages of the group come again in
        the topic, else -1."""
        origins = self.origins()
        topic_ids = keys & _IDS
        found = origins[np.where(topic_ids < len(origins), topic_ids, 0)]
        return np.where((topic_ids < len(origins)) & (found >= 0) & (found >> 32 == keys >> 32), found, -1)

    def _origin(self, rest: str) -> int:
        tables = self._tables
        if tables.group_id(rest) is not None:
            return -1
        for group, topic in _splits(rest):
            group_id, topic_id = tables.group_id(group), tables.topic_id(topic)
            if group_id is not None and topic_id is not None:
                return group_id << 32 | topic_id
        return -1


def _splits(rest: str) -> Iterator[tuple[str, str]]:
    """(group, topic) that a name may stand for. No name has a `+`, but both may have a `_`."""
    if "+" in rest:
        group, _, topic = rest.partition("+")
        yield group, topic
        return
    parts = rest.split("_")
    for number in range(1, len(parts)):
        yield "_".join(parts[:number]), "_".join(parts[number:])
