"""Limits of the entries that one client, and all clients, may create in control. A refusal names its property."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ringmq.broker.assignment.routes import ROUTES_MAX, WAITING_MAX, TopicRoutes
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.request import Connection
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.consumers import ConsumerTable, weight
from ringmq.broker.tables.forward import CALLS_MAX, FORWARDS_MAX, ForwardTable
from ringmq.broker.tables.held_pulls import HELD_MAX, HeldPulls
from ringmq.broker.tables.locks import QueueLocks
from ringmq.broker.tables.offsets import STRAYS_MAX, OffsetTable
from ringmq.broker.tables.producers import ProducerTable
from ringmq.broker.tables.request_modes import MODES_MAX, RequestModeTable
from ringmq.broker.tables.shares import is_same_host
from ringmq.broker.tables.statistics import ITEMS_MAX, Statistics
from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.heartbeat import ConsumerData
from ringmq.remoting.message_queue import MessageQueue

STEP_SUBSCRIPTIONS = 64
HOST_PART = 2
"""One host leaves this part of all queue locks to others."""
SUBSCRIPTION_CHARS_IN_ALL = 64 << 20
"""Characters of all subscriptions together."""


class ClientLimits(Struct, frozen=True):
    """The tables whose entries are limited."""

    live: LiveConfig
    consumers: ConsumerTable
    producers: ProducerTable
    locks: QueueLocks
    offsets: OffsetTable
    forwards: ForwardTable
    held_pulls: HeldPulls
    client_names: ClientNames
    modes: RequestModeTable
    routes: TopicRoutes
    statistics: Statistics

    def entry_counts(self) -> tuple[tuple[str, int, int], ...]:
        """(kind, entries, limit) of all entries of clients in control, beside the shared tables."""
        config, consumers, producers = self.live.config, self.consumers, self.producers
        return (
            ("memberships", consumers.memberships + producers.memberships, config.memberships_max),
            ("producer_groups", len(producers), config.producer_groups_max),
            ("subscriptions", consumers.subscriptions, config.subscriptions_max),
            ("subscription_characters", consumers.subscription_chars, SUBSCRIPTION_CHARS_IN_ALL),
            ("locks", len(self.locks), config.locks_max),
            ("client_topics", self.client_names.topics_used, self.client_names.limit("topic")),
            ("client_queues", self.client_names.queues_used, self.client_names.limit("queue")),
            ("client_groups", self.client_names.groups_used, self.client_names.limit("group")),
            ("forwards", len(self.forwards), FORWARDS_MAX),
            ("pushed_replies", self.forwards.calls, CALLS_MAX),
            ("held_pulls", len(self.held_pulls), HELD_MAX),
            ("stray_offsets", self.offsets.stray_count, STRAYS_MAX),
            ("request_modes", len(self.modes), MODES_MAX),
            ("topic_routes", len(self.routes), ROUTES_MAX),
            ("route_waits", self.routes.waiting, WAITING_MAX),
            ("statistics", len(self.statistics), ITEMS_MAX),
        )

    def check_consumer(self, data: ConsumerData, connection: Connection) -> Steps[None]:
        """Raise RequestError if one more member of a group, or its subscriptions, would exceed a limit."""
        online = self.consumers.get(data.group_name)
        if online is None or connection not in online.members:
            self._check_memberships()
        known = {} if online is None else online.subscriptions
        fresh, fresh_chars = 0, 0
        for number, subscription in enumerate(data.subscriptions, 1):
            if known.get(subscription.topic) is not subscription:
                fresh += 1
                fresh_chars += weight(subscription)
            if number % STEP_SUBSCRIPTIONS == 0:
                yield
        limit = self.live.config.subscriptions_max
        if fresh and self.consumers.subscriptions + fresh > limit:
            _refuse_in_all("subscriptions", self.consumers.subscriptions, limit, "ringmqSubscriptionsMax")
        chars = self.consumers.subscription_chars
        if fresh and chars + fresh_chars > SUBSCRIPTION_CHARS_IN_ALL:
            _refuse_in_all("characters of subscriptions", chars, SUBSCRIPTION_CHARS_IN_ALL, None)

    def check_producer(self, group: str, connection: Connection) -> None:
        """Raise RequestError if one more producer would exceed a limit."""
        members = self.producers.get(group)
        if members is None and len(self.producers) >= self.live.config.producer_groups_max:
            _refuse_in_all(
                "producer groups", len(self.producers), self.live.config.producer_groups_max, "ringmqProducerGroupsMax"
            )
        if members is None or connection not in members:
            self._check_memberships()

    def check_lock(self, group: str, queue: MessageQueue, connection: Connection) -> None:
        """Raise RequestError if a lock, new or taken over from another connection, would exceed a limit."""
        holder = self.locks.holder(group, queue)
        if holder == connection:
            return
        most = self.live.config.locks_max
        if holder is None and len(self.locks) >= most:
            _refuse_in_all("queue locks", len(self.locks), most, "ringmqLocksMax")
        used, limit = self.locks.shares.of_connection(connection), self.live.config.client_locks_max
        if used >= limit:
            _refuse_in_all(f"queue locks of connection {connection.address}", used, limit, "ringmqClientLocksMax")
        used, limit = self.locks.shares.of_host(connection), most - most // HOST_PART
        if used >= limit and (holder is None or not is_same_host(holder, connection)):
            _refuse_in_all(f"queue locks of host {connection.host}", used, limit, "half of ringmqLocksMax")

    def _check_memberships(self) -> None:
        used, limit = self.consumers.memberships + self.producers.memberships, self.live.config.memberships_max
        if used >= limit:
            _refuse_in_all("memberships of clients in groups", used, limit, "ringmqMembershipsMax")


def check_heartbeat(config: BrokerConfig, value: dict[str, Any]) -> None:
    """Raise RequestError if a heartbeat names too many groups or subscriptions."""
    consumers = list(json_body.objects(value, "consumerDataSet"))
    groups = len(consumers) + len(json_body.items(value, "producerDataSet"))
    if groups > config.heartbeat_groups_max:
        _refuse("heartbeat", groups, "groups", config.heartbeat_groups_max, "ringmqHeartbeatGroupsMax")
    subscriptions = sum(len(json_body.items(consumer, "subscriptionDataSet")) for consumer in consumers)
    if subscriptions > config.heartbeat_subscriptions_max:
        limit = config.heartbeat_subscriptions_max
        _refuse("heartbeat", subscriptions, "subscriptions", limit, "ringmqHeartbeatSubscriptionsMax")


def _refuse(what: str, count: int, things: str, limit: int, name: str) -> None:
    text = f"a {what} with {count} {things} is refused, the limit is {limit} ({name})"
    raise RequestError(text, field=things, code=ResponseCode.SYSTEM_ERROR, limit=limit)


def _refuse_in_all(what: str, used: int, limit: int, name: str | None) -> None:
    text = f"no room for more {what}: the broker keeps {used} of at most {limit}" + (f" ({name})" if name else "")
    raise RequestError(text, field=what, code=ResponseCode.SYSTEM_BUSY, limit=limit)
