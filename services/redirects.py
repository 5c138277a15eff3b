"""The redirect of a delayed copy, by the admission rule that read workers apply to delayed sends."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ringmq.ipc.admission import Rule, RuleKind, ValueFrom
from ringmq.remoting import properties
from ringmq.store.record_copy import EditKind, PairEdit

DELAY = properties.DELAY.encode()


class Redirect(Struct, frozen=True):
    """The queue in which a copy waits, and the edits of its pairs."""

    topic_id: int
    queue_id: int
    edits: tuple[PairEdit, ...]


def delay_rule(rules: Iterable[Rule]) -> Rule | None:
    """The rule for sends with DELAY > 0. None if none is published: the broker is no master."""
    return next((rule for rule in rules if rule.kind is RuleKind.REDIRECT and rule.name == DELAY), None)


def redirect(rule: Rule, level: int, topic: str, queue_id: int) -> Redirect:
    """Redirect a copy for a queue of `topic`, with a delay level above 0."""
    level = min(level, rule.queue_id)
    values: dict[ValueFrom, bytes | int] = {
        ValueFrom.TOPIC: topic.encode(),
        ValueFrom.QUEUE: queue_id,
        ValueFrom.LEVEL: level,
    }
    edits = tuple(
        PairEdit(EditKind.REMOVE, pair.name)
        if pair.value_from is ValueFrom.CUT
        else PairEdit(EditKind.SET, pair.name, values.get(pair.value_from, pair.text))
        for pair in rule.pairs
    )
    return Redirect(rule.topic_id, level - 1, edits)
