"""Answers of a consumer to an operator, through its broker. Stock's beans.

These are running info (307), a message consumed now (309) and the consumer's offsets (221).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringmq.remoting import json_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData

PROP_NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"

CR_SUCCESS = "CR_SUCCESS"
CR_LATER = "CR_LATER"
CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"


@dataclass(slots=True)
class ProcessQueueInfo:
    """One queue of a consumer. Offsets of messages, times in ms."""

    commit_offset: int = 0
    cached_min_offset: int = 0
    cached_max_offset: int = 0
    cached_count: int = 0
    cached_mib: int = 0
    locked: bool = False
    last_lock_timestamp_ms: int = 0
    last_pull_timestamp_ms: int = 0
    last_consume_timestamp_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return stock's bean. Fields of stock's own orderly cache stay 0."""
        return {
            "cachedMsgCount": self.cached_count,
            "cachedMsgMaxOffset": self.cached_max_offset,
            "cachedMsgMinOffset": self.cached_min_offset,
            "cachedMsgSizeInMiB": self.cached_mib,
            "commitOffset": self.commit_offset,
            "droped": False,
            "lastConsumeTimestamp": self.last_consume_timestamp_ms,
            "lastLockTimestamp": self.last_lock_timestamp_ms,
            "lastPullTimestamp": self.last_pull_timestamp_ms,
            "locked": self.locked,
            "transactionMsgCount": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgMinOffset": 0,
            "tryUnlockTimes": 0,
        }


@dataclass(slots=True)
class ConsumeStatus:
    """Rates of one topic per second, times in ms. `failed_messages` counts those of the last hour."""

    pull_rt_ms: float = 0.0
    pull_tps: float = 0.0
    consume_rt_ms: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    failed_messages: int = 0

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "consumeFailedMsgs": self.failed_messages,
            "consumeFailedTPS": self.consume_failed_tps,
            "consumeOKTPS": self.consume_ok_tps,
            "consumeRT": self.consume_rt_ms,
            "pullRT": self.pull_rt_ms,
            "pullTPS": self.pull_tps,
        }


@dataclass(slots=True)
class ConsumerRunningInfo:
    """The answer to 307."""

    properties: dict[str, str]
    subscriptions: list[SubscriptionData]
    queues: dict[MessageQueue, ProcessQueueInfo]
    statuses: dict[str, ConsumeStatus]
    user_info: dict[str, str] = field(default_factory=dict)
    stacks: str | None = None

    def encode(self) -> bytes:
        """Stock's body."""
        value: dict[str, Any] = {
            "mqPopTable": {},
            "mqTable": {queue: self.queues[queue].to_json() for queue in sorted(self.queues)},
            "properties": self.properties,
            "statusTable": {topic: self.statuses[topic].to_json() for topic in sorted(self.statuses)},
            "subscriptionSet": [subscription.to_json() for subscription in self.subscriptions],
            "userConsumerInfo": self.user_info,
        }
        if self.stacks is not None:
            value["jstack"] = self.stacks
        return json_body.write_body(value)


def encode_direct_result(result: str, *, ordered: bool, remark: str | None, spent_ms: int) -> bytes:
    """The answer to 309: `result` is one of the CR_ names."""
    return json_body.write_body(
        {
            "autoCommit": True,
            "consumeResult": result,
            "order": ordered,
            "remark": remark,
            "spentTimeMills": spent_ms,
        }
    )


def encode_consumer_status(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Encode the answer to 221: the next offset of each queue."""
    return json_body.write_body({"consumerTable": {}, "messageQueueTable": dict(offsets)})
