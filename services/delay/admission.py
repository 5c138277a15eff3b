"""The rule by which read workers redirect sends with a delay level."""

from __future__ import annotations

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.admission import REAL_QUEUE, QueueFrom, Rule, RuleKind, RulePair, TopicId, ValueFrom, When
from ringmq.remoting import names, properties
from ringmq.store.config import parse_delay_levels


def delay_rules(config: BrokerConfig, topic_id: TopicId) -> tuple[Rule, ...]:
    """A send with DELAY > 0 waits in the schedule topic, in the queue of its level.

    As of stock (`HookUtils.transformDelayLevelMessage`): a level above the highest one is the highest, DELAY stays, and
    the pairs of a time go, because a delay level wins over them.
    """
    schedule = topic_id(names.SCHEDULE_TOPIC)
    if schedule is None:
        return ()
    return (
        Rule(
            RuleKind.REDIRECT,
            properties.DELAY.encode(),
            When.POSITIVE,
            topic_id=schedule,
            queue_from=QueueFrom.LEVEL,
            queue_id=len(parse_delay_levels(config.message_delay_level)),
            pairs=(
                *REAL_QUEUE,
                RulePair(properties.DELAY.encode(), ValueFrom.LEVEL),
                *(RulePair(name.encode(), ValueFrom.CUT) for name in properties.TIMES_ASKED),
            ),
        ),
    )
