"""Polls over simulated deaths, with seeds; and bugs that the simulation must find."""

from pathlib import Path
from typing import Any

import pytest
from desk_stage import ROLE, Stage
from poll_simulation import BrokenPromiseError, World, run

SEEDS, SEEDS_A_TEST, BUG_SEEDS = 8, 4, 20


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_promises_hold(tmp_path: Path, first: int) -> None:
    """No message is lost or given twice, none waits beside a poll, no poll is left. And the faults did happen."""
    played = [run(seed, tmp_path / f"{seed}") for seed in range(first, first + SEEDS_A_TEST)]
    counts = {name: sum(world.counts[name] for world in played) for name in played[0].counts}
    assert min(counts.values()) > 0, counts


def arrivals_of(stage: Stage) -> Any:
    """The ring of queues that have new messages."""
    return stage.kit.header.ports.port[stage.plane.port_of(ROLE)].arrived


class ArrivalsLost(World):
    """Dispatch does not tell of some messages."""

    def send(self) -> None:
        super().send()
        ring = arrivals_of(self.stage)
        ring.tail = ring.head


class UnsentForgotten(World):
    """A read worker that tells of no answer that it drops."""

    def tell_unsent(self, verdict: object) -> None:
        pass


class ReadersForgotten(World):
    """A worker that keeps the polls of a dead read worker."""

    def kill_read_worker(self) -> None:
        self.stage.desk.native.polls.restarted = lambda *_: None  # type: ignore[method-assign]
        super().kill_read_worker()


class ClosesForgotten(World):
    """A worker that keeps the polls of ended connections, and is not told that nobody holds them."""

    def close(self) -> None:
        self.stage.desk.native.polls.closed = lambda *_: None  # type: ignore[method-assign]
        super().close()


class HeldForgotten(World):
    """A read worker that asks no other worker for the polls that it holds."""

    def put(self, poll: Any, held_until_ns: int = 0) -> None:
        if held_until_ns:
            poll.token = 0
        else:
            super().put(poll)


BUGS = [
    (ArrivalsLost, "waits, and"), (UnsentForgotten, ""), (ReadersForgotten, ""),
    (ClosesForgotten, "polls wait for no client"), (HeldForgotten, "neither answered nor held"),
]  # fmt: skip
"""Worlds with a bug, and words of the promise that it broke."""


@pytest.mark.parametrize(("world", "words"), [pytest.param(*bug, id=bug[0].__name__) for bug in BUGS])
def test_a_planted_bug_is_found(tmp_path: Path, world: type[World], words: str) -> None:
    for seed in range(BUG_SEEDS):
        try:
            run(seed, tmp_path / f"{seed}", world)
        except BrokenPromiseError as error:
            assert words in str(error)
            return
    pytest.fail("no seed has found it")
