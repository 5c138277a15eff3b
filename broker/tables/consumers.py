"""Who consumes: groups with their members and subscriptions, told by heartbeats.

A member is a connection (two client ids on one connection overwrite each other, as in RocketMQ). The table tells
`on_change(group)` when what the hot path knows of a group has changed, and pushes NOTIFY_CONSUMER_IDS_CHANGED (40)
to the members when membership or the set of topics has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ringmq.broker.request import Connection, Outbox
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import BROADCASTING, ConsumerData
from ringmq.remoting.subscription import SubscriptionData


@dataclass(slots=True)
class Member:
    """One client on one connection."""

    client_id: str
    language: str
    version: int
    last_update_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """A group that has members. Type, model and start are those of the latest heartbeat."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    @property
    def is_broadcasting(self) -> bool:
        """Every member gets every message; nobody shares queues."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Distinct client ids, in the order in which they came."""
        return list(dict.fromkeys(member.client_id for member in self.members.values() if member.client_id))

    def find(self, client_id: str) -> Connection | None:
        """The connection of a client."""
        for connection, member in self.members.items():
            if member.client_id == client_id:
                return connection
        return None


Key = TypeVar("Key")
EVER_SUBSCRIBED_MAX = 65_536  # names come from outside


class ConsumerTable:
    """All groups with members."""

    def __init__(self, outbox: Outbox, on_change: Callable[[str], None]) -> None:
        self._outbox = outbox
        self._on_change = on_change
        self._groups: dict[str, ConsumerGroup] = {}
        self._of_connection: dict[Connection, dict[str, None]] = {}
        self._on_topic: dict[str, dict[str, None]] = {}
        self._fingerprints: dict[str, int] = {}
        self.ever_subscribed: set[str] = set()
        """Topics that some heartbeat named since the start."""

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def get(self, group: str) -> ConsumerGroup | None:
        """The group, None while nobody is online."""
        return self._groups.get(group)

    def subscription(self, group: str, topic: object) -> SubscriptionData | None:
        """What a group with members wants of a topic."""
        online = self._groups.get(group)
        return online.subscriptions.get(topic) if online is not None and isinstance(topic, str) else None

    def register(
        self, connection: Connection, member: Member, data: ConsumerData, *, with_subscriptions: bool, notify: bool
    ) -> None:
        """One group of a heartbeat. `notify`: the group's and the broker's switch for 40."""
        group = self._groups.get(data.group_name)
        is_new = group is None
        if group is None:
            group = ConsumerGroup(data.group_name, data.consume_type, data.message_model, data.consume_from_where)
            self._groups[data.group_name] = group
        was_broadcasting = group.is_broadcasting
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        joined = connection not in group.members
        group.members[connection] = member
        self._of_connection.setdefault(connection, {})[group.name] = None
        stale, topics_changed = False, False
        if with_subscriptions:
            for subscription in data.subscriptions:
                if len(self.ever_subscribed) < EVER_SUBSCRIBED_MAX:
                    self.ever_subscribed.add(subscription.topic)
            stale, topics_changed = self._merge(group, data.subscriptions)
        if is_new or stale or topics_changed or was_broadcasting != group.is_broadcasting:
            self._on_change(group.name)
        if joined or topics_changed:
            self._notify(group, notify)

    def fingerprint_changed(self, group: str, fingerprint: int) -> bool:
        """Remember a heartbeat's fingerprint; True when another one was known."""
        known = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return known is not None and known != fingerprint

    def unregister(self, group_name: str, connection: Connection, *, notify: bool) -> None:
        """One member leaves one group."""
        group = self._groups.get(group_name)
        if group is None or group.members.pop(connection, None) is None:
            return
        _discard(self._of_connection, connection, group_name)
        if not group.members:
            del self._groups[group_name]
            for topic in group.subscriptions:
                _discard(self._on_topic, topic, group_name)
            self._fingerprints.pop(group_name, None)
            self._on_change(group_name)
        self._notify(group, notify)

    def groups_of(self, connection: Connection) -> list[str]:
        """Groups that the connection is a member of."""
        return list(self._of_connection.get(connection, ()))

    def groups_on(self, topic: str) -> list[str]:
        """Groups with members that subscribe to the topic."""
        return list(self._on_topic.get(topic, ()))

    def connections(self) -> Iterable[Connection]:
        """Every connection that is a member of some group."""
        return self._of_connection.keys()

    def expired(self, before_ms: int) -> list[Connection]:
        """Connections whose last heartbeat is older than `before_ms`."""
        return [
            connection
            for group in self._groups.values()
            for connection, member in group.members.items()
            if member.last_update_ms < before_ms
        ]

    def _merge(self, group: ConsumerGroup, told: list[SubscriptionData]) -> tuple[bool, bool]:
        """(an expression was replaced, a topic came or went): per topic only a greater subVersion replaces
        (`ConsumerGroupInfo.updateSubscription`)."""
        known = group.subscriptions
        replaced, came = False, False
        topics = {subscription.topic for subscription in told}
        gone = [topic for topic in known if topic not in topics]
        for topic in gone:
            del known[topic]
            _discard(self._on_topic, topic, group.name)
        for subscription in told:
            old = known.get(subscription.topic)
            if old is None:
                known[subscription.topic] = subscription
                self._on_topic.setdefault(subscription.topic, {})[group.name] = None
                came = True
            elif subscription.sub_version > old.sub_version:
                known[subscription.topic] = subscription
                replaced = True
        return replaced, came or bool(gone)

    def _notify(self, group: ConsumerGroup, notify: bool) -> None:
        if not notify or group.is_broadcasting:
            return
        for connection in group.members:
            command = RemotingCommand.request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name}, oneway=True
            )
            self._outbox.push(connection, command)


def _discard(index: dict[Key, dict[str, None]], key: Key, name: str) -> None:
    """Remove one name of an index; a key without names goes."""
    names = index.get(key)
    if names is not None:
        names.pop(name, None)
        if not names:
            del index[key]
