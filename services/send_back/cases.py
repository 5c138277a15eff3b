"""The decision about a message that a consumer sends back, as a table of cases in stock's order.

Facts of apache/rocketmq 5.3.3, `AbstractSendMessageProcessor.consumerSendMsgBack`. Stock compares originTopic with
nothing, and it looks at no permission of a dead letter topic. Stock makes the group and its topics before it looks for
the message. Here every refusal comes first, so a refused request makes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from ringmq.broker.requests.request import FAQ
from ringmq.remoting import names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.services.topics import GroupRetry

NEW_GROUP = SubscriptionGroupConfig("")
FIRST_LEVEL = 3
"""Delay level of the first retry, if the consumer leaves the level to the broker."""
TOPIC_BYTES_MAX = 127
RETRY_TOPIC_BYTES_MAX = 255
_INT32 = 1 << 31


class RetryTopic(Struct, frozen=True):
    """A retry topic that exists."""

    is_writable: bool


class Source(Struct, frozen=True):
    """The record that is sent back."""

    reconsume_times: int


class SendBack(Struct, frozen=True):
    """A request 36. `times_max`: the request's maxReconsumeTimes, if the client's version lets it count."""

    group: str
    offset: int
    delay_level: int = 0
    unit_mode: bool = False
    times_max: int | None = None


class Seen(Struct, frozen=True):
    """The facts for one decision. `asked` names the outcomes Make that control has answered."""

    broker_host: str
    broker_writable: bool = True
    group: GroupRetry | None = None
    retry_topic: RetryTopic | None = None
    has_dead_letter_topic: bool = False
    source: Source | None = None
    asked: frozenset[Make] = frozenset()
    group_may_be_made: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Outcome: nothing is stored."""

    code: int
    remark: str
    has_no_record: bool = field(default=False, compare=False)
    """True if the reason is that the position holds no message of a consumer."""


class StoreNothing(Struct, frozen=True):
    """Outcome: answer 0, though nothing is stored. The group has no retry queues."""


class Make(Struct, frozen=True):
    """Outcome: ask control for the group and its topics, then decide again."""

    dead: bool


class Store(Struct, frozen=True):
    """Outcome: store a copy. `level`: its delay level. A level of 0 or less delays nothing."""

    topic: str
    level: int
    queues: int
    """The copy goes to one of these queues at random."""
    is_dead: bool = False


Outcome = Refuse | StoreNothing | Make | Store


class Case(Struct, frozen=True):
    """A case, and its outcome. The first case that applies decides."""

    name: str
    applies: Callable[[SendBack, Seen], bool]
    outcome: Callable[[SendBack, Seen], Outcome]


def decide(asked: SendBack, seen: Seen) -> Outcome:
    """The outcome of the first case that applies. The last case always does."""
    return next(case.outcome(asked, seen) for case in CASES if case.applies(asked, seen))


def _is_dead(asked: SendBack, seen: Seen) -> bool:
    assert seen.source is not None
    times_max = _group(seen).times_max if asked.times_max is None else asked.times_max
    return asked.delay_level < 0 or seen.source.reconsume_times >= times_max


def _level(asked: SendBack, seen: Seen) -> int:
    """The level that the copy gets, an int32 as in stock. The rule of delays clamps it to the highest one."""
    assert seen.source is not None
    level = asked.delay_level or FIRST_LEVEL + seen.source.reconsume_times
    return (level + _INT32) % (2 * _INT32) - _INT32


def _group(seen: Seen) -> GroupRetry:
    """The group's settings, or those that a new group gets."""
    return seen.group or GroupRetry(NEW_GROUP.retry_queue_nums, NEW_GROUP.retry_max_times)


def _may_make(asked: SendBack, seen: Seen) -> bool:
    is_missing = seen.group is None or seen.retry_topic is None
    is_dead = _is_dead(asked, seen)
    return (is_missing or (is_dead and not seen.has_dead_letter_topic)) and Make(is_dead) not in seen.asked


def _too_long(asked: SendBack, seen: Seen) -> bool:
    if _is_dead(asked, seen):
        return len(names.dlq_topic(asked.group).encode()) > TOPIC_BYTES_MAX
    return len(names.retry_topic(asked.group).encode()) > RETRY_TOPIC_BYTES_MAX


def _no_topic(name: Callable[[str], str]) -> Callable[[SendBack, Seen], Outcome]:
    return lambda asked, seen: Refuse(ResponseCode.SYSTEM_ERROR, f"topic[{name(asked.group)}] not exist")


CASES: Sequence[Case] = (
    Case(
        "no group",
        lambda asked, seen: seen.group is None and (not seen.group_may_be_made or bool(seen.asked)),
        lambda asked, seen: Refuse(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {asked.group} {FAQ}"
        ),
    ),
    Case(
        "the broker is not writable",
        lambda asked, seen: not seen.broker_writable,
        lambda asked, seen: Refuse(
            ResponseCode.NO_PERMISSION, f"the broker[{seen.broker_host}] sending message is forbidden"
        ),
    ),
    Case("no retry queues", lambda asked, seen: _group(seen).queues <= 0, lambda asked, seen: StoreNothing()),
    Case(
        "the retry topic is not writable",
        lambda asked, seen: seen.retry_topic is not None and not seen.retry_topic.is_writable,
        lambda asked, seen: Refuse(
            ResponseCode.NO_PERMISSION, f"the topic[{names.retry_topic(asked.group)}] sending message is forbidden"
        ),
    ),
    Case(
        "no record",
        lambda asked, seen: seen.source is None,
        lambda asked, seen: Refuse(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {asked.offset}", True),
    ),
    Case(
        "the topic's name is too long",
        _too_long,
        lambda asked, seen: Refuse(ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL"),
    ),
    Case("what is missing may be made", _may_make, lambda asked, seen: Make(_is_dead(asked, seen))),
    Case("no retry topic", lambda asked, seen: seen.retry_topic is None, _no_topic(names.retry_topic)),
    Case(
        "a retry",
        lambda asked, seen: not _is_dead(asked, seen),
        lambda asked, seen: Store(names.retry_topic(asked.group), _level(asked, seen), _group(seen).queues),
    ),
    Case("no dead letter topic", lambda asked, seen: not seen.has_dead_letter_topic, _no_topic(names.dlq_topic)),
    Case(
        "a dead letter",
        lambda asked, seen: True,
        lambda asked, seen: Store(names.dlq_topic(asked.group), 0, 1, is_dead=True),
    ),
)
