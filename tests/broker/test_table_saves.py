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
class Rig:
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
    rig = Rig()
    for number in range(3):
        rig.change(f"{number}")
        assert rig.turn() == [f"{number} 0"]
        assert rig.files.saves == number + 1
    rig.change("nothing", by_operator=True, dirty=False)
    assert rig.turn() == ["nothing 0"]
    assert rig.files.saves == 3


def test_a_change_during_a_save_waits_for_the_next_one() -> None:
    rig = Rig(Files(steps=2))
    rig.change("first")
    assert rig.turn() == []
    rig.change("second")
    rig.change("nothing", by_operator=True, dirty=False)
    assert rig.saves.is_saving
    assert rig.turn() == []
    assert rig.turn() == ["first 0"]
    assert not rig.saves.is_saving
    assert rig.saves.is_behind
    while not (out := rig.turn()):
        pass
    assert out == ["second 0", "nothing 0"]
    assert rig.files.saves == 2


def test_a_long_save_rests_and_many_changes_share_the_next() -> None:
    rig = Rig(Files(steps=4))
    rig.change("first")
    turns = 1
    while not rig.turn():
        turns += 1
    assert turns == 5
    out, idle = [], 0
    for number in range(100):
        rig.change(f"{number}")
        out += rig.turn()
        idle += not rig.saves.is_saving
        if out:
            break
    assert idle >= REST * (turns - 1) - 1, "at most a fifth of the time"
    assert len(out) == idle >= 10
    assert rig.files.saves == 2


@pytest.mark.parametrize("steps", [0, 3])
def test_an_operator_is_told_that_the_change_is_not_on_disk(steps: int) -> None:
    rig = Rig(Files(steps=steps, breaks=True))
    reply = rig.change("own", by_operator=True)
    rig.change("client's")
    out: list[str] = []
    while not out:
        out = rig.turn()
    assert out == ["own 1", "client's 0"]
    assert "a restart may lose it: config files cannot be written: no space" in (reply.command.remark or "")
    rig.files.breaks = False
    for _ in range(60):
        rig.turn()
    assert (rig.files.saves, rig.recovered) == (1, 1)


def test_a_stop_saves_and_answers_all() -> None:
    rig = Rig(Files(steps=5))
    rig.change("first")
    rig.turn()
    rig.change("second")
    rig.saves.finish()
    assert rig.out == ["first 0", "second 0"]
    assert not rig.saves.is_behind
