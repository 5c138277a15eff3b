"""Leases in the order in which they become due. No IO."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from ringmq.client.popping.lease import Lease, LeaseRules, Step, Use


class Leased(Protocol):
    """A thing with a lease. It is compared by identity."""

    @property
    def lease(self) -> Lease:
        """Its time."""


L = TypeVar("L", bound=Leased)

PAUSE_MIN_S = 0.02


class LeaseTable(Generic[L]):
    """The messages that one consumer holds.

    All leases have the same length, so the order of arrival is that of their ends. Messages whose renewal got no
    answer are due earlier. They are apart until it succeeds.
    """

    def __init__(self, rules: LeaseRules) -> None:
        self.rules = rules
        self._held: dict[L, None] = {}
        self._sooner: dict[L, None] = {}

    def __len__(self) -> int:
        return len(self._held) + len(self._sooner)

    def __iter__(self) -> Iterator[L]:
        yield from self._sooner
        yield from self._held

    def add(self, held: L) -> None:
        """Add a message that was popped, or has been renewed, just now."""
        self._sooner.pop(held, None)
        self._held.pop(held, None)
        self._held[held] = None

    def add_sooner(self, held: L) -> None:
        """Let a message be looked at in each turn."""
        self._held.pop(held, None)
        self._sooner[held] = None

    def remove(self, held: L) -> None:
        """Forget a message, if it is here."""
        self._held.pop(held, None)
        self._sooner.pop(held, None)

    def due(self, now: float) -> list[tuple[L, Step]]:
        """Return the messages for which something is due. Those that are lost or given back are forgotten."""
        found: list[tuple[L, Step]] = []
        looked_at = list(self._sooner)
        for held in self._held:
            if held.lease.due_at > now:
                break
            looked_at.append(held)
        for held in looked_at:
            step = held.lease.step(now)
            if step is not None:
                found.append((held, step))
            if held.lease.use in (Use.SETTLED, Use.LOST):
                self.remove(held)
            else:
                self.add_sooner(held)
        return found

    def pause_s(self, now: float) -> float:
        """Return the time until something may be due. A message that comes meanwhile is due later."""
        due = [held.lease.due_at for held in self._sooner]
        if (first := next(iter(self._held), None)) is not None:
            due.append(first.lease.due_at)
        pause_s = min(due) - now if due else self.rules.invisible_s - self.rules.lead_s
        return max(PAUSE_MIN_S, pause_s)
