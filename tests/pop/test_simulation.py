"""POP over simulated faults, with seeds; and bugs that the simulation must find.

python -m tests.pop.test_simulation --seeds 5000 [--first 0]      prints the seeds that broke a promise
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import pytest

from ringmq.pop import entry_states as states
from ringmq.pop.copies_known import CopiesKnown
from ringmq.pop.entry_twin import Give
from ringmq.pop.window_twin import DONE, WindowTwin
from tests.pop import owner_simulation
from tests.pop.order_simulation import OrderWorld
from tests.pop.simulation import BrokenPromiseError, DeathError, World, run

SEEDS, SEEDS_A_TEST = 200, 20
BUG_SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_promises_hold(first: int) -> None:
    """Never lost, never with two consumers, never seen again, nothing skipped. And the faults did happen."""
    played = [run(seed) for seed in range(first, first + SEEDS_A_TEST)]
    counts = {name: sum(world.counts[name] for world in played) for name in played[0].counts}
    assert min(counts[name] for name in ("deaths", "late", "withdrawn", "copies", "power cuts")) > 10, counts


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_promises_hold_beside_an_orderly_group(first: int) -> None:
    played = [run(seed, OrderWorld) for seed in range(first, first + SEEDS_A_TEST)]
    counts = {name: sum(world.counts[name] for world in played) for name in played[0].counts}
    assert min(counts[name] for name in ("deaths", "power cuts", "blocked", "again", "returned batches")) > 10, counts


class Unclamped(World):
    """A start that compares no window with its queue."""

    def clamp(self) -> None:
        pass


class FreedBeforeFlush(World):
    """A copy counts once it is stored."""

    def tell_flushed(self, offset: int) -> None:
        self.twin.flushed(len(self.log.records))


class NextFirst(WindowTwin):
    """A pop that moves next_offset before its entries are published."""

    def give(self, place: int, give: Give, offsets: object) -> None:
        self.skip_to(place, give.next_offset)
        super().give(place, give, offsets)  # type: ignore[arg-type]


class NextBeforeEntries(World):
    windows = NextFirst


class IdsReused(World):
    """A window that begins anew has the id of the one before."""

    def new_id(self, key: tuple[str, str]) -> int:
        used = [number for number, of in self.names.items() if of == key and number not in self.twin.places]
        return used[0] if used else super().new_id(key)


class TornSnapshot(World):
    """A snapshot with the windows of one moment and the entries of an earlier one."""

    def snapshot(self) -> None:
        entries_at = self.memory.layout.entries_at
        before = self.pending.content[entries_at:]
        super().snapshot()
        self.pending.content = self.pending.content[:entries_at] + before


class UnsavedStart(World):
    """A start that leaves the snapshot as it was, and lets `write` give lost offsets anew."""

    def save_start(self) -> None:
        pass


class OldFirst(WindowTwin):
    """A change of the invisible time that gives the old message up first."""

    def change(self, place: int, start: int, pop_time_ms: int, offset: int, give: Give) -> int:
        found = [entry for entry in self._with_receipt(place, start, pop_time_ms) if self._bit(entry, offset)]
        for entry in found[:1]:
            if self.open_bits(entry) & self._bit(entry, offset) and self.state_of(entry) is states.State.OPEN:
                self.step(states.Acknowledged(entry, self._bit(entry, offset)))
                self.make_entry(place, give, offset, 1, moves=False)
                return 1
        return super().change(place, start, pop_time_ms, offset, give)


class ChangeOldFirst(World):
    windows = OldFirst


class Forgetful(World):
    """A start that reads no marks of copies."""

    def read_marks(self, copies_from: int) -> None:
        self.report_flush()


class FlushedAlone(CopiesKnown):
    """A place that passes copies which a start has found, and the windows have not taken as flushed."""

    def found(self, end: int) -> None:
        pass


class FoundForgotten(World):
    knowledge = FlushedAlone


class MarksUnnoted(WindowTwin):
    """Due messages that leave the id of their window as one without copies."""

    def _note_mark(self, place: int) -> None:
        pass


class IdsUnmarked(World):
    windows = MarksUnnoted


class Heedless(World):
    """A pop that gives withdrawn copies, too."""

    def is_given(self, group: str, record: object) -> bool:
        return self.wants(group, record.message)  # type: ignore[attr-defined]


class EachAlone(WindowTwin):
    """An acknowledgement that moves the offset behind its message, whatever lies before."""

    def order_ack(self, place: int, pop_time_ms: int, offset: int) -> int:
        found = super().order_ack(place, pop_time_ms, offset)
        if found == DONE:
            self.skip_to(place, offset + 1)
        return found


class AcksOutOfOrder(OrderWorld):
    windows = EachAlone


class OffsetWithBatch(WindowTwin):
    """An orderly pop that moves the offset behind its batch, as a normal pop does."""

    def order_show(self, place: int) -> None:
        super().order_show(place)
        self.skip_to(place, self.order_next(place) + self.order_at(place).count)


class OffsetTooEarly(OrderWorld):
    windows = OffsetWithBatch


class BatchesForgotten(WindowTwin):
    """A start that reads no batches."""

    def start_orders(self, now_ms: int) -> int:
        for place in self.places.values():
            self.memory.window(place).order = 0
        return 0


class UnblockedByStart(OrderWorld):
    windows = BatchesForgotten


class BatchReused(WindowTwin):
    """A new batch that is written over the old one."""

    def order_give(self, place: int, give: Give, attempt: bytes, offsets: Sequence[int]) -> None:
        if self.order_at(place) is not None:
            self.end_order(place)
        super().order_give(place, give, attempt, offsets)


class CountsForgotten(OrderWorld):
    windows = BatchReused


class Unordered(OrderWorld):
    """A start that leaves a batch beyond the end of its queue."""

    def clamp(self) -> None:
        kept, self.twin.clamp_order = self.twin.clamp_order, lambda place, end: None  # type: ignore[method-assign]
        super().clamp()
        self.twin.clamp_order = kept  # type: ignore[method-assign]


BUGS = [
    (Unclamped, 1122, "lost"), (FreedBeforeFlush, 1010, "lost"), (NextBeforeEntries, 1001, "lost"),
    (IdsReused, 1189, "lost"), (TornSnapshot, 1004, ""), (UnsavedStart, 1088, ""), (ChangeOldFirst, 1019, "lost"),
    (FoundForgotten, 1000, ""), (Forgetful, 1000, ""), (Heedless, 1000, "came again"),
    (IdsUnmarked, 1000, "may be given again"), (AcksOutOfOrder, 1000, "nobody has acknowledged"),
    (OffsetTooEarly, 1000, "nobody has acknowledged"), (UnblockedByStart, 1000, "was with a consumer"),
    (CountsForgotten, 1000, "with the counts"), (Unordered, 1404, ""),
]  # fmt: skip
"""Worlds with a bug, a seed that has found it, and words of the promise that it broke."""


@pytest.mark.parametrize(("world", "first", "words"), [pytest.param(*bug, id=bug[0].__name__) for bug in BUGS])
def test_a_planted_bug_is_found(world: type[World], first: int, words: str) -> None:
    for seed in range(first, first + BUG_SEEDS):
        try:
            run(seed, world)
        except BrokenPromiseError as error:
            if words in str(error):
                return
    pytest.fail("no seed has found it")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="POP over simulated faults.")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    began, broken = time.monotonic(), 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            run(seed)
            run(seed, OrderWorld)
            owner_simulation.run(seed)
        except (AssertionError, DeathError, KeyError) as error:
            broken += 1
            print(f"seed {seed}: {type(error).__name__} {error}", flush=True)
    took_s = time.monotonic() - began
    print(f"{arguments.seeds} seeds from {arguments.first} on, {took_s:.0f} s: {broken} broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
