"""HEART_BEAT bodies and the other group membership bodies (spec remoting 4.6, 4.7, 4.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ringmq.remoting import json_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData

KnownSubscription = Callable[[str, Any], SubscriptionData | None]
"""(group, topic) -> the known subscription.

A client with very many topics repeats all of its subscriptions at each change of one.
"""

WORD_CHARS_MAX = 64
NAME_CHARS_MAX = 512
"""The longest name of an existing topic or group. Namespaces and prefixes extend the limit of new names."""
CLIENT_ID_CHARS_MAX = 1024
SUBSCRIPTION_CHARS_MAX = 16_384
"""Characters of a subscription's expression and its tags."""
CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CONSUME_POP = "CONSUME_POP"
BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"
CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(slots=True)
class ConsumerData:
    """One consumer group of a client."""

    group_name: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = CONSUME_FROM_LAST_OFFSET
    subscriptions: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "consumeFromWhere": self.consume_from_where,
            "consumeType": self.consume_type,
            "groupName": self.group_name,
            "messageModel": self.message_model,
            "subscriptionDataSet": [subscription.to_json() for subscription in self.subscriptions],
            "unitMode": self.unit_mode,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], known: KnownSubscription = lambda group, topic: None) -> ConsumerData:
        """Return the data in stock's bean. `known` replaces a subscription of the same or an older version.

        Raises `BadBody`.
        """
        made = cls.without_subscriptions(value)
        for entry in json_body.objects(value, "subscriptionDataSet"):
            made.add_subscription(entry, known)
        return made

    @classmethod
    def without_subscriptions(cls, value: dict[str, Any]) -> ConsumerData:
        """Return the data in stock's bean without its subscriptions. Raises `BadBody`."""
        return cls(
            group_name=json_body.text(value, "groupName"),
            consume_type=json_body.short_text(value, "consumeType", CONSUME_PASSIVELY, WORD_CHARS_MAX),
            message_model=json_body.short_text(value, "messageModel", CLUSTERING, WORD_CHARS_MAX),
            consume_from_where=json_body.short_text(
                value, "consumeFromWhere", CONSUME_FROM_LAST_OFFSET, WORD_CHARS_MAX
            ),
            unit_mode=json_body.boolean(value, "unitMode"),
        )

    def add_subscription(self, entry: dict[str, Any], known: KnownSubscription) -> SubscriptionData:
        """Add one SubscriptionData bean, or its replacement from `known`. Raises `BadBody`."""
        old = known(self.group_name, entry.get("topic"))
        version = entry.get("subVersion")
        if old is not None and type(version) is int and version <= old.sub_version:
            self.subscriptions.append(old)
        else:
            self.subscriptions.append(subscription_from_json(entry))
        return self.subscriptions[-1]


@dataclass(slots=True)
class HeartbeatData:
    """The whole body. `fingerprint` 0 is the V1 form, `without_sub` marks V2's short form."""

    client_id: str
    producer_groups: list[str] = field(default_factory=list)
    consumers: list[ConsumerData] = field(default_factory=list)
    fingerprint: int = 0
    without_sub: bool = False

    def encode(self) -> bytes:
        """Stock's body."""
        return json_body.write_body(
            {
                "clientID": self.client_id,
                "consumerDataSet": [consumer.to_json() for consumer in self.consumers],
                "heartbeatFingerprint": self.fingerprint,
                "producerDataSet": [{"groupName": group} for group in self.producer_groups],
                "withoutSub": self.without_sub,
            }
        )

    @classmethod
    def decode(cls, body: bytes, known: KnownSubscription = lambda group, topic: None) -> HeartbeatData:
        """Return the data in stock's body. `ConsumerData.from_json` explains `known`. Raises `BadBody`."""
        value = read_heartbeat(body)
        made = cls.without_consumers(value)
        made.consumers = [ConsumerData.from_json(entry, known) for entry in json_body.objects(value, "consumerDataSet")]
        return made

    @classmethod
    def without_consumers(cls, value: dict[str, Any]) -> HeartbeatData:
        """Return the data in stock's bean without its consumers. Raises `BadBody`."""
        return cls(
            client_id=json_body.short_text(value, "clientID", "", CLIENT_ID_CHARS_MAX),
            producer_groups=[
                json_body.short_text(entry, "groupName", "", NAME_CHARS_MAX)
                for entry in json_body.objects(value, "producerDataSet")
            ],
            fingerprint=json_body.integer(value, "heartbeatFingerprint"),
            without_sub=json_body.boolean(value, "withoutSub"),
        )


def read_heartbeat(body: bytes) -> dict[str, Any]:
    """The JSON of a heartbeat. Raises `BadBody`."""
    return json_body.read_request(body, "HeartbeatData")


def subscription_from_json(value: dict[str, Any]) -> SubscriptionData:
    """A SubscriptionData bean. Raises `BadBody`."""
    json_body.short_text(value, "topic", "", NAME_CHARS_MAX)
    tags = value.get("tagsSet")
    chars = len(json_body.text(value, "subString")) + sum(map(len, map(str, tags if isinstance(tags, list) else ())))
    if chars > SUBSCRIPTION_CHARS_MAX:
        remark = (
            f"a subscription's expression and tags have {chars} characters, at most {SUBSCRIPTION_CHARS_MAX} are taken"
        )
        raise json_body.bad_body(remark, "subscriptionDataSet")
    try:
        return SubscriptionData.from_json(value)
    except (TypeError, ValueError) as error:
        raise json_body.bad_body(f"SubscriptionData cannot be decoded: {error}", "subscriptionDataSet") from error


def encode_client_config(client_id: str, group: str, subscription: SubscriptionData) -> bytes:
    """The body of CHECK_CLIENT_CONFIG."""
    return json_body.write_body({"clientId": client_id, "group": group, "subscriptionData": subscription.to_json()})


@dataclass(slots=True)
class LockBatch:
    """The request body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    queues: list[MessageQueue]
    only_this_broker: bool = False

    def encode(self) -> bytes:
        """Stock's body."""
        return json_body.write_body(
            {
                "clientId": self.client_id,
                "consumerGroup": self.consumer_group,
                "mqSet": self.queues,
                "onlyThisBroker": self.only_this_broker,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> LockBatch:
        """From stock's body. Raises `BadBody`."""
        value = read_lock_batch(body)
        made = cls.without_queues(value)
        made.queues = [lock_queue(entry) for entry in json_body.items(value, "mqSet")]
        return made

    @classmethod
    def without_queues(cls, value: dict[str, Any]) -> LockBatch:
        """Return the batch in stock's bean without its queues. Raises `BadBody`."""
        return cls(
            consumer_group=json_body.short_text(value, "consumerGroup", "", NAME_CHARS_MAX),
            client_id=json_body.short_text(value, "clientId", "", CLIENT_ID_CHARS_MAX),
            queues=[],
            only_this_broker=json_body.boolean(value, "onlyThisBroker"),
        )


def read_lock_batch(body: bytes) -> dict[str, Any]:
    """The JSON of a LOCK_BATCH_MQ or UNLOCK_BATCH_MQ. Raises `BadBody`."""
    return json_body.read_request(body, "LockBatch")


def lock_queue(entry: object) -> MessageQueue:
    """Return a queue to lock or unlock. Raises `BadBody`."""
    queue = json_body.queue_from_json(entry)
    if len(queue.topic) + len(queue.broker_name) > NAME_CHARS_MAX:
        raise json_body.bad_body(f"a queue's names have more than {NAME_CHARS_MAX} characters", "mqSet")
    return queue


def encode_locked(queues: Iterable[MessageQueue]) -> bytes:
    """Encode the answer to LOCK_BATCH_MQ: the queues that the client has locked now."""
    return json_body.write_body({"lockOKMQSet": list(queues)})


def decode_locked(body: bytes) -> list[MessageQueue]:
    """The queues in the answer to LOCK_BATCH_MQ. Raises `BadBody`."""
    value = json_body.read_object(body, "LockBatchResponseBody")
    return [json_body.queue_from_json(entry) for entry in json_body.items(value, "lockOKMQSet")]


def encode_consumer_ids(client_ids: Iterable[str]) -> bytes:
    """The answer to GET_CONSUMER_LIST_BY_GROUP."""
    return json_body.write_body({"consumerIdList": list(client_ids)})


def decode_consumer_ids(body: bytes) -> list[str]:
    """The members in the answer to GET_CONSUMER_LIST_BY_GROUP. Raises `BadBody`."""
    value = json_body.read_object(body, "GetConsumerListByGroupResponseBody")
    return [str(client_id) for client_id in json_body.items(value, "consumerIdList")]
