"""The table of a batch's states: each pair has a cell, and these scripts run each cell that acts and each arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum

import pytest

from ringmq.ipc.transitions import ImpossibleEventError
from ringmq.native import lib
from ringmq.pop.entry_twin import Give
from ringmq.pop.order_states import OrderEvent, OrderState
from ringmq.pop.window_memory import WindowMemory
from ringmq.pop.window_twin import WindowTwin
from tests.pop.entry_machine import ORDER

WINDOW, PLACE, NOW_MS, MONO_MS, INVISIBLE_MS = 7, 0, 1_800_000_000_000, 1000, 100
NONE, OUT, DONE, RETURNED = OrderState.NONE, OrderState.OUT, OrderState.DONE, OrderState.RETURNED
WALKED: set[tuple[Enum, type, Enum]] = set()


class Walker(WindowTwin):
    """Notes each step."""

    def take_order_event(self, event: OrderEvent, state: OrderState) -> None:
        super().take_order_event(event, state)
        WALKED.add((state, type(event), self.order_state(event.place)))


def new() -> Walker:
    twin = Walker(WindowMemory(1, 8), NOW_MS, MONO_MS)
    twin.make(WINDOW, 0, 0, 10)
    return twin


def give(later_ms: int = 0) -> Give:
    return Give(NOW_MS + later_ms, MONO_MS + later_ms, 10, 13, INVISIBLE_MS, revive_queue=999)


def out(attempt: bytes = b"a1") -> Walker:
    """A consumer has the messages 10 to 12."""
    twin = new()
    return again(twin, attempt, later_ms=0)


def unanswered(twin: Walker, attempt: bytes = b"a2", offsets: Sequence[int] = (10, 11, 12)) -> Walker:
    """The worker dies before the answer of another pop."""
    twin.order_give(PLACE, give(500), attempt, offsets)
    return Walker(WindowMemory(1, 8, twin.memory.content()), NOW_MS + 500, MONO_MS)


def again(twin: Walker, attempt: bytes = b"a2", offsets: Sequence[int] = (10, 11, 12), later_ms: int = 500) -> Walker:
    twin.order_give(PLACE, give(later_ms), attempt, offsets)
    twin.order_show(PLACE)
    return twin


def acked(twin: Walker, *offsets: int) -> Walker:
    for offset in offsets:
        assert twin.order_ack(PLACE, NOW_MS, offset) in (lib.RMQ_POP_DONE, lib.RMQ_POP_KNOWN)
    return twin


def changed(twin: Walker, due_ms: int, offset: int = 11) -> Walker:
    assert twin.order_change(PLACE, NOW_MS, offset, due_ms) == lib.RMQ_POP_DONE
    return twin


def unsent(twin: Walker) -> Walker:
    assert twin.unsent(PLACE, 10, NOW_MS)
    return twin


def skipped(twin: Walker) -> Walker:
    twin.skip_to(PLACE, 13)
    return twin


def popped_over(twin: Walker) -> Walker:
    twin.give(PLACE, give(1), [10, 11, 12])
    return twin


def popped_before_last() -> Walker:
    """The last message is acknowledged, and a normal pop takes the others."""
    twin = acked(out(), 12)
    twin.give(PLACE, Give(NOW_MS, MONO_MS, 10, 12, INVISIBLE_MS), [10, 11])
    return twin


def squeezed(twin: Walker) -> Walker:
    """Two slots are there, and another window has one."""
    twin.orders_ready(2, MONO_MS + INVISIBLE_MS)
    return twin


def cut(twin: Walker) -> Walker:
    twin.clamp(PLACE, 12)
    return twin


def dropped(twin: Walker) -> Walker:
    twin.drop(PLACE)
    twin.make(WINDOW + 1, 0, 0, 10)
    return twin


def adopted(twin: Walker, first: int = 10) -> Walker:
    twin.order_adopt(PLACE, give(), b"", [first, first + 1], [5, 7], [3, 0], 1)
    return twin


CASES: list[tuple[str, Callable[[], Walker], OrderState]] = [
    ("popped", out, OUT),
    ("of another broker", lambda: adopted(new()), OUT),
    ("another one of another broker", lambda: adopted(out()), OUT),
    ("done, and another one of another broker", lambda: adopted(acked(out(), 10, 11, 12), 13), OUT),
    ("not received, and another one of another broker", lambda: adopted(unsent(out())), OUT),
    ("popped, not answered", lambda: unanswered(new()), RETURNED),
    ("popped, not answered, popped again", lambda: again(unanswered(new())), OUT),
    ("popped again", lambda: again(out()), OUT),
    ("popped again, not answered", lambda: unanswered(out()), RETURNED),
    ("acknowledged out of order", lambda: acked(out(), 12, 11), OUT),
    ("acknowledged", lambda: acked(out(), 11, 10, 12), DONE),
    ("popped behind a batch that is done", lambda: again(acked(out(), 10, 11, 12), offsets=[13]), OUT),
    ("another time", lambda: changed(out(), MONO_MS + 900), OUT),
    ("not received", lambda: unsent(out()), RETURNED),
    ("not received, told twice", lambda: unsent(unsent(out())), RETURNED),
    ("done, and not received", lambda: unsent(acked(out(), 10, 11, 12)), DONE),
    ("not received, popped again", lambda: again(unsent(out())), OUT),
    ("not received, acknowledged in part", lambda: acked(unsent(out()), 10), RETURNED),
    ("not received, acknowledged", lambda: acked(unsent(out()), 10, 11, 12), DONE),
    ("not received, another time", lambda: changed(unsent(out()), MONO_MS + 900), RETURNED),
    ("acknowledged, those before popped, acknowledged again", lambda: acked(popped_before_last(), 12), DONE),
    ("acknowledged, those before popped, another time", lambda: changed(popped_before_last(), MONO_MS, 12), DONE),
    ("the offset is set", lambda: skipped(out()), DONE),
    ("not received, the offset is set", lambda: skipped(unsent(out())), DONE),
    ("taken by a normal pop", lambda: popped_over(out()), DONE),
    ("its time is over, and a slot is wanted", lambda: squeezed(out()), NONE),
    ("not received, and a slot is wanted", lambda: squeezed(unsent(out())), NONE),
    ("done, and a slot is wanted", lambda: squeezed(acked(out(), 10, 11, 12)), NONE),
    ("the queue is cut", lambda: cut(out()), NONE),
    ("not received, and the queue is cut", lambda: cut(unsent(out())), NONE),
    ("done, and the queue is cut", lambda: cut(acked(out(), 10, 11, 12)), NONE),
    ("the window is dropped", lambda: dropped(out()), NONE),
    ("not received, and the window is dropped", lambda: dropped(unsent(out())), NONE),
    ("done, and the window is dropped", lambda: dropped(acked(out(), 10, 11, 12)), NONE),
]


@pytest.mark.parametrize(("make", "then"), [pytest.param(make, then, id=name) for name, make, then in CASES])
def test_a_batch_is_then(make: Callable[[], Walker], then: OrderState) -> None:
    assert make().order_state(PLACE) is then


def test_the_table_is_whole_and_each_cell_is_run() -> None:
    ORDER.check()
    for _, make, _ in CASES:
        make()
    ORDER.check_walked(WALKED)


@pytest.mark.parametrize(
    ("state", "event"), [pair for pair, cell in ORDER.table.items() if cell.kind.value == "impossible"]
)
def test_impossible_events_raise(state: OrderState, event: type) -> None:
    with pytest.raises(ImpossibleEventError):
        ORDER.table[state, event].act(None, event, 0)


def counts(twin: Walker) -> list[int]:
    order = twin.order_at(PLACE)
    return list(order.consumed[0 : order.count])


def test_messages_that_come_again_count() -> None:
    twin = again(out(), offsets=[10, 11, 12, 13])
    assert counts(twin) == [1, 1, 1, 0]
    assert counts(again(twin, b"a2", [10, 11])) == [1, 1], "the same attempt"
    assert counts(again(twin, b"", [11, 12])) == [2, 0]
    assert counts(again(twin, b"", [11])) == [3], "no attempt is no other one"


def test_a_batch_that_no_consumer_has_received_does_not_count() -> None:
    assert counts(again(unsent(out()))) == [0, 0, 0]
    assert counts(again(unanswered(out()))) == [1, 1, 1]


def test_a_batch_without_an_answer_blocks_no_queue() -> None:
    assert not unanswered(new(), b"").order_blocks(PLACE, b"", MONO_MS)
    assert out(b"").order_blocks(PLACE, b"", MONO_MS)


@pytest.mark.parametrize("stores", range(1, 27))
def test_a_death_leaves_one_batch_or_the_other(stores: int) -> None:
    """The one before it, with its counts, until the new one is whole. That one blocks the queue with its answer."""
    twin, left = again(out()), stores

    def count() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise TimeoutError

    twin.memory.before_store = count
    with suppress(TimeoutError):
        again(twin, b"a3", [10], later_ms=700)
    restarted = Walker(WindowMemory(1, 8, twin.memory.content()), NOW_MS + 500, MONO_MS)
    assert counts(restarted) in ([1, 1, 1], [2])
    assert restarted.order_blocked_ms(PLACE) in (MONO_MS + INVISIBLE_MS, None, MONO_MS + INVISIBLE_MS + 200)
    assert not restarted.damaged
