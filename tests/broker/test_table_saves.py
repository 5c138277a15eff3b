"""Answers that change topics or groups wait for the save that holds the change."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ringmq.broker.requests.request import Effect, Reply
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.broker.table_saves import REST, TableSaves
from ringmq.broker.tables.persistence import Persistence
from ringmq.remoting.command import RemotingCommand
from tests.broker.fakes import peer


@dataclass
class Files:
    """Stands for Persistence: a save takes `steps` steps."""

    steps: int = 0
    tables_dirty: bool = False
    saves: int = 0
    breaks: bool = False

    def saving_tables(self) -> Steps[bool]:
        self.tables_dirty = False
        for _ in range(self.steps):
            yield
        if self.breaks:
            self.tables_dirty = True
            raise OSError("no space")
        self.saves += 1
        return True


@dataclass
class Harness:
    files: Files = field(default_factory=Files)
    now_s: float = 100.0
    out: list[str] = field(default_factory=list)
    recovered: int = 0

    def __post_init__(self) -> None:
        clock = TurnClock(lambda: 0)
        # a step per turn
        clock.advance = lambda steps, limit_ms: one_step(steps)  # type: ignore[method-assign]
        persistence = cast(Persistence, self.files)
        self.saves = TableSaves(persistence, clock, guard, self._on_recovery, lambda: self.now_s)

    def _on_recovery(self) -> None:
        self.recovered += 1

    def change(self, name: str, *, by_operator: bool = False, dirty: bool = True) -> Reply:
        """A request that has changed a table; its answer."""
        self.files.tables_dirty |= dirty
        reply = Reply(peer(1), 1, RemotingCommand(code=0, opaque=1))

        def release(effects: list[Effect]) -> None:
            assert effects == [reply]
            self.out.append(f"{name} {reply.command.code}")

        self.saves.hold([reply], release, is_change=by_operator)
        return reply

    def turn(self) -> list[str]:
        self.now_s += 0.01
        self.saves.turn()
        out, self.out = self.out, []
        return out


def one_step(steps: Any) -> Any:
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    return None


def guard(action: Any) -> str | None:
    try:
        action()
    except OSError as error:
        return str(error)
    return None


def test_a_small_table_is_saved_in_the_turn_of_the_change() -> None:
    harness = Harness()
    for number in range(3):
        harness.change(f"{number}")
        assert harness.turn() == [f"{number} 0"]
        assert harness.files.saves == number + 1
    harness.change("nothing", by_operator=True, dirty=False)
    assert harness.turn() == ["nothing 0"]
    assert harness.files.saves == 3


def test_a_change_during_a_save_waits_for_the_next_one() -> None:
    harness = Harness(Files(steps=2))
    harness.change("first")
    assert harness.turn() == []
    harness.change("second")
    harness.change("nothing", by_operator=True, dirty=False)
    assert harness.saves.is_saving
    assert harness.turn() == []
    assert harness.turn() == ["first 0"]
    assert not harness.saves.is_saving
    assert harness.saves.is_behind
    while not (out := harness.turn()):
        pass
    assert out == ["second 0", "nothing 0"]
    assert harness.files.saves == 2


def test_a_long_save_rests_and_many_changes_share_the_next() -> None:
    harness = Harness(Files(steps=4))
    harness.change("first")
    turns = 1
    while not harness.turn():
        turns += 1
    assert turns == 5
    out, idle = [], 0
    for number in range(100):
        harness.change(f"{number}")
        out += harness.turn()
        idle += not harness.saves.is_saving
        if out:
            break
    assert idle >= REST * (turns - 1) - 1, "at most a fifth of the time"
    assert len(out) == idle >= 10
    assert harness.files.saves == 2


@pytest.mark.parametrize("steps", [0, 3])
def test_an_operator_is_told_that_the_change_is_not_on_disk(steps: int) -> None:
    harness = Harness(Files(steps=steps, breaks=True))
    reply = harness.change("own", by_operator=True)
    harness.change("client's")
    out: list[str] = []
    while not out:
        out = harness.turn()
    assert out == ["own 1", "client's 0"]
    assert "a restart may lose it: config files cannot be written: no space" in (reply.command.remark or "")
    harness.files.breaks = False
    for _ in range(60):
        harness.turn()
    assert (harness.files.saves, harness.recovered) == (1, 1)


def test_a_stop_saves_and_answers_all() -> None:
    harness = Harness(Files(steps=5))
    harness.change("first")
    harness.turn()
    harness.change("second")
    harness.saves.finish()
    assert harness.out == ["first 0", "second 0"]
    assert not harness.saves.is_behind
