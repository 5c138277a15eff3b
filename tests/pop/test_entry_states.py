"""The table of an entry's states: each pair has a cell, and these scripts run each cell that acts and each arrow."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import pytest

from ringmq.ipc.transitions import ImpossibleEventError
from ringmq.pop import entry_states as states
from ringmq.pop.entry_states import State
from ringmq.pop.entry_twin import Give
from ringmq.pop.window_memory import WindowMemory
from ringmq.pop.window_twin import WindowTwin
from tests.pop.entry_machine import ENTRY

WINDOW, PLACE, NOW_MS = 7, 0, 1_800_000_000_000
WALKED: set[tuple[Enum, type, Enum]] = set()


class DeathError(Exception):
    """The worker dies before a store."""


class Walker(WindowTwin):
    """Notes each step."""

    def step(self, event: states.EntryEvent) -> None:
        before = self.state_of(event.entry)
        super().step(event)
        WALKED.add((before, type(event), self.state_of(event.entry)))


def new() -> Walker:
    twin = Walker(WindowMemory(2, 8), NOW_MS, 1000)
    twin.make(WINDOW, 0, 0, 10)
    return twin


def opened(invisible_ms: int = 100) -> Walker:
    """Entry 0 has the messages 10 and 11."""
    twin = new()
    twin.give(PLACE, Give(NOW_MS, 1000, 10, 12, invisible_ms), [10, 11])
    return twin


def returned() -> Walker:
    twin = opened()
    assert twin.unsent(PLACE, 10, NOW_MS)
    return twin


def reviving() -> Walker:
    twin = opened()
    assert [due.queue_offset for due in twin.due(1100, 64)] == [10, 11]
    return twin


def revived() -> Walker:
    twin = reviving()
    twin.copied(WINDOW, 10, 500)
    twin.copied(WINDOW, 11, 600)
    assert twin.flushed(600) == 1
    return twin


def acked(twin: Walker, *offsets: int) -> Walker:
    for offset in offsets:
        twin.ack(PLACE, 10, NOW_MS, offset, 1)
    return twin


def left(twin: Walker) -> Walker:
    twin.leave_returned(PLACE, 1 << 40)
    assert [due.queue_offset for due in twin.due(1000, 64)] == [10, 11]
    return twin


def die(twin: Walker, stores: int, act: Callable[[], object]) -> None:
    """Let the worker die in the act, after so many stores."""
    left = stores

    def count() -> None:
        nonlocal left
        if not left:
            raise DeathError
        left -= 1

    twin.memory.before_store = count
    with pytest.raises(DeathError):
        act()


def died(twin: Walker, stores: int, act: Callable[[], object]) -> Walker:
    """The replacement of a worker that died in the act."""
    die(twin, stores, act)
    return restarted(twin)


def restarted(twin: Walker) -> Walker:
    memory = WindowMemory(2, 8, twin.memory.content())
    return Walker(memory, NOW_MS, 1000)


def states_of(twin: Walker) -> list[State]:
    return [twin.state_of(entry) for entry in range(3)]


def changed(twin: Walker) -> Callable[[], object]:
    return lambda: twin.change(PLACE, 10, NOW_MS, 10, Give(NOW_MS + 1, 1001, 10, 0, 50))


def copied_one(twin: Walker, result: Callable[[], object]) -> Walker:
    """Message 10 has a flushed copy; then message 11 gets this result."""
    twin.copied(WINDOW, 10, 500)
    twin.flushed(500)
    result()
    return twin


def unanswered() -> Walker:
    """Death before next_offset moves: 13 stores make an entry."""
    twin = new()
    return died(twin, 13, lambda: twin.give(PLACE, Give(NOW_MS, 1000, 10, 12, 100), [10, 11]))


FREE, OPEN, REVIVING, REVIVED, RETURNED = State.FREE, State.OPEN, State.REVIVING, State.REVIVED, State.RETURNED
CASES: list[tuple[str, Callable[[], Walker], State]] = [
    ("popped", opened, OPEN),
    ("acknowledged in part", lambda: acked(opened(), 10), OPEN),
    ("acknowledged", lambda: acked(opened(), 10, 11), FREE),
    ("returned, acknowledged in part", lambda: acked(returned(), 10), RETURNED),
    ("returned, acknowledged", lambda: acked(returned(), 10, 11), FREE),
    ("returned, and left behind by an orderly pop", lambda: left(returned()), REVIVING),
    ("due", reviving, REVIVING),
    ("late acknowledgement of a copy under way", lambda: acked(reviving(), 10), REVIVING),
    ("copied", revived, REVIVED),
    ("late acknowledgement of copies", lambda: acked(revived(), 10, 11), REVIVED),
]


def add(name: str, then: State) -> Callable[[Callable[[], Walker]], Callable[[], Walker]]:
    def take(make: Callable[[], Walker]) -> Callable[[], Walker]:
        CASES.append((name, make, then))
        return make

    return take


@add("failed, due again", REVIVING)
def _() -> Walker:
    twin = reviving()
    for offset in (10, 11):
        twin.copy_failed(WINDOW, offset, 2000, True)
    assert not twin.due(1999, 64)
    assert [due.attempts for due in twin.due(2000, 64)] == [1, 1]
    return twin


@add("refused by a store that refuses all, due again", REVIVING)
def _() -> Walker:
    twin = reviving()
    for offset in (10, 11):
        twin.copy_failed(WINDOW, offset, 2000, False)
    assert [due.attempts for due in twin.due(2000, 64)] == [0, 0]
    for offset, is_counted in ((10, False), (11, True)):
        twin.copy_failed(WINDOW, offset, 3000, is_counted)
    assert [due.attempts for due in twin.due(3000, 64)] == [1, 1], "the second one fails by itself"
    return twin


@add("failed, and one acknowledged before", REVIVING)
def _() -> Walker:
    twin = acked(reviving(), 10)
    for offset in (10, 11):
        twin.copy_failed(WINDOW, offset, 2000, True)
    assert twin.memory.entry(0).copied == 0
    return twin


@add("failed, and all acknowledged before", FREE)
def _() -> Walker:
    twin = acked(reviving(), 10, 11)
    for offset in (10, 11):
        twin.copy_failed(WINDOW, offset, 2000, True)
    return twin


@add("one failed and acknowledged before, the other copied", REVIVED)
def _() -> Walker:
    twin = acked(reviving(), 10)
    twin.copied(WINDOW, 11, 500)
    twin.flushed(500)
    twin.copy_failed(WINDOW, 10, 2000, True)
    return twin


@add("acknowledged after a failure, the other copied", REVIVED)
def _() -> Walker:
    twin = reviving()
    twin.copied(WINDOW, 11, 500)
    twin.flushed(500)
    twin.copy_failed(WINDOW, 10, 2000, True)
    return acked(twin, 10)


@add("acknowledged after failures", FREE)
def _() -> Walker:
    twin = reviving()
    for offset in (10, 11):
        twin.copy_failed(WINDOW, offset, 2000, True)
    return acked(twin, 10, 11)


@add("gone in part", REVIVING)
def _() -> Walker:
    twin = reviving()
    twin.copy_gone(WINDOW, 10)
    return twin


@add("gone", FREE)
def _() -> Walker:
    twin = reviving()
    twin.copy_gone(WINDOW, 10)
    twin.copy_gone(WINDOW, 11)
    return twin


@add("one copied, one gone", REVIVED)
def _() -> Walker:
    twin = reviving()
    return copied_one(twin, lambda: twin.copy_gone(WINDOW, 11))


@add("copied, not flushed", REVIVING)
def _() -> Walker:
    twin = reviving()
    twin.copied(WINDOW, 10, 500)
    assert twin.flushed(499) == 0 and twin.first_open(PLACE) == 10
    return twin


@add("one flushed", REVIVING)
def _() -> Walker:
    twin = reviving()
    twin.copied(WINDOW, 10, 500)
    assert twin.flushed(500) == 0 and twin.first_open(PLACE) == 11
    return twin


@add("popped before the flush", FREE)
def _() -> Walker:
    twin = reviving()
    for offset, end in ((10, 500), (11, 600)):
        twin.copied(WINDOW, offset, end)
        assert twin.take_copy(WINDOW, offset)
        twin.copy_seen(WINDOW, offset)
    assert twin.open_messages(PLACE) == 2, "a power cut may take the copies"
    assert twin.flushed(600) == 1
    return twin


@add("popped before the completion", FREE)
def _() -> Walker:
    twin = reviving()
    for offset in (10, 11):
        twin.copy_seen(WINDOW, offset)
        twin.copied(WINDOW, offset, 500)
    twin.flushed(600)
    return twin


@add("one copy popped", REVIVED)
def _() -> Walker:
    twin = revived()
    twin.copy_seen(WINDOW, 10)
    assert twin.take_copy(WINDOW, 10) and twin.take_copy(WINDOW, 11)
    return twin


@add("copies popped", FREE)
def _() -> Walker:
    twin = revived()
    for offset in (10, 11):
        twin.copy_seen(WINDOW, offset)
    return twin


@add("withdrawn copies passed over", FREE)
def _() -> Walker:
    twin = acked(revived(), 10)
    assert not twin.take_copy(WINDOW, 10) and twin.take_copy(WINDOW, 11)
    for offset in (10, 11):
        twin.copy_seen(WINDOW, offset)
    return twin


@add("cut in part", OPEN)
def _() -> Walker:
    twin = opened()
    assert twin.clamp(PLACE, 11) == 1
    return twin


@add("cut", FREE)
def _() -> Walker:
    twin = opened()
    assert twin.clamp(PLACE, 10) == 2
    return twin


@add("cut while returned", FREE)
def _() -> Walker:
    twin = returned()
    assert twin.clamp(PLACE, 11) == 1 and twin.state_of(0) is RETURNED
    twin.clamp(PLACE, 10)
    return twin


@add("cut while copies are under way", FREE)
def _() -> Walker:
    twin = reviving()
    assert twin.clamp(PLACE, 11) == 1 and twin.state_of(0) is REVIVING
    twin.clamp(PLACE, 10)
    return twin


@add("cut behind a copied message", REVIVED)
def _() -> Walker:
    twin = reviving()
    return copied_one(twin, lambda: twin.clamp(PLACE, 11))


@add("cut while revived", FREE)
def _() -> Walker:
    twin = revived()
    assert twin.clamp(PLACE, 11) == 0 and twin.state_of(0) is REVIVED
    twin.clamp(PLACE, 10)
    return twin


@add("given up for room", FREE)
def _() -> Walker:
    twin = revived()
    twin.forget_revived(8)
    return twin


@add("given up after ten minutes, but not with a withdrawn copy", REVIVED)
def _() -> Walker:
    other = revived()
    other.due(601_100, 64)
    assert other.state_of(0) is FREE
    twin = acked(revived(), 10)
    twin.due(601_100, 64)
    return twin


@add("given up with a withdrawn copy for room", FREE)
def _() -> Walker:
    twin = acked(revived(), 10)
    twin.forget_revived(8)
    return twin


@add("changed", OPEN)
def _() -> Walker:
    twin = opened()
    assert changed(twin)() == 1
    assert states_of(twin)[:2] == [OPEN, OPEN] and twin.open_bits(0) == 2 and twin.open_bits(1) == 1
    return twin


@add("given again", FREE)
def _() -> Walker:
    twin = returned()
    assert twin.returned(PLACE, 32) == [10, 11]
    twin.give_again(PLACE, Give(NOW_MS + 5, 1005, 10, 0, 100), [10, 11])
    assert twin.state_of(1) is OPEN
    return twin


@add("a window that ends", FREE)
def _() -> Walker:
    for make in (opened, returned, reviving, revived):
        twin = make()
        assert twin.drop(PLACE) == 1
    return twin


@add("a copy in the log that the memory is too old for", REVIVING)
def _() -> Walker:
    twin = restarted(returned())
    twin.copied(WINDOW, 10, 500)
    assert twin.state_of(0) is REVIVING
    twin = restarted(opened())
    twin.copied(WINDOW, 10, 500)
    return twin


@add("a death before next_offset moves", RETURNED)
def _() -> Walker:
    twin = unanswered()
    assert twin.memory.window(PLACE).next_offset == 12
    return twin


@add("a start with an open entry", OPEN)
def _() -> Walker:
    return restarted(opened())


@add("a start with a returned entry", RETURNED)
def _() -> Walker:
    return restarted(returned())


@add("a start with copies under way", REVIVING)
def _() -> Walker:
    return restarted(reviving())


@add("a start with waiting copies", REVIVED)
def _() -> Walker:
    return restarted(revived())


@add("a death between the last acknowledgement and FREE", FREE)
def _() -> Walker:
    for make in (opened, returned):
        twin = acked(make(), 10)
        twin = died(twin, 1, lambda twin=twin: acked(twin, 11))
        assert twin.state_of(0) is FREE
    twin = acked(revived(), 10, 11)
    twin.copy_seen(WINDOW, 10)
    twin = died(twin, 2, lambda: twin.copy_seen(WINDOW, 11))
    assert twin.state_of(0) is FREE
    twin = reviving()
    twin.copy_gone(WINDOW, 10)
    return died(twin, 2, lambda: twin.copy_gone(WINDOW, 11))


@add("a death between the flush and REVIVED", REVIVED)
def _() -> Walker:
    twin = reviving()
    twin.copied(WINDOW, 10, 500)
    twin.copied(WINDOW, 11, 500)
    return died(twin, 4, lambda: twin.flushed(500))


@add("a death in a change before the old message is done", OPEN)
def _() -> Walker:
    twin = opened()
    twin = died(twin, 13, changed(twin))
    assert states_of(twin)[:2] == [OPEN, FREE], "the consumer has the old receipt"
    return twin


@add("a death in a change behind that", OPEN)
def _() -> Walker:
    twin = opened()
    twin = died(twin, 14, changed(twin))
    assert twin.open_bits(0) == 2 and twin.state_of(1) is OPEN and twin.open_bits(1) == 1
    return twin


@add("a damaged entry beside a move", FREE)
def _() -> Walker:
    twin = opened()
    die(twin, 13, changed(twin))
    data = bytearray(twin.memory.content())
    data[twin.memory.layout.entries_at + 1] ^= 1
    return Walker(WindowMemory(2, 8, bytes(data)), NOW_MS, 1000)


@pytest.mark.parametrize(("make", "then"), [pytest.param(make, then, id=name) for name, make, then in CASES])
def test_an_entry_is_then(make: Callable[[], Walker], then: State) -> None:
    assert make().state_of(0) is then


def test_the_table_is_whole_and_each_cell_is_run() -> None:
    ENTRY.check()
    for _, make, _ in CASES:
        make()
    ENTRY.check_walked(WALKED)


@pytest.mark.parametrize(
    ("state", "event"), [pair for pair, cell in ENTRY.table.items() if cell.kind.value == "impossible"]
)
def test_impossible_events_raise(state: State, event: type) -> None:
    with pytest.raises(ImpossibleEventError):
        ENTRY.table[state, event].act(None, event, 0)
