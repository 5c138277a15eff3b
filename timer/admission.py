"""The rules by which read workers redirect sends with a time, or refuse that time."""

from __future__ import annotations

from msgspec.structs import replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.admission import REAL_QUEUE, Rule, RuleKind, RulePair, TopicId, ValueFrom
from ringmq.remoting import names, properties
from ringmq.services.transactions.admission import OF_HALVES, half_topic, of_halves

_TIMED = (
    RulePair(properties.TIMER_OUT_MS.encode(), ValueFrom.OUT_MS),
    RulePair(properties.TIMER_ROLL_TIMES.encode(), ValueFrom.CUT),
)
"""A client's TIMER_ROLL_TIMES would tell a start that rebuilds TimerLog that another message was rolled."""
_COUNT_DIGITS, _NUMBER_DIGITS = 10, 20
ROOM_BYTES = (
    len(properties.TIMER_ENQUEUE_MS + properties.TIMER_DEQUEUE_MS + properties.TIMER_ROLL_TIMES)
    + 2 * _NUMBER_DIGITS
    + _COUNT_DIGITS
    + 3 * len("\x01\x02")
)  # fmt: skip
"""Pairs that the copies of a timer message get at most (`ringmq.timer.publisher`)."""


def timer_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A send with a time waits in the timer topic (`HookUtils.transformTimerMessage`)."""
    wheel = topic_id(names.WHEEL_TIMER_TOPIC)
    if wheel is None:
        return ()
    rule = Rule(
        RuleKind.TIMER,
        topic_id=wheel,
        pairs=(*REAL_QUEUE, *_TIMED),
        precision_ms=config.timer_precision_ms if config.timer_wheel_enable else 0,
        delay_max_ms=config.timer_max_delay_sec * 1000,
        slot_messages_max=config.timer_congest_num_each_slot,
        room_bytes=ROOM_BYTES,
    )
    return (rule,)


def timed_halves(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A half message with a timer enters the half topic at its time, as in stock. It has lost its own topic then."""
    half = half_topic(config, topic_id)
    if half is None:
        return ()
    pairs = (
        RulePair(properties.REAL_TOPIC.encode(), ValueFrom.TEXT, names.HALF_TOPIC.encode()),
        RulePair(properties.REAL_QID.encode(), ValueFrom.TEXT, b"0"),
        *OF_HALVES,
        *_TIMED,
    )
    return tuple(
        of_halves(replace(rule, pairs=pairs, recall_topic_id=half), config, half)
        for rule in timer_rules(config, topic_id)
    )
