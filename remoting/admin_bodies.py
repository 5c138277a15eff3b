"""Bodies of operators' commands: lists, statistics, connections, offset tables (spec remoting 5).

Each has `encode` and `decode`, because the broker writes the bodies that the command line reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringmq.remoting import json_body
from ringmq.remoting.codes import version_name
from ringmq.remoting.config_beans import DataVersion, SubscriptionGroupConfig
from ringmq.remoting.heartbeat import subscription_from_json
from ringmq.remoting.json_body import write_body
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """KVTable."""
    return write_body({"table": dict(table)})


def decode_kv_table(body: bytes) -> dict[str, str]:
    """KVTable. Raises `BadBody`."""
    return json_body.text_mapping(json_body.read_object(body, "KVTable"), "table")


def encode_topic_list(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """TopicList."""
    bean: dict[str, Any] = {} if broker_addr is None else {"brokerAddr": broker_addr}
    bean["topicList"] = list(topics)
    return dump_json(bean)


def decode_topic_list(body: bytes) -> list[str]:
    """TopicList. Raises `BadBody`."""
    return [str(topic) for topic in json_body.items(json_body.read_object(body, "TopicList"), "topicList")]


def encode_group_list(groups: Iterable[str]) -> bytes:
    """GroupList."""
    return write_body({"groupList": list(groups)})


def decode_group_list(body: bytes) -> list[str]:
    """GroupList. Raises `BadBody`."""
    return [str(group) for group in json_body.items(json_body.read_object(body, "GroupList"), "groupList")]


@dataclass(slots=True)
class TopicOffset:
    """One queue's bounds, for GET_TOPIC_STATS_INFO.

    `last_update_ms` is the newest message's store time, 0 without messages.
    """

    min_offset: int
    max_offset: int
    last_update_ms: int


@dataclass(slots=True)
class TopicStats:
    """The body of code 202 (`TopicStatsTable`)."""

    offsets: dict[MessageQueue, TopicOffset]
    put_tps: float = 0.0

    def encode(self) -> bytes:
        """Stock's body."""
        return write_body({"offsetTable": self._table(), "topicPutTps": self.put_tps})

    def encode_entries(self) -> bytes:
        """The entries of the table alone, without its braces."""
        return write_body(self._table())[1:-1]

    def _table(self) -> dict[MessageQueue, dict[str, int]]:
        return {
            queue: {
                "lastUpdateTimestamp": entry.last_update_ms,
                "maxOffset": entry.max_offset,
                "minOffset": entry.min_offset,
            }
            for queue, entry in self.offsets.items()
        }

    @classmethod
    def decode(cls, body: bytes) -> TopicStats:
        """From stock's body. Raises `BadBody`."""
        value = json_body.read_object(body, "TopicStatsTable")
        integer = json_body.integer
        return cls(
            offsets={
                queue: TopicOffset(
                    integer(entry, "minOffset"),
                    integer(entry, "maxOffset"),
                    integer(entry, "lastUpdateTimestamp"),
                )
                for queue, entry in json_body.queue_objects(value, "offsetTable").items()
            },
            put_tps=json_body.number(value, "topicPutTps"),
        )


@dataclass(slots=True)
class ConsumeOffset:
    """One queue's progress. `pull_offset` is the group's next offset to pull, or to pop.

    `last_ms` is the store time of the last consumed message. `open_messages` are those that the group has popped and
    not acknowledged, None for pulls and for stock brokers.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_ms: int
    open_messages: int | None = None

    @property
    def lag(self) -> int:
        """Messages that the group has not consumed. Behind an open message others may be done. Without one the offset
        alone counts: `pull_offset` may be that of a topic that was deleted and made anew."""
        if not self.open_messages:
            return self.broker_offset - self.consumer_offset
        return max(0, self.broker_offset - self.pull_offset) + self.open_messages


@dataclass(slots=True)
class ConsumeStats:
    """The body of code 208."""

    offsets: dict[MessageQueue, ConsumeOffset]
    consume_tps: float = 0.0

    def to_json(self) -> dict[Any, Any]:
        """Stock's bean. `openMessages` is of RingMQ alone; stock's tools pass over it."""
        table = {
            queue: {
                "brokerOffset": entry.broker_offset,
                "consumerOffset": entry.consumer_offset,
                "lastTimestamp": entry.last_ms,
                **({} if entry.open_messages is None else {"openMessages": entry.open_messages}),
                "pullOffset": entry.pull_offset,
            }
            for queue, entry in self.offsets.items()
        }
        return {"consumeTps": self.consume_tps, "offsetTable": table}

    def encode(self) -> bytes:
        """Stock's body."""
        return write_body(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> ConsumeStats:
        """From stock's body. Raises `BadBody`."""
        value = json_body.read_object(body, "ConsumeStats")
        integer = json_body.integer
        return cls(
            offsets={
                queue: ConsumeOffset(
                    integer(entry, "brokerOffset"),
                    integer(entry, "consumerOffset"),
                    integer(entry, "pullOffset"),
                    integer(entry, "lastTimestamp"),
                    integer(entry, "openMessages") if "openMessages" in entry else None,
                )
                for queue, entry in json_body.queue_objects(value, "offsetTable").items()
            },
            consume_tps=json_body.number(value, "consumeTps"),
        )


def decode_delays(body: bytes) -> dict[MessageQueue, int]:
    """Decode the answer to 303: by queue, the age in ms of the oldest message that the group has not consumed.

    0: there is none, or its time is not known. Raises `BadBody`.
    """
    spans = json_body.objects(json_body.read_object(body, "QueryConsumeTimeSpanBody"), "consumeTimeSpanSet")
    return {
        json_body.queue_from_json(span.get("messageQueue")): max(0, json_body.integer(span, "delayTime"))
        for span in spans
    }


@dataclass(slots=True)
class Connection:
    """A live client of a group."""

    client_id: str
    client_addr: str
    language: str
    version: int

    @property
    def version_desc(self) -> str:
        """The version's name."""
        return version_name(self.version)

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "clientAddr": self.client_addr,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Connection:
        """From stock's bean. Raises `BadBody`."""
        text = json_body.text
        return cls(
            text(value, "clientId"),
            text(value, "clientAddr"),
            text(value, "language"),
            json_body.integer(value, "version"),
        )


@dataclass(slots=True)
class ConsumerConnection:
    """The body of code 203."""

    connections: list[Connection]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Stock's body."""
        return write_body(
            {
                "connectionSet": [connection.to_json() for connection in self.connections],
                "consumeFromWhere": self.consume_from_where,
                "consumeType": self.consume_type,
                "messageModel": self.message_model,
                "subscriptionTable": {topic: entry.to_json() for topic, entry in self.subscriptions.items()},
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> ConsumerConnection:
        """From stock's body. Raises `BadBody`."""
        value = json_body.read_object(body, "ConsumerConnection")
        table = json_body.mapping(value, "subscriptionTable")
        return cls(
            connections=[Connection.from_json(entry) for entry in json_body.objects(value, "connectionSet")],
            consume_type=json_body.text(value, "consumeType"),
            message_model=json_body.text(value, "messageModel"),
            consume_from_where=json_body.text(value, "consumeFromWhere"),
            subscriptions={topic: subscription_from_json(json_body.mapping(table, topic)) for topic in table},
        )


@dataclass(slots=True)
class GroupConfigTable:
    """The body of code 201 (`SubscriptionGroupWrapper`)."""

    groups: dict[str, SubscriptionGroupConfig]
    data_version: DataVersion
    forbidden: dict[str, dict[str, int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Stock's body."""
        return write_body(
            {
                "dataVersion": self.data_version.to_json(),
                "forbiddenTable": self.forbidden,
                "subscriptionGroupTable": {name: group.to_json() for name, group in self.groups.items()},
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> GroupConfigTable:
        """From stock's body. Raises `BadBody`."""
        value = json_body.read_object(body, "SubscriptionGroupWrapper")
        table = json_body.mapping(value, "subscriptionGroupTable")
        forbidden = json_body.mapping(value, "forbiddenTable")
        return cls(
            groups={name: SubscriptionGroupConfig.from_json(json_body.mapping(table, name)) for name in table},
            data_version=DataVersion.from_json(json_body.mapping(value, "dataVersion")),
            forbidden={
                group: {
                    topic: json_body.as_integer(bits, "forbiddenTable")
                    for topic, bits in json_body.mapping(forbidden, group).items()
                }
                for group in forbidden
            },
        )


def encode_queue_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Encode the answer to 222: the new offset of each queue."""
    return write_body({"offsetTable": dict(offsets)})


def decode_queue_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Decode the answer to 222. Raises `BadBody`."""
    value = json_body.read_object(body, "ResetOffsetBody")
    table = json_body.queue_mapping(value, "offsetTable")
    return {queue: json_body.as_integer(offset, "offsetTable") for queue, offset in table.items()}
