"""Seeds of a store that changes hands between RingMQ and RocketMQ. Planted bugs show that broken promises are found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.pop.owner_simulation import Ours, OwnerWorld, run
from tests.pop.simulation import BrokenPromiseError

SEEDS, BUG_SEEDS = 80, 20


def test_the_promises_hold_whoever_has_the_store() -> None:
    """No message is lost. None comes again or has two consumers, but by a death that leaves older words of it."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += Counter(run(seed).counts)
    assert all(counts[what] > SEEDS // 2 for what in ("taken over", "handed over", "deaths in a stop")), counts
    assert counts["receipts of before"] > SEEDS


class EndsAll(Ours):
    """A stop that acknowledges what the group has not got yet."""

    def ends_below(self) -> int:
        return self.store.messages


class RecordsUnread(Ours):
    """A start that goes on at the consumer offset."""

    def _taken_over(self, now_ms: int, *, was_killed: bool) -> bytes:
        records, self.store.records = self.store.records, ()
        memory = super()._taken_over(now_ms, was_killed=was_killed)
        self.store.records = records
        return memory


class OffsetsFirst(Ours):
    """A stop that commits before its check points are in the log."""

    def stop(self, now_ms: int, until: str = "handled", points_max: int | None = None) -> None:
        super().stop(now_ms, until, points_max)
        self.store.committed = max(self.store.committed, self.ends_below())


class NeverEnds(Ours):
    """A stop that leaves check points of messages that are done."""

    def ends_below(self) -> int:
        return 0


BUGS = [
    (EndsAll, 750, "lost"), (RecordsUnread, 0, "lost"), (OffsetsFirst, 0, "lost"), (NeverEnds, 0, "came again"),
]  # fmt: skip
"""Owners with a bug, a seed from which on it is found, and words of the promise that it breaks."""


@pytest.mark.parametrize(("owner", "first", "words"), [pytest.param(*bug, id=bug[0].__name__) for bug in BUGS])
def test_a_planted_bug_is_found(owner: type[Ours], first: int, words: str) -> None:
    world = type("Planted", (OwnerWorld,), {"ours": owner})
    for seed in range(first, first + BUG_SEEDS):
        try:
            run(seed, world)
        except BrokenPromiseError as error:
            if words in str(error):
                return
    pytest.fail("no seed has found it")
