"""Names that clients have made by using them: topics of sends, groups of heartbeats and pulls, retry topics.

A retry or dead letter topic is a client's unless its group exists and is no client's. Clients' names may take half of
the shared tables. The other half is for names of administrators and of a master. A name keeps its entries until the
next start, even if it is deleted, as every entry of those tables does. A full table evicts no name.
`config/ringmqClientNames.json` keeps the names over starts. Names of older stores count as administrators'.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError

FILE = "ringmqClientNames.json"
SHARE = 2
"""Clients' names may take one of so many entries."""


class ClientNames:
    """The names. `header` has the capacities of the shared tables (struct rmq_plane_header)."""

    def __init__(self, header: Any) -> None:
        self._header = header
        self._topics: dict[str, None] = {}
        self._groups: dict[str, None] = {}
        self.topics_used = 0
        self.queues_used = 0
        self.groups_used = 0
        self.dirty = False

    def limit(self, table: str) -> int:
        """Entries of `table` (topic, queue, group) for clients' names."""
        return int(getattr(self._header.tables, f"{table}_capacity")) // SHARE

    def has_group(self, group: str) -> bool:
        """True if a client has made the group."""
        return group in self._groups

    def check(self, group: str | None, topics: Iterable[TopicConfig]) -> None:
        """Raise RequestError if this group and these topics together would exceed the entries for clients."""
        if group is not None:
            self._check(f"group {group}", "group", "ringmqGroupsMax", self.groups_used, 1)
        queues = 0
        for number, config in enumerate(topics, 1):
            name = f"topic {config.topic_name}"
            queues += config.queue_count
            self._check(name, "topic", "ringmqTopicsMax", self.topics_used, number)
            self._check(name, "queue", "ringmqQueuesMax", self.queues_used, queues)

    def add_topic(self, config: TopicConfig) -> None:
        """A client has made the topic."""
        self._topics[config.topic_name] = None
        self.topics_used += 1
        self.queues_used += config.queue_count
        self.dirty = True

    def add_group(self, group: str) -> None:
        """A client has made the group."""
        self._groups[group] = None
        self.groups_used += 1
        self.dirty = True

    def give_topic(self, config: TopicConfig) -> None:
        """An administrator has set the topic: its name and queues count as administrators' from now on."""
        if config.topic_name in self._topics:
            del self._topics[config.topic_name]
            self.topics_used -= 1
            self.queues_used -= config.queue_count
            self.dirty = True

    def give_group(self, group: str) -> None:
        """An administrator has set the group: its name counts as administrators' from now on."""
        if group in self._groups:
            del self._groups[group]
            self.groups_used -= 1
            self.dirty = True

    def delete_topic(self, topic: str) -> None:
        """The topic is deleted. Its entries are free again after the next start."""
        self.dirty |= topic in self._topics
        self._topics.pop(topic, None)

    def delete_group(self, group: str) -> None:
        """The group is deleted. Its entry is free again after the next start."""
        self.dirty |= group in self._groups
        self._groups.pop(group, None)

    def to_json(self) -> dict[str, list[str]]:
        """The content of the file."""
        return {"groups": list(self._groups), "topics": list(self._topics)}

    def load(self, value: dict[str, Any], topics: Iterable[TopicConfig], groups: Iterable[str]) -> None:
        """Load the names in the file of an earlier run, as far as they exist. Raises BadBody."""
        known_topics = set(map(str, json_body.items(value, "topics")))
        known_groups = set(map(str, json_body.items(value, "groups")))
        for config in topics:
            if config.topic_name in known_topics:
                self.add_topic(config)
        for group in groups:
            if group in known_groups:
                self.add_group(group)
        # A name that does not exist leaves the file, because an administrator may make it.
        self.dirty = self._topics.keys() != known_topics or self._groups.keys() != known_groups

    def _check(self, name: str, table: str, setting: str, used: int, more: int) -> None:
        limit = self.limit(table)
        if used + more > limit:
            text = (
                f"{name} is not created: clients have created {used} of at most {limit} {table}s, half of {setting}; "
                "an administrator can create it"
            )
            raise RequestError(text, field=table, code=ResponseCode.SYSTEM_ERROR, limit=limit)
