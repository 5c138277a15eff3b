"""The configuration beans of brokers: DataVersion, TopicConfig, SubscriptionGroupConfig.

Brokers store them, register them and send them to each other. `to_json` gives stock's keys in stock's (alphabetical)
order. `from_json` accepts any order and missing keys.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ringmq.remoting import json_body
from ringmq.remoting.flags import PERM_READ_WRITE

DEFAULT_TOPIC_QUEUES = 16
Result = TypeVar("Result")
SLICE_TOPICS = 500
"""The topics that are read between two pauses, in about 1 ms."""
CUSTOMIZED = "CUSTOMIZED"
EXPONENTIAL = "EXPONENTIAL"
EXPONENTIAL_MS = {"initial": 5_000, "max": 7_200_000, "multiplier": 2}
CUSTOMIZED_MS = tuple(1000 * seconds for seconds in (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200))


def finish(slices: Generator[None, None, Result]) -> Result:
    """Run a generator with pauses to its end at once, and return its return value."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            result: Result = done.value
            return result


@dataclass(slots=True)
class DataVersion:
    """The version of a table, which steps at each change. A name server with an equal version skips the table."""

    counter: int = 0
    state_version: int = 0
    timestamp_ms: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> None:
        """Step in place."""
        self.timestamp_ms = now_ms
        self.state_version = state_version
        self.counter += 1

    def copy(self) -> DataVersion:
        """A snapshot."""
        return DataVersion(self.counter, self.state_version, self.timestamp_ms)

    def to_json(self) -> dict[str, int]:
        """Stock's bean."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp_ms}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DataVersion:
        """From stock's bean; disk forms may hold the counter as an object."""
        counter = value.get("counter")
        return cls(
            counter=json_body.integer(value, "counter") if not isinstance(counter, dict) else 0,
            state_version=json_body.integer(value, "stateVersion"),
            timestamp_ms=json_body.integer(value, "timestamp"),
        )


@dataclass(slots=True)
class TopicConfig:
    """A topic on one broker. `perm` is a `Perm` set."""

    topic_name: str
    read_queue_nums: int = DEFAULT_TOPIC_QUEUES
    write_queue_nums: int = DEFAULT_TOPIC_QUEUES
    perm: int = int(PERM_READ_WRITE)
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def queue_count(self) -> int:
        """Queues that exist for reading or writing."""
        return max(self.read_queue_nums, self.write_queue_nums)

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "attributes": self.attributes,
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TopicConfig:
        """From stock's bean. Raises `BadBody`."""
        return cls(
            topic_name=json_body.text(value, "topicName"),
            read_queue_nums=json_body.integer(value, "readQueueNums", DEFAULT_TOPIC_QUEUES),
            write_queue_nums=json_body.integer(value, "writeQueueNums", DEFAULT_TOPIC_QUEUES),
            perm=json_body.integer(value, "perm", PERM_READ_WRITE),
            topic_filter_type=json_body.text(value, "topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=json_body.integer(value, "topicSysFlag"),
            order=json_body.boolean(value, "order"),
            attributes=json_body.text_mapping(value, "attributes"),
        )


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """A consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": CUSTOMIZED})
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[dict[str, Any], ...] | None = None
    attributes: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        bean: dict[str, Any] = {
            "attributes": self.attributes,
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.group_name,
            "groupRetryPolicy": self.group_retry_policy,
            "groupSysFlag": self.group_sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
        }
        if self.subscription_data_set is not None:
            bean["subscriptionDataSet"] = self.subscription_data_set
        bean["whichBrokerWhenConsumeSlowly"] = self.which_broker_when_consume_slowly
        return bean

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SubscriptionGroupConfig:
        """From stock's bean. Raises `BadBody`."""
        read_int, read_bool = json_body.integer, json_body.boolean
        return cls(
            group_name=json_body.text(value, "groupName"),
            consume_enable=read_bool(value, "consumeEnable", True),
            consume_from_min_enable=read_bool(value, "consumeFromMinEnable", True),
            consume_broadcast_enable=read_bool(value, "consumeBroadcastEnable", True),
            consume_message_orderly=read_bool(value, "consumeMessageOrderly"),
            retry_queue_nums=read_int(value, "retryQueueNums", 1),
            retry_max_times=read_int(value, "retryMaxTimes", 16),
            group_retry_policy=_retry_policy(json_body.mapping(value, "groupRetryPolicy")),
            broker_id=read_int(value, "brokerId"),
            which_broker_when_consume_slowly=read_int(value, "whichBrokerWhenConsumeSlowly", 1),
            notify_consumer_ids_changed_enable=read_bool(value, "notifyConsumerIdsChangedEnable", True),
            group_sys_flag=read_int(value, "groupSysFlag"),
            consume_timeout_minute=read_int(value, "consumeTimeoutMinute", 15),
            subscription_data_set=_simple_subscriptions(value),
            attributes=json_body.text_mapping(value, "attributes"),
        )


def _retry_policy(value: dict[str, Any]) -> dict[str, Any]:
    """Return the members of GroupRetryPolicy, with defaults for missing inner members.

    Stock reads an unknown type as CUSTOMIZED.
    """
    policy: dict[str, Any] = {}
    if value.get("customizedRetryPolicy") is not None:
        delays = json_body.mapping(value, "customizedRetryPolicy")
        given = tuple(json_body.as_integer(delay_ms, "next") for delay_ms in json_body.items(delays, "next"))
        policy["customizedRetryPolicy"] = {"next": CUSTOMIZED_MS if delays.get("next") is None else given}
    if value.get("exponentialRetryPolicy") is not None:
        numbers = json_body.mapping(value, "exponentialRetryPolicy")
        policy["exponentialRetryPolicy"] = {
            name: json_body.integer(numbers, name, default) for name, default in EXPONENTIAL_MS.items()
        }
    kind = json_body.text(value, "type", CUSTOMIZED)
    policy["type"] = kind if kind == EXPONENTIAL else CUSTOMIZED
    return policy


def _simple_subscriptions(value: dict[str, Any]) -> tuple[dict[str, Any], ...] | None:
    """Return the set of SimpleSubscriptionData, None without one."""
    if value.get("subscriptionDataSet") is None:
        return None
    names = ("expression", "expressionType", "topic")
    return tuple(
        {name: json_body.text(entry, name) for name in names if entry.get(name) is not None}
        | {"version": json_body.integer(entry, "version")}
        for entry in json_body.objects(value, "subscriptionDataSet")
    )


@dataclass(slots=True)
class TopicConfigTable:
    """The body of code 21 and the inner part of a registration (`TopicConfigAndMappingSerializeWrapper`)."""

    topics: dict[str, TopicConfig]
    data_version: DataVersion
    mapping_data_version: DataVersion = field(default_factory=DataVersion)

    def to_json(self) -> dict[str, Any]:
        """Return stock's bean. RingMQ has no static topics."""
        return {
            "dataVersion": self.data_version.to_json(),
            "mappingDataVersion": self.mapping_data_version.to_json(),
            "topicConfigTable": {name: topic.to_json() for name, topic in self.topics.items()},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TopicConfigTable:
        """From stock's bean. Raises `BadBody`."""
        return finish(cls.from_json_slices(value))

    @classmethod
    def from_json_slices(
        cls, value: dict[str, Any], topics_max: int = 1 << 62
    ) -> Generator[None, None, TopicConfigTable]:
        """Like `from_json`, with a pause after every SLICE_TOPICS topics.

        Raises `BadBody`, also beyond `topics_max`.
        """
        table = json_body.mapping(value, "topicConfigTable")
        if len(table) > topics_max:
            raise json_body.bad_body(f"{len(table)} topics are over {topics_max}", "topicConfigTable")
        topics: dict[str, TopicConfig] = {}
        for count, name in enumerate(table, 1):
            topic = topics[name] = TopicConfig.from_json(json_body.mapping(table, name))
            topic.topic_name = topic.topic_name or name
            if count % SLICE_TOPICS == 0:
                yield
        return cls(
            topics=topics,
            data_version=DataVersion.from_json(json_body.mapping(value, "dataVersion")),
            mapping_data_version=DataVersion.from_json(json_body.mapping(value, "mappingDataVersion")),
        )
