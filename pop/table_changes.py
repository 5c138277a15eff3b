"""Resets and deletions, of which control tells: what consumers hold of them ends before the operator has his answer.

A reset is one store in the memory that the worker shares with control (`ringmq.pop.offsets`). A deletion has happened
when control tells of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from ringmq.broker.requests.holder_asks import DeletionAsk, ResetAsk
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.plane import Plane
from ringmq.pop.offsets import Offsets, Reset
from ringmq.pop.window_names import WindowNames

STEPS_PER_TURN = 16
"""Steps of a deletion in one turn, up to 0.4 ms each."""


class TableChanges:
    """Answers control. `on_deleted`: called when windows of deleted topics or groups have ended."""

    def __init__(
        self, plane: Plane, inbox: Inbox, windows: WindowNames, offsets: Offsets, on_deleted: Callable[[], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:  # fmt: skip
        self._plane, self._inbox, self._windows, self._offsets = plane, inbox, windows, offsets
        self._on_deleted, self._clock_ns = on_deleted, clock_ns
        self._deletions: deque[tuple[Ask, Iterator[None]]] = deque()
        self._answers: deque[tuple[Ask, str]] = deque()
        """Those for which control's ring has had no room."""

    @property
    def is_busy(self) -> bool:
        """True if a turn has something to do."""
        return bool(self._deletions or self._answers)

    def on_reset(self, record: Ask, now_ms: int) -> None:
        """Take an RMQ_INBOX_RESET."""
        self.answer(record, self._reset(ResetAsk.decode(record.payload)))

    def on_deleted(self, record: Ask, now_ms: int) -> None:
        """Take an RMQ_INBOX_DELETED. `turn` goes on with it."""
        asked = DeletionAsk.decode(record.payload)
        self._deletions.append((record, self._windows.end_named(frozenset(asked.groups), frozenset(asked.topics))))

    def turn(self) -> bool:
        """Go on with deletions, and give answers. True if there was something to do."""
        is_busy = self.is_busy
        for _ in range(STEPS_PER_TURN):
            if not self._deletions:
                break
            record, steps = self._deletions[0]
            if next(steps, self) is self:
                self._deletions.popleft()
                self._on_deleted()
                self._answers.append((record, ""))
        self._answer()
        return is_busy

    def answer(self, record: Ask, reason: str) -> None:
        """Give control an answer, once its ring has room. `reason`: why nothing has changed, or empty."""
        self._answers.append((record, reason))
        self._answer()

    def _answer(self) -> None:
        while self._answers and self._inbox.answer_role(self._answers[0][0], self._answers[0][1].encode()):
            self._answers.popleft()

    def _reset(self, asked: ResetAsk) -> str:
        """Empty, or the reason why nothing has changed."""
        if self._clock_ns() >= asked.until_ns:
            return "it had no time for the reset"
        try:
            self._offsets.reset(list(self._resets(asked)))
        except OSError as error:
            return str(error)
        return ""

    def _resets(self, asked: ResetAsk) -> Iterator[Reset]:
        group_id, topic_id = self._plane.group_find(asked.group), self._plane.topic_find(asked.topic)
        if group_id is None or topic_id is None:
            return
        for queue_id, offset in asked.offsets.items():
            slot = self._plane.queue_find(topic_id, queue_id)
            if slot is not None:
                yield Reset(group_id, slot, offset, self._windows.find(group_id, slot))
