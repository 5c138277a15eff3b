"""The queue and the edits of a message that comes again or becomes a dead letter."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ringmq.ipc.admission import Rule
from ringmq.remoting.codes import ResponseCode
from ringmq.services.redirects import Redirect, delay_rule, redirect
from ringmq.services.send_back.batches import CopyTarget
from ringmq.services.send_back.cases import Refuse, Store
from ringmq.services.topics import Topics
from ringmq.store.record_copy import EditKind, From, PairEdit

REDIRECTS_MAX = 1024
"""Redirects that are kept from batch to batch."""


def edits(level: int) -> tuple[PairEdit, ...]:
    """Edits of the pairs of a message that is sent back."""
    return (
        PairEdit(EditKind.DEFAULT, b"RETRY_TOPIC", From.TOPIC),
        PairEdit(EditKind.SET, b"WAIT", b"false"),
        PairEdit(EditKind.SET, b"DELAY", level),
        PairEdit(EditKind.DEFAULT, b"ORIGIN_MESSAGE_ID", From.MESSAGE_ID),
    )


DEAD_EDITS = edits(0)


class Targets:
    """Looks up targets. `random(n)` is a number below n."""

    def __init__(self, topics: Topics, rules: Callable[[], tuple[Rule, ...]], random: Callable[[int], int]) -> None:
        self._topics, self._rules, self._random = topics, rules, random
        self._rule: Rule | None = None
        self._redirects: dict[tuple[str, int, int], Redirect] = {}

    def of(self, store: Store, count: int) -> list[CopyTarget] | Refuse:
        """Targets for `count` equal copies, one at least and not more than the copies have queues."""
        topic = self._topics.find(store.topic)
        queues = 0 if topic is None else min(store.queues, max(topic.read_queues, topic.write_queues))
        found = [self._target(store, self._random(queues) if queues else 0) for _ in range(min(count, max(1, queues)))]
        targets = [target for target in found if isinstance(target, CopyTarget)]
        return targets or next(target for target in found if isinstance(target, Refuse))

    def _target(self, store: Store, queue_id: int) -> CopyTarget | Refuse:
        target, pairs = self._topics.queue(store.topic, queue_id), DEAD_EDITS if store.is_dead else None
        if target is not None and store.level > 0:
            moved = self._redirect(store, queue_id)
            if moved is None:
                remark = "[OVERLOAD]the rule for delay levels is not there yet, try again later"
                return Refuse(ResponseCode.SYSTEM_BUSY, remark)
            target, pairs = self._topics.queue_of(moved.topic_id, moved.queue_id), moved.edits
        if target is None:
            return Refuse(ResponseCode.SYSTEM_ERROR, f"topic[{store.topic}] has no queue {queue_id}")
        return CopyTarget(target, edits(store.level) if pairs is None else pairs)

    def _redirect(self, store: Store, queue_id: int) -> Redirect | None:
        """The queue and all edits of a delayed copy. Equal copies share one object, which is compared fast."""
        key = store.topic, queue_id, store.level
        known = self._redirects.get(key)
        if known is not None:
            return known
        self._rule = self._rule or delay_rule(self._rules())
        if self._rule is None:
            return None
        moved = redirect(self._rule, store.level, store.topic, queue_id)
        edited = {pair.name for pair in moved.edits}
        kept = (pair for pair in edits(store.level) if pair.name not in edited)
        if len(self._redirects) >= REDIRECTS_MAX:
            self._redirects.clear()
        self._redirects[key] = known = replace(moved, edits=(*kept, *moved.edits))
        return known
