"""The rules by which read workers redirect or refuse sends (`ringmq.ipc.admission`), one function a feature.

Control makes the rules from its configuration and the ids of the system topics, and publishes them after each change of
either. A slave has none, because its read workers refuse all sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.ipc.admission import QueueFrom, Rule, RuleKind, RulePair, ValueFrom, When
from ringmq.remoting import names, properties
from ringmq.remoting.codes import ResponseCode
from ringmq.store.config import parse_delay_levels

TopicId = Callable[[str], int | None]
"""Looks up the id of a system topic in the plane. None if it is not there."""
Feature = Callable[[BrokerConfig, TopicId], tuple[Rule, ...]]
TIMER_NAMES = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)


def delay_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A send with DELAY > 0 waits in the schedule topic, in the queue of its level.

    As of stock (`HookUtils.transformDelayLevelMessage`): a level above the highest one is the highest, DELAY stays, and
    the pairs of timers go, because a delay level wins over them.
    """
    schedule = topic_id(names.SCHEDULE_TOPIC)
    if schedule is None:
        return ()
    pairs = (
        RulePair(properties.REAL_TOPIC.encode(), ValueFrom.TOPIC),
        RulePair(properties.REAL_QID.encode(), ValueFrom.QUEUE),
        RulePair(properties.DELAY.encode(), ValueFrom.LEVEL),
        *(RulePair(name.encode(), ValueFrom.CUT) for name in TIMER_NAMES),
    )
    levels = len(parse_delay_levels(config.message_delay_level))
    redirect = Rule(
        RuleKind.REDIRECT,
        properties.DELAY.encode(),
        When.POSITIVE,
        topic_id=schedule,
        queue_from=QueueFrom.LEVEL,
        queue_id=levels,
        pairs=pairs,
    )
    return (redirect,)


def timer_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """Timers are not built yet. Read workers refuse them, unless a rule in front of these has matched."""
    return tuple(
        Rule(
            RuleKind.REFUSE,
            name.encode(),
            code=ResponseCode.MESSAGE_ILLEGAL,
            remark=f"{name}: timer messages are not supported yet",
        )
        for name in TIMER_NAMES
    )


FEATURES: Sequence[Feature] = (delay_rules, timer_rules)
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
