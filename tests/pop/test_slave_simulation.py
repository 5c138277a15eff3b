"""A slave is made master at any moment: nothing is lost, and what the copy knew as done does not come again.

python -m tests.pop.test_slave_simulation --seeds 5000 [--first 0]      prints the seeds that broke a promise
"""

from __future__ import annotations

import argparse
import sys
import time

import pytest

from tests.pop.simulation import BrokenPromiseError, DeathError, run
from tests.pop.slave_simulation import SlaveWorld

SEEDS, SEEDS_A_TEST = 100, 20
BUG_SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_promises_hold(first: int) -> None:
    played = [run(seed, SlaveWorld) for seed in range(first, first + SEEDS_A_TEST)]
    counts = {name: sum(world.counts[name] for world in played) for name in played[0].counts}
    wanted = ("promotions", "copies of the memory", "lost records", "deaths", "withdrawn", "copies", "blocked")
    assert min(counts[name] for name in wanted) > 10, counts


class LogTooShort(SlaveWorld):
    """A copy that counts before the slave's log has what it tells of."""

    def end_of_copy(self) -> int:
        return 0


class TornCopy(SlaveWorld):
    """A copy with the windows of one moment and the entries of an earlier one."""

    def take_copy(self) -> None:
        before = self.copy.content if hasattr(self, "copy") else self.disk.content
        super().take_copy()
        entries_at = self.memory.layout.entries_at
        content = self.disk.content[:entries_at] + before[entries_at:]
        self.copy = type(self.disk)(content, self.disk.copies_from, self.disk.step)


class MarksForgotten(SlaveWorld):
    """A promotion that reads no marks of copies behind the copy."""

    def read_marks(self, copies_from: int) -> None:
        super().read_marks(len(self.log.records) if self.is_promoted else copies_from)

    is_promoted = False

    def promote(self) -> None:
        self.is_promoted = True
        super().promote()
        self.is_promoted = False


class Unclamped(SlaveWorld):
    """A promotion that compares no window with its queue."""

    def end_of_copy(self) -> int:
        return 0

    def clamp(self) -> None:
        pass


BUGS = [
    (LogTooShort, 1240, "is lost"), (TornCopy, 1000, "is lost"), (MarksForgotten, 1480, "came again"),
    (Unclamped, 1000, "has no record"),
]  # fmt: skip
"""Worlds with a bug, a seed to begin with, and words of the promise that it breaks."""


@pytest.mark.parametrize(("world", "first", "words"), [pytest.param(*bug, id=bug[0].__name__) for bug in BUGS])
def test_a_planted_bug_is_found(world: type[SlaveWorld], first: int, words: str) -> None:
    for seed in range(first, first + BUG_SEEDS):
        try:
            run(seed, world)
        except BrokenPromiseError as error:
            if words in str(error):
                return
    pytest.fail("no seed has found it")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Promotions of slaves over simulated faults.")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    began, broken = time.monotonic(), 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            run(seed, SlaveWorld)
        except (AssertionError, DeathError, KeyError) as error:
            broken += 1
            print(f"seed {seed}: {type(error).__name__} {error}", flush=True)
    took_s = time.monotonic() - began
    print(f"{arguments.seeds} seeds from {arguments.first} on, {took_s:.0f} s: {broken} broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
