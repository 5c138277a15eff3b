"""Entries that requests of clients make: refused while memory is short, and made if the configuration allows it.

A request plans its entries, decides everything else, and has them made together. So a refused request makes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.topics import TopicTable
from ringmq.remoting import names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.errors import RequestError


class NewEntries(Struct, frozen=True):
    """The rules for new topics, groups, clients and locks."""

    live: LiveConfig
    plane: PlaneProtocol
    tables: PlaneTables
    topics: TopicTable
    groups: GroupTable
    client_names: ClientNames

    def refuse_when_short(self, what: str) -> None:
        """Raise RequestError while the memory of the broker is near ringmqMemoryMax. `what`: the new entry in words."""
        if self.plane.header.memory.level:
            raise RequestError(
                f"{what} is refused: the memory of the broker is near ringmqMemoryMax, try again later",
                field="",
                code=ResponseCode.SYSTEM_BUSY,
            )

    def group_of(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration, or the one that `make` may give it (`findSubscriptionGroupConfig`).

        None if clients may not make the group. Makes nothing. Raises RequestError.
        """
        known = self.groups.get(group)
        if known is not None or not self.live.config.auto_create_subscription_group:
            return known
        try:
            names.check_group(group)
        except RequestError:
            return None
        self.refuse_when_short(f"group {group}")
        return SubscriptionGroupConfig(group)

    def find_group(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """`group_of`; a missing group is made. Raises RequestError and PlaneFullError."""
        config = self.group_of(group)
        self.make(config, (), now_ms)
        return config

    def make(self, group: SubscriptionGroupConfig | None, topics: Sequence[TopicConfig], now_ms: int) -> None:
        """Make the planned group and topics, as far as they are missing.

        Raises RequestError and PlaneFullError. If a limit refuses one of them, nothing is made.
        """
        missing = [config for config in topics if config.topic_name not in self.topics]
        if group is not None and group.group_name in self.groups:
            group = None
        if group is None and not missing:
            return
        name = None if group is None else group.group_name
        of_clients = [config for config in missing if not self._is_administrators(config.topic_name)]
        self.client_names.check(name, of_clients)
        self.tables.check_room(name, missing)
        if group is not None:
            self.groups.put(group, now_ms)
            self.client_names.add_group(group.group_name)
        for config in missing:
            self._put(config, config in of_clients, now_ms)

    def make_for_service(self, config: TopicConfig, now_ms: int) -> None:
        """Make a system topic of a service, or a retry or dead letter topic again for acknowledged messages.

        The limits of clients do not refuse it, but what belongs to a client counts. Raises RequestError and
        PlaneFullError.
        """
        if config.topic_name not in self.topics:
            is_of_group = _group_in(config.topic_name) is not None
            self._put(config, is_of_group and not self._is_administrators(config.topic_name), now_ms)

    def _is_administrators(self, topic: str) -> bool:
        """True for a retry or dead letter topic of a group that an administrator or the broker has made."""
        group = _group_in(topic)
        return group is not None and group in self.groups and not self.client_names.has_group(group)

    def _put(self, config: TopicConfig, is_of_clients: bool, now_ms: int) -> None:
        try:
            self.topics.put(config, now_ms)
        finally:  # tables of offsets or subscriptions that are full leave the topic in place
            if is_of_clients and config.topic_name in self.topics:
                self.client_names.add_topic(config)


def _group_in(topic: str) -> str | None:
    """The group in the name of a retry or dead letter topic. None for other topics."""
    if names.is_retry_topic(topic):
        return topic.removeprefix(names.RETRY_PREFIX)
    return topic.removeprefix(names.DLQ_PREFIX) if names.is_dlq_topic(topic) else None
