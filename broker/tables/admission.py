"""The rules by which read workers redirect or refuse sends (`ringmq.ipc.admission`), one function a feature.

Control makes the rules from its configuration and the ids of the system topics, and publishes them after each change of
either. A slave has none, because its read workers refuse all sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.ipc.admission import ANY_TRANSACTION, QueueFrom, Rule, RuleKind, RulePair, ValueFrom, When
from ringmq.remoting import names, properties
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.flags import TRANSACTION_MASK
from ringmq.store.config import parse_delay_levels

TopicId = Callable[[str], int | None]
"""Looks up the id of a system topic in the plane. None if it is not there."""
Feature = Callable[[BrokerConfig, TopicId], tuple[Rule, ...]]
TIMER_NAMES = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)

_REAL = (
    RulePair(properties.REAL_TOPIC.encode(), ValueFrom.TOPIC),
    RulePair(properties.REAL_QID.encode(), ValueFrom.QUEUE),
)
_OF_HALVES = (
    RulePair(properties.TRANSACTION_ID.encode(), ValueFrom.UNIQ_KEY),
    RulePair(properties.TRANSACTION_CHECK_TIMES.encode(), ValueFrom.CUT),
    RulePair(properties.TRAN_PREPARED_QUEUE_OFFSET.encode(), ValueFrom.CUT),
)
_TIMED = (
    RulePair(properties.TIMER_OUT_MS.encode(), ValueFrom.OUT_MS),
    RulePair(properties.TIMER_ROLL_TIMES.encode(), ValueFrom.CUT),
)
"""A client's TIMER_ROLL_TIMES would tell a start that rebuilds TimerLog that another message was rolled."""
_COUNT_DIGITS, _NUMBER_DIGITS = 10, 20
TIMER_ROOM_BYTES = (
    len(properties.TIMER_ENQUEUE_MS + properties.TIMER_DEQUEUE_MS + properties.TIMER_ROLL_TIMES)
    + 2 * _NUMBER_DIGITS
    + _COUNT_DIGITS
    + 3 * len("\x01\x02")
)  # fmt: skip
"""Pairs that the copies of a timer message get at most (`ringmq.timer.publisher`). A half message needs none: a copy
without room for the count of its checks is its last one."""


def half_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A send with TRAN_MSG = true is a half message. It waits in the half topic until its transaction ends.

    As of stock (`SendMessageProcessor.sendMessage`, `TransactionalMessageBridge.parseHalfMessageInner`): TRAN_MSG alone
    decides, not the transaction bits, and a retried message with a delay level is no half message but a delayed one.
    Unlike stock, RingMQ cuts the counters that only brokers write. It refuses a half message with a delay level. Stock
    stores such a message in the system topic of the delay, where no request can end its transaction.
    """
    half, schedule = topic_id(names.HALF_TOPIC), topic_id(names.SCHEDULE_TOPIC)
    if half is None or schedule is None:
        return ()
    retried = replace(
        _delay(config, schedule),
        transaction=ANY_TRANSACTION,
        sys_flag_clear=TRANSACTION_MASK,
        with_name=properties.TRAN_MSG.encode(),
        with_when=When.TRUE,
        is_retried=True,
    )
    refusal = Rule(RuleKind.REFUSE, properties.TRAN_MSG.encode(), When.TRUE, transaction=ANY_TRANSACTION)
    if config.reject_transaction_message:
        remark = f"the broker[{config.broker_name[:63]}] sending transaction message is forbidden"
        return (retried, replace(refusal, code=ResponseCode.NO_PERMISSION, remark=remark))
    delayed = replace(
        refusal,
        code=ResponseCode.MESSAGE_ILLEGAL,
        remark=f"{properties.DELAY}: a half message cannot be delayed",
        with_name=properties.DELAY.encode(),
        with_when=When.POSITIVE,
    )
    redirect = Rule(
        RuleKind.REDIRECT,
        properties.TRAN_MSG.encode(),
        When.TRUE,
        transaction=ANY_TRANSACTION,
        topic_id=half,
        sys_flag_clear=TRANSACTION_MASK,
        pairs=(*_REAL, *_OF_HALVES),
    )
    counted = (*_timed_halves(config, topic_id, half), redirect)
    return (retried, delayed, *(_with_shares(rule, config, half) for rule in counted))


def _with_shares(rule: Rule, config: BrokerConfig, half: int) -> Rule:
    """A half beyond a share is refused at its send. So one that was stored has room until its transaction ends."""
    return replace(
        rule,
        halves_max=config.open_halves_max,
        host_halves_max=config.host_open_halves_max,
        group_halves_max=config.group_open_halves_max,
        half_topic_id=half,
    )


def _timed_halves(config: BrokerConfig, topic_id: TopicId, half: int) -> tuple[Rule, ...]:
    """A half message with a timer enters the half topic at its time, as in stock. It has lost its own topic then."""
    pairs = (
        RulePair(properties.REAL_TOPIC.encode(), ValueFrom.TEXT, names.HALF_TOPIC.encode()),
        RulePair(properties.REAL_QID.encode(), ValueFrom.TEXT, b"0"),
        *_OF_HALVES,
    )
    return tuple(
        replace(
            rule,
            name=properties.TRAN_MSG.encode(),
            when=When.TRUE,
            transaction=ANY_TRANSACTION,
            sys_flag_clear=TRANSACTION_MASK,
            pairs=(*pairs, *_TIMED),
            recall_topic_id=half,
            room_bytes=TIMER_ROOM_BYTES,
        )
        for rule in timer_rules(config, topic_id)
    )


def delay_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A send with DELAY > 0 waits in the schedule topic, in the queue of its level.

    As of stock (`HookUtils.transformDelayLevelMessage`): a level above the highest one is the highest, DELAY stays, and
    the pairs of timers go, because a delay level wins over them.
    """
    schedule = topic_id(names.SCHEDULE_TOPIC)
    if schedule is None:
        return ()
    return (_delay(config, schedule),)


def _delay(config: BrokerConfig, schedule: int) -> Rule:
    return Rule(
        RuleKind.REDIRECT,
        properties.DELAY.encode(),
        When.POSITIVE,
        topic_id=schedule,
        queue_from=QueueFrom.LEVEL,
        queue_id=len(parse_delay_levels(config.message_delay_level)),
        pairs=(
            *_REAL,
            RulePair(properties.DELAY.encode(), ValueFrom.LEVEL),
            *(RulePair(name.encode(), ValueFrom.CUT) for name in TIMER_NAMES),
        ),
    )


def timer_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A send with a time waits in the timer topic (`HookUtils.transformTimerMessage`)."""
    wheel = topic_id(names.WHEEL_TIMER_TOPIC)
    if wheel is None:
        return ()
    rule = Rule(
        RuleKind.TIMER,
        topic_id=wheel,
        pairs=(*_REAL, *_TIMED),
        precision_ms=config.timer_precision_ms if config.timer_wheel_enable else 0,
        delay_max_ms=config.timer_max_delay_sec * 1000,
        slot_messages_max=config.timer_congest_num_each_slot,
        room_bytes=TIMER_ROOM_BYTES,
    )
    return (rule,)


FEATURES: Sequence[Feature] = (half_rules, delay_rules, timer_rules)
"""In the order of their rules. The first rule that matches a send decides."""


class AdmissionRules:
    """The published rules. They follow the configuration and the topics."""

    def __init__(self, plane: PlaneProtocol, live: LiveConfig, features: Sequence[Feature] = FEATURES) -> None:
        self._plane = plane
        self._live = live
        self._features = features

    def publish(self) -> None:
        """Publish the rules if they differ from the published ones."""
        rules = self._rules()
        if rules != self._plane.admission_rules():
            self._plane.admission_publish(rules)

    def _rules(self) -> tuple[Rule, ...]:
        if self._live.is_slave:
            return ()
        return tuple(rule for make in self._features for rule in make(self._live.config, self._plane.topic_find))
