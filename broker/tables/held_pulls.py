"""Pulls that control serves itself and that found nothing: held until something may match, at most as long as asked.

Only BatchCQ topics and subscriptions with very many tags come here; every other pull is held by its read worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ringmq.broker.requests.request import Connection, Request

HELD_MAX = 10_000
HOLD_MAX_MS = 300_000


@dataclass(frozen=True, slots=True)
class HeldPull:
    """`is_due()` says whether the queue has grown beyond what was asked for."""

    request: Request
    deadline_ms: int
    is_due: Callable[[], bool]


class HeldPulls:
    """All pulls that wait here."""

    def __init__(self) -> None:
        self._held: list[HeldPull] = []

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, request: Request, suspend_ms: int, is_due: Callable[[], bool]) -> bool:
        """Keep the pull; False when it must be answered at once."""
        if suspend_ms <= 0 or len(self._held) >= HELD_MAX:
            return False
        self._held.append(HeldPull(request, request.now_ms + min(suspend_ms, HOLD_MAX_MS), is_due))
        return True

    def take_due(self, now_ms: int) -> list[Request]:
        """Pulls to be run again, without holding."""
        due = [held for held in self._held if now_ms >= held.deadline_ms or held.is_due()]
        if due:
            gone = {id(held) for held in due}
            self._held = [held for held in self._held if id(held) not in gone]
        return [held.request for held in due]

    def shorten(self, deadline_ms: int) -> None:
        """No pull waits beyond `deadline_ms`."""
        self._held = [replace(held, deadline_ms=min(held.deadline_ms, deadline_ms)) for held in self._held]

    def drop(self, connection: Connection) -> None:
        """The client is gone."""
        self._held = [held for held in self._held if held.request.connection != connection]
