"""A consumer's subscriptions: topics with tag or SQL92 expressions. No IO."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ringmq.client.arguments import check_group_name, check_kinds, check_optional
from ringmq.remoting.names import InvalidName, check_topic, retry_topic
from ringmq.remoting.subscription import EXPRESSION_SQL92, BadSubscription, SubscriptionData, build_subscription

EXPRESSION_CHARS_MAX = 32_000


@dataclass(frozen=True, slots=True)
class Sql92:
    """A condition over message properties, as `Sql92("amount > 10 AND region = 'eu'")`. The broker evaluates it."""

    expression: str


Topics = str | Iterable[str] | Mapping[str, str | Sql92]
"""A topic, topics to be read whole, or topics with their expressions ("*", "TagA || TagB", `Sql92`)."""


def subscriptions(topics: Topics | None, group: str, version: int, *, with_retry: bool) -> dict[str, SubscriptionData]:
    """Return the subscriptions by topic, none for None. Raises ValueError, and TypeError for other kinds of names.

    `with_retry` adds the group's retry topic, to which every member of a clustering group subscribes.
    """
    check_group_name(group)
    check_optional((str, Iterable), topics=topics)
    wanted: Iterable[str] | Mapping[str, str | Sql92] = (topics,) if isinstance(topics, str) else topics or ()
    expressions = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted, "*")
    if topics is not None and not expressions:
        raise ValueError("a consumer needs at least one topic, or None and `assign`")
    try:
        found = {topic: subscription(topic, expression, version) for topic, expression in expressions.items()}
        if with_retry:
            retry = retry_topic(group)
            found[retry] = build_subscription(retry, "*", sub_version=version)
    except InvalidName as error:
        raise ValueError(str(error)) from error
    return found


def subscription(topic: str, expression: str | Sql92, version: int) -> SubscriptionData:
    """Return one topic's subscription. Raises ValueError, or TypeError for another kind of name or expression."""
    text = expression.expression if isinstance(expression, Sql92) else expression
    check_kinds(str, topic=topic)
    if not isinstance(text, str):
        raise TypeError(f"the expression for topic {topic} must be a str or Sql92, not {expression!r}")
    if len(text) > EXPRESSION_CHARS_MAX:
        raise ValueError(f"the expression for topic {topic} has {len(text)} characters, over {EXPRESSION_CHARS_MAX}")
    try:
        check_topic(topic)
        kind = EXPRESSION_SQL92 if isinstance(expression, Sql92) else None
        return build_subscription(topic, text, kind, sub_version=version)
    except (InvalidName, BadSubscription) as error:
        raise ValueError(str(error)) from error
