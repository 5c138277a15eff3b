"""Names of topics and groups: legal names, and the system's own (`TopicValidator`, spec remoting 7.10, 7.11)."""

from __future__ import annotations

import re

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"

MAX_TOPIC_CHARS = 127
"""The longest topic name, in 5.3.3 also for %RETRY% and %DLQ% names of a send."""
MAX_GROUP_CHARS = 120

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
WHEEL_TIMER_TOPIC = "rmq_sys_wheel_timer"
STAGED_TOPIC = SYSTEM_TOPIC_PREFIX + "RINGMQ_STAGED_WRITES"
COMMITS_TOPIC = SYSTEM_TOPIC_PREFIX + "RINGMQ_COMMITS"
STAGED_TOPICS = frozenset({STAGED_TOPIC, COMMITS_TOPIC})
"""Topics whose records no request shows. They hold query ids, and a commit needs no other proof of its writer."""

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        COMMITS_TOPIC,
        WHEEL_TIMER_TOPIC,
    }
)
NOT_ALLOWED_SEND_PREFIXES = ("%LMQ%", SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_")

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""Brokers keep their progress with transactions as offsets of this group."""

SYSTEM_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        TRANSACTION_GROUP,
    }
)
"""Groups that every broker has."""

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]*")


class InvalidName(RequestError):
    """A topic or group name that the protocol does not allow. The answer is INVALID_PARAMETER."""

    def __init__(self, message: str, *, field: str, limit: int | None = None) -> None:
        super().__init__(message, field=field, code=ResponseCode.INVALID_PARAMETER, limit=limit)


def check_topic(topic: str, max_chars: int = MAX_TOPIC_CHARS) -> None:
    """Raise `InvalidName` unless a client may use this topic name."""
    _check_name("topic", topic, max_chars)


def check_group(group: str, max_chars: int = MAX_GROUP_CHARS) -> None:
    """Raise `InvalidName` unless this is a legal group name."""
    _check_name("group", group, max_chars)


def is_system_topic(topic: str) -> bool:
    """True if clients may neither create nor delete the topic. The broker adds the names of broker and cluster."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_send_forbidden(topic: str) -> bool:
    """True if a client's send to the topic is answered NO_PERMISSION.

    The list is longer than stock's. Records in the topics of timers and POP stand for messages of other topics. Light
    queues count as unserved (store/unsupported.py), so they would make the next start fail.
    """
    return topic in NOT_ALLOWED_SEND_TOPICS or topic.startswith(NOT_ALLOWED_SEND_PREFIXES)


def is_retry_topic(topic: str) -> bool:
    """`%RETRY%group`."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """`%DLQ%group`."""
    return topic.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    """The topic with the group's messages to retry."""
    return RETRY_PREFIX + group


def pop_retry_topic(group: str, topic: str, *, is_v2: bool) -> str:
    """The topic with the group's messages of a topic that POP gives again (`KeyBuilder.buildPopRetryTopic`)."""
    return f"{RETRY_PREFIX}{group}{'+' if is_v2 else '_'}{topic}"


def dlq_topic(group: str) -> str:
    """The topic with the messages whose retries the group has used up."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic with the answers of request-reply."""
    return f"{cluster}_REPLY_TOPIC"


def is_reply_topic(topic: str) -> bool:
    """True for the reply topic of any cluster."""
    return topic.endswith(reply_topic(""))


def revive_topic(cluster: str) -> str:
    """POP's revive log."""
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"


def sync_member_topic(broker_name: str) -> str:
    """The topic by which a broker group shares its members."""
    return f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker_name}"


def _check_name(field: str, name: str, max_chars: int) -> None:
    """Raise `InvalidName` with stock's texts (`TopicValidator`), which operators and their tools know."""
    if not name.strip():
        raise InvalidName(f"The specified {field} is blank.", field=field)
    match = _LEGAL.match(name)
    if match is None or match.end() != len(name):
        raise InvalidName(
            f"The specified {field} contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$", field=field
        )
    if len(name) > max_chars:
        raise InvalidName(
            f"The specified {field} is longer than {field} max length. It has {len(name)} characters, "
            f"the limit is {max_chars}",
            field=field,
            limit=max_chars,
        )
