"""The transactions of a drill. The checker finds broken promises from the client's own record. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_transaction_checker.py):

  shown half      a message was read before its commit left the client
  false commit    a message was delivered, and its transaction was rolled back
  lost commit     a half was acknowledged and its transaction committed, but the message is not delivered
  doubled commit  a message is delivered twice
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ringmq.loadtest.drills.checker import Violation

SETTINGS = {"transactionTimeOut": 500, "transactionCheckInterval": 500, "transactionCheckMax": 60_000}
ROLLED_BACK = 3
"""Every so many numbers is a transaction that is rolled back."""


def is_committed(number: int) -> bool:
    """The decision about a transaction. Its producer tells the same one to every check."""
    return number % ROLLED_BACK != 0


@dataclass(slots=True)
class TransactionChecker:
    """Records the transactions of one run by their numbers."""

    _acknowledged: set[int] = field(default_factory=set)
    _told: set[int] = field(default_factory=set)
    """Those whose decision has left the client."""
    _ended: int = 0
    _delivered: Counter[int] = field(default_factory=Counter)
    _found: list[Violation] = field(default_factory=list)

    def acknowledged(self, number: int) -> None:
        """Record that the half message is stored."""
        self._acknowledged.add(number)

    def tells(self, number: int) -> None:
        """Record that the decision is about to leave the client."""
        self._told.add(number)

    def ended(self) -> None:
        """Record that an end was answered 0."""
        self._ended += 1

    def read(self, number: int) -> None:
        """Record that a consumer got a message while the drill ran."""
        if number not in self._told:
            self._found.append(Violation("shown half", f"{number} was shown before its transaction ended"))

    def delivered(self, number: int) -> None:
        """Record a message of the topic at the end."""
        self._delivered[number] += 1

    @property
    def has_all(self) -> bool:
        """True if each acknowledged message whose transaction is committed is delivered."""
        return not self._lost()

    @property
    def ended_count(self) -> int:
        """The number of ends that were answered 0."""
        return self._ended

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        found = list(self._found)
        found += [Violation("lost commit", f"{number} is committed and not delivered") for number in self._lost()]
        for number, count in self._delivered.items():
            if not is_committed(number):
                found.append(Violation("false commit", f"{number} is rolled back and delivered"))
            elif count > 1:
                found.append(Violation("doubled commit", f"{number} is delivered {count} times"))
        return found

    def _lost(self) -> list[int]:
        return [
            number for number in sorted(self._acknowledged) if is_committed(number) and number not in self._delivered
        ]
