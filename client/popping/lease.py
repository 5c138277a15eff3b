"""The time of one popped message: when to ask for more of it, and when the message is another consumer's. No IO.

The invisible time runs by the broker's clock. More is asked for `lead_s` before its end. That covers the way of the
answer, a busy process, and repeated requests if the broker does not answer.
"""

from dataclasses import dataclass
from enum import Enum

LEAD_MAX_S = 10.0
LEAD_PART = 3  # of the invisible time, if that is short
TRIES_IN_LEAD = 4


class Use(Enum):
    """The use that a consumer has for its message."""

    WAITING = "waiting"
    """For a handler. A message that waits for long goes to another consumer."""
    KEPT = "kept"
    """A handler runs, or the order of its queue keeps the message here."""
    SETTLED = "settled"
    """The outcome is known: no more time is needed."""
    LOST = "lost"
    """Another consumer may have it. No outcome counts."""


class Step(Enum):
    """The act that is due for a message."""

    RENEW = "renew"
    GIVE_BACK = "give back"
    LOSE = "lose"


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """`invisible_s` is asked for each time. A message is not renewed beyond `hold_max_s` after its pop."""

    invisible_s: float
    hold_max_s: float

    @property
    def lead_s(self) -> float:
        """The time before the end at which a message is renewed."""
        return min(LEAD_MAX_S, self.invisible_s / LEAD_PART)


class Lease:
    """One message. Times are seconds of the monotonic clock."""

    __slots__ = ("_hold_until", "_rules", "due_at", "expires_at", "use")

    def __init__(self, rules: LeaseRules, expires_at: float) -> None:
        self._rules = rules
        self._hold_until = expires_at - rules.invisible_s + rules.hold_max_s
        self.use = Use.WAITING
        self.expires_at = expires_at
        self.due_at = expires_at - rules.lead_s

    def step(self, now: float) -> Step | None:
        """Return what is due, once. `renewed`, `refused` or `unanswered` follows RENEW, perhaps after LOSE."""
        if self.use in (Use.SETTLED, Use.LOST) or now < self.due_at:
            return None
        if now >= self.expires_at:
            self.lose()
            return Step.LOSE
        if self.use is Use.WAITING:
            self.use = Use.SETTLED
            return Step.GIVE_BACK
        self.due_at = self.expires_at
        return Step.RENEW if now < self._hold_until else None

    def renewed(self, expires_at: float) -> None:
        """Note the new end of the invisible time."""
        self.expires_at = expires_at
        self.due_at = expires_at - self._rules.lead_s

    def unanswered(self, now: float) -> None:
        """Note that the broker may or may not have renewed: ask again while there is time."""
        self.due_at = min(now + self._rules.lead_s / TRIES_IN_LEAD, self.expires_at)

    def refused(self) -> bool:
        """Note that the broker will not renew. True if the message is lost by that, False if it has ended before."""
        return self.use not in (Use.SETTLED, Use.LOST) and self.lose()

    def lose(self) -> bool:
        """Note that the message is another consumer's. True."""
        self.use = Use.LOST
        return True

    def keep(self) -> None:
        """Begin to handle the message, or keep it for its turn."""
        if self.use is Use.WAITING:
            self.use = Use.KEPT

    def release(self) -> None:
        """Let the message wait for a handler again."""
        if self.use is Use.KEPT:
            self.use = Use.WAITING

    def settle(self) -> bool:
        """Note that the outcome is known. False if another outcome was faster, or the message is lost."""
        if self.use in (Use.SETTLED, Use.LOST):
            return False
        self.use = Use.SETTLED
        return True

    def reopen(self) -> None:
        """Note that the outcome could not be stored: the message is kept as before."""
        if self.use is Use.SETTLED:
            self.use = Use.KEPT
