"""Deleted topics whose queues are still on disk.

Requests in flight at the deletion of a topic may still be appended and dispatched. So its queues are removed, and its
name is free again, only after everything appended shortly after the deletion has been dispatched. A start continues the
deletions of the previous run (`ringmq.store.pending_deletions`).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError

IN_FLIGHT_MS = 200
"""Time after which a request from before the deletion has been appended, unless write makes no progress."""


class _Deletion(Struct):
    deleted_ms: int
    write_turns: int | None
    is_settled: bool = False
    """True if write has begun a batch since the deletion. Such a batch contains no request that was planned before
    it."""
    dispatch_bound: int | None = None


class Deletions:
    """Topics that are being deleted, by name."""

    def __init__(self) -> None:
        self._topics: dict[str, _Deletion] = {}
        self.write_turns: Callable[[], int | None] = lambda: None
        """Number of write's polls for requests. None = write is never within a batch, because another role owns the
        journal."""

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def topics(self) -> frozenset[str]:
        """Their names."""
        return frozenset(self._topics)

    def check_gone(self, topic: str) -> None:
        """Raise RequestError while the queues of a deleted topic of that name are still on disk."""
        if topic in self._topics:
            raise RequestError(
                f"the topic[{topic}] is being deleted, try again", field="topic", code=ResponseCode.SYSTEM_BUSY
            )

    def add(self, topic: str, now_ms: int) -> None:
        """The topic was deleted. No request for it is accepted from now on."""
        turns = self.write_turns()
        self._topics[topic] = _Deletion(now_ms, turns, is_settled=turns is None)

    def due(self, now_ms: int, append_offset: int, dispatched_offset: int) -> list[str]:
        """Topics whose queues may be removed now. `done` forgets them."""
        ready = []
        for topic, deletion in self._topics.items():
            if not deletion.is_settled:  # the append offset may be older than the deletion until write has made a turn
                deletion.is_settled = self.write_turns() != deletion.write_turns
            elif deletion.dispatch_bound is None and now_ms >= deletion.deleted_ms + IN_FLIGHT_MS:
                deletion.dispatch_bound = append_offset
            if deletion.dispatch_bound is not None and dispatched_offset >= deletion.dispatch_bound:
                ready.append(topic)
        return ready

    def done(self, topic: str) -> None:
        """The topic's queues are removed, and its name is free."""
        del self._topics[topic]
