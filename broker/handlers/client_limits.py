"""Limits of the entries that one client, and all clients, may make control keep. A refusal names its property."""

from __future__ import annotations

from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.core import Broker
from ringmq.broker.requests.request import Connection
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.consumers import weight
from ringmq.broker.tables.forward import FORWARDS_MAX
from ringmq.broker.tables.held_pulls import HELD_MAX
from ringmq.broker.tables.offsets import STRAYS_MAX
from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.heartbeat import ConsumerData
from ringmq.remoting.message_queue import MessageQueue

STEP_SUBSCRIPTIONS = 64
SUBSCRIPTION_CHARS_IN_ALL = 64 << 20
"""Characters of all subscriptions."""


def rooms(broker: Broker) -> tuple[tuple[str, int, int], ...]:
    """(kind, entries, limit) of all entries that clients make control keep, beside the shared tables."""
    config, consumers, producers = broker.config, broker.consumers, broker.producers
    return (
        ("memberships", consumers.memberships + producers.memberships, config.memberships_max),
        ("producer_groups", len(producers), config.producer_groups_max),
        ("subscriptions", consumers.subscriptions, config.subscriptions_max),
        ("subscription_characters", consumers.subscription_chars, SUBSCRIPTION_CHARS_IN_ALL),
        ("locks", len(broker.locks), config.locks_max),
        ("client_topics", broker.client_names.topics_used, broker.client_names.limit("topic")),
        ("client_queues", broker.client_names.queues_used, broker.client_names.limit("queue")),
        ("client_groups", broker.client_names.groups_used, broker.client_names.limit("group")),
        ("forwards", len(broker.forwards), FORWARDS_MAX),
        ("held_pulls", len(broker.held_pulls), HELD_MAX),
        ("stray_offsets", broker.offsets.stray_count, STRAYS_MAX),
    )


def check_heartbeat(config: BrokerConfig, value: dict[str, Any]) -> None:
    """Raise RequestError when a heartbeat names too much."""
    consumers = list(json_body.objects(value, "consumerDataSet"))
    groups = len(consumers) + len(json_body.items(value, "producerDataSet"))
    if groups > config.heartbeat_groups_max:
        _refuse("heartbeat", groups, "groups", config.heartbeat_groups_max, "ringmqHeartbeatGroupsMax")
    subscriptions = sum(len(json_body.items(consumer, "subscriptionDataSet")) for consumer in consumers)
    if subscriptions > config.heartbeat_subscriptions_max:
        limit = config.heartbeat_subscriptions_max
        _refuse("heartbeat", subscriptions, "subscriptions", limit, "ringmqHeartbeatSubscriptionsMax")


def check_consumer(broker: Broker, data: ConsumerData, connection: Connection) -> Steps[None]:
    """Raise RequestError when there is no room for one more member of a group, or for its subscriptions."""
    online = broker.consumers.get(data.group_name)
    if online is None or connection not in online.members:
        _check_memberships(broker)
    known = {} if online is None else online.subscriptions
    fresh, fresh_chars = 0, 0
    for number, subscription in enumerate(data.subscriptions, 1):
        if known.get(subscription.topic) is not subscription:
            fresh += 1
            fresh_chars += weight(subscription)
        if number % STEP_SUBSCRIPTIONS == 0:
            yield
    limit = broker.config.subscriptions_max
    if fresh and broker.consumers.subscriptions + fresh > limit:
        _refuse_in_all("subscriptions", broker.consumers.subscriptions, limit, "ringmqSubscriptionsMax")
    chars = broker.consumers.subscription_chars
    if fresh and chars + fresh_chars > SUBSCRIPTION_CHARS_IN_ALL:
        _refuse_in_all("characters of subscriptions", chars, SUBSCRIPTION_CHARS_IN_ALL, None)


def check_producer(broker: Broker, group: str, connection: Connection) -> None:
    """Raise RequestError when there is no room for one more producer."""
    members = broker.producers.get(group)
    if members is None and len(broker.producers) >= broker.config.producer_groups_max:
        _refuse_in_all(
            "producer groups", len(broker.producers), broker.config.producer_groups_max, "ringmqProducerGroupsMax"
        )
    if members is None or connection not in members:
        _check_memberships(broker)


def check_lock(broker: Broker, group: str, client_id: str, queue: MessageQueue) -> None:
    """Raise RequestError when there is no room for one more lock."""
    if not broker.locks.is_new(group, client_id, queue):
        return
    used, limit = len(broker.locks), broker.config.locks_max
    if used >= limit:
        _refuse_in_all("queue locks", used, limit, "ringmqLocksMax")
    used, limit = broker.locks.count_of(client_id), broker.config.client_locks_max
    if used >= limit:
        _refuse_in_all(f"queue locks of client {client_id[:64]}", used, limit, "ringmqClientLocksMax")


def _check_memberships(broker: Broker) -> None:
    used, limit = broker.consumers.memberships + broker.producers.memberships, broker.config.memberships_max
    if used >= limit:
        _refuse_in_all("memberships of clients in groups", used, limit, "ringmqMembershipsMax")


def _refuse(what: str, count: int, things: str, limit: int, name: str) -> None:
    text = f"a {what} with {count} {things} is refused, at most {limit} are taken ({name})"
    raise RequestError(text, field=things, code=ResponseCode.SYSTEM_ERROR, limit=limit)


def _refuse_in_all(what: str, used: int, limit: int, name: str | None) -> None:
    text = f"no room for more {what}: the broker keeps {used} of at most {limit}" + (f" ({name})" if name else "")
    raise RequestError(text, field=what, code=ResponseCode.SYSTEM_BUSY, limit=limit)
