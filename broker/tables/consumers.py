"""Consumer groups with their members and subscriptions, as heartbeats report them.

A member is a connection (two client ids on one connection overwrite each other, as in RocketMQ). `Change` holds the
effects: publish the group in the plane, or notify its members (NOTIFY_CONSUMER_IDS_CHANGED, 40).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

from msgspec import Struct, field

from ringmq.broker.requests.request import Connection, Outbox
from ringmq.broker.requests.turns import Steps
from ringmq.remoting.allocation import java_order
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import BROADCASTING, ConsumerData
from ringmq.remoting.subscription import SubscriptionData


class Member(Struct):
    """One client on one connection."""

    client_id: str
    language: str
    version: int
    last_update_ms: int


class ConsumerGroup(Struct):
    """A group that has members. Type, model and start are those of the latest heartbeat."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    _places: dict[str, int] | None = None

    @property
    def is_broadcasting(self) -> bool:
        """True if every member gets every message and members share no queues."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Distinct client ids, in the order in which they came."""
        return list(dict.fromkeys(member.client_id for member in self.members.values() if member.client_id))

    def places(self) -> dict[str, int]:
        """Client id -> its place in Java's order of the ids. Kept until a member joins or leaves."""
        if self._places is None:
            ordered = sorted(self.client_ids(), key=java_order)
            self._places = {client_id: place for place, client_id in enumerate(ordered)}
        return self._places

    def put_member(self, connection: Connection, member: Member) -> bool:
        """Add or update a member. True if it is new."""
        known = self.members.get(connection)
        self.members[connection] = member
        if known is None or known.client_id != member.client_id:
            self._places = None
        return known is None

    def remove_member(self, connection: Connection) -> bool:
        """Remove a member. False if it was none."""
        self._places = None
        return self.members.pop(connection, None) is not None

    def find(self, client_id: str) -> Connection | None:
        """The connection of a client."""
        for connection, member in self.members.items():
            if member.client_id == client_id:
                return connection
        return None


class Change(Struct, frozen=True):
    """The effects of a client that joins or leaves its group."""

    publish: bool = False
    """True if the group's entry in the plane is out of date."""
    notify: bool = False
    """True if the members have to share their queues again."""


Key = TypeVar("Key")
STEP_MEMBERS = 64
STEP_SUBSCRIPTIONS = 64
EVER_SUBSCRIBED_MAX = 65_536  # names come from outside


class ConsumerTable:
    """All groups with members."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._groups: dict[str, ConsumerGroup] = {}
        self._of_connection: dict[Connection, dict[str, None]] = {}
        self._on_topic: dict[str, dict[str, None]] = {}
        self._fingerprints: dict[str, int] = {}
        self.memberships = 0
        """Members of all groups."""
        self.subscriptions = 0
        """Subscriptions of all groups."""
        self.subscription_chars = 0
        """Characters of their names, expressions and tags."""
        self.ever_subscribed: set[str] = set()
        """Topics that some heartbeat has named since the start."""

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def all_groups(self) -> list[ConsumerGroup]:
        """The current groups, in a list of its own."""
        return list(self._groups.values())

    def get(self, group: str) -> ConsumerGroup | None:
        """The group. None while it has no member."""
        return self._groups.get(group)

    def subscription(self, group: str, topic: object) -> SubscriptionData | None:
        """The subscription of a group with members to a topic."""
        online = self._groups.get(group)
        return online.subscriptions.get(topic) if online is not None and isinstance(topic, str) else None

    def register(
        self, connection: Connection, member: Member, data: ConsumerData, *, with_subscriptions: bool
    ) -> Steps[Change]:
        """Register one group of a heartbeat."""
        group = self._groups.get(data.group_name)
        is_new = group is None
        if group is None:
            group = ConsumerGroup(data.group_name, data.consume_type, data.message_model, data.consume_from_where)
            self._groups[data.group_name] = group
        was_broadcasting = group.is_broadcasting
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        joined = group.put_member(connection, member)
        self.memberships += joined
        self._of_connection.setdefault(connection, {})[group.name] = None
        stale, topics_changed = False, False
        if with_subscriptions:
            stale, topics_changed = yield from self._merge(group, data.subscriptions)
        return Change(
            publish=is_new or stale or topics_changed or was_broadcasting != group.is_broadcasting,
            notify=joined or topics_changed,
        )

    def fingerprint_changed(self, group: str, fingerprint: int) -> bool:
        """Remember a heartbeat's fingerprint. True if another one was known."""
        known = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return known is not None and known != fingerprint

    def unregister(self, group_name: str, connection: Connection) -> Change:
        """One member leaves one group."""
        group = self._groups.get(group_name)
        if group is None or not group.remove_member(connection):
            return Change()
        self.memberships -= 1
        _discard(self._of_connection, connection, group_name)
        if group.members:
            return Change(notify=True)
        del self._groups[group_name]
        for topic, subscription in group.subscriptions.items():
            _discard(self._on_topic, topic, group_name)
            self._weigh(subscription, -1)
        self._fingerprints.pop(group_name, None)
        return Change(publish=True)

    def groups_of(self, connection: Connection) -> list[str]:
        """Groups that the connection is a member of."""
        return list(self._of_connection.get(connection, ()))

    def groups_on(self, topic: str) -> list[str]:
        """Groups with members that subscribe to the topic."""
        return list(self._on_topic.get(topic, ()))

    def connections(self) -> Collection[Connection]:
        """Every connection that is a member of some group."""
        return self._of_connection.keys()

    def notifying(self, group_name: str) -> Steps[None]:
        """Notify the members of a joined or left member, or of changed subscriptions."""
        group = self._groups.get(group_name)
        if group is None or group.is_broadcasting:
            return
        for number, connection in enumerate(list(group.members)):
            self.notify(group_name, connection)
            if number % STEP_MEMBERS == STEP_MEMBERS - 1:
                yield

    def notify(self, group_name: str, connection: Connection) -> None:
        """Notify one member, if it is still one."""
        group = self._groups.get(group_name)
        if group is not None and connection in group.members:
            ext = {"consumerGroup": group_name}
            command = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext, oneway=True)
            self._outbox.push(connection, command)

    def _weigh(self, subscription: SubscriptionData, sign: int) -> None:
        self.subscriptions += sign
        self.subscription_chars += sign * weight(subscription)

    def _merge(self, group: ConsumerGroup, told: list[SubscriptionData]) -> Steps[tuple[bool, bool]]:
        """(an expression was replaced, a topic came or went). Only a greater subVersion replaces the subscription of a
        topic (`ConsumerGroupInfo.updateSubscription`)."""
        known = group.subscriptions
        replaced, came = False, False
        topics = {subscription.topic for subscription in told}
        gone = [topic for topic in known if topic not in topics]
        for number, topic in enumerate(gone, 1):
            if topic in known:
                self._weigh(known.pop(topic), -1)
                _discard(self._on_topic, topic, group.name)
            if number % STEP_SUBSCRIPTIONS == 0:
                yield
        for number, subscription in enumerate(told, 1):
            old = known.get(subscription.topic)
            if old is None:
                came = True
                self._add_topic(group, subscription.topic)
            elif subscription.sub_version > old.sub_version:
                replaced = True
                self._weigh(old, -1)
            if old is None or subscription.sub_version > old.sub_version:
                known[subscription.topic] = subscription
                self._weigh(subscription, 1)
            if number % STEP_SUBSCRIPTIONS == 0:
                yield
        return replaced, came or bool(gone)

    def _add_topic(self, group: ConsumerGroup, topic: str) -> None:
        self._on_topic.setdefault(topic, {})[group.name] = None
        if len(self.ever_subscribed) < EVER_SUBSCRIBED_MAX:
            self.ever_subscribed.add(topic)


def weight(subscription: SubscriptionData) -> int:
    """Characters that a subscription takes in memory."""
    return len(subscription.topic) + len(subscription.sub_string) + sum(map(len, subscription.tags_set))


def _discard(index: dict[Key, dict[str, None]], key: Key, name: str) -> None:
    """Remove one name of an index. A key without names is removed, too."""
    names = index.get(key)
    if names is not None:
        names.pop(name, None)
        if not names:
            del index[key]
