"""A consumer's subscriptions: topics with tag or SQL92 expressions. No IO."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ringmq.remoting.names import InvalidName, check_group, check_topic, retry_topic
from ringmq.remoting.subscription import EXPRESSION_SQL92, BadSubscription, SubscriptionData, build_subscription

EXPRESSION_CHARS_MAX = 32_000


@dataclass(frozen=True, slots=True)
class Sql92:
    """A condition over message properties, as `Sql92("amount > 10 AND region = 'eu'")`. The broker evaluates it."""

    expression: str


Topics = str | Iterable[str] | Mapping[str, str | Sql92]
"""A topic, topics to be read whole, or topics with their expressions ("*", "TagA || TagB", `Sql92`)."""


def subscriptions(topics: Topics, group: str, version: int, *, with_retry: bool) -> dict[str, SubscriptionData]:
    """Return the subscriptions by topic. Raises ValueError.

    `with_retry` adds the group's retry topic, to which every member of a clustering group subscribes.
    """
    wanted = {topics: "*"} if isinstance(topics, str) else topics
    expressions = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted, "*")
    try:
        check_group(group)
        found = {topic: subscription(topic, expression, version) for topic, expression in expressions.items()}
        if with_retry:
            retry = retry_topic(group)
            found[retry] = build_subscription(retry, "*", sub_version=version)
    except InvalidName as error:
        raise ValueError(str(error)) from error
    return found


def subscription(topic: str, expression: str | Sql92, version: int) -> SubscriptionData:
    """Return one topic's subscription. Raises ValueError."""
    text = expression.expression if isinstance(expression, Sql92) else expression
    if len(text) > EXPRESSION_CHARS_MAX:
        raise ValueError(f"the expression for topic {topic} has {len(text)} characters, over {EXPRESSION_CHARS_MAX}")
    try:
        check_topic(topic)
        kind = EXPRESSION_SQL92 if isinstance(expression, Sql92) else None
        return build_subscription(topic, text, kind, sub_version=version)
    except (InvalidName, BadSubscription) as error:
        raise ValueError(str(error)) from error
