"""The worker `pop` dies between any two stores to its memory, and every promise is kept.

tests/native/test_crash_points.py runs these cases with the build that has the crash points.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from crash_kit import in_child, points
from msgspec import structs

from ringmq.native import lib
from ringmq.pop.entry_twin import Give
from tests.pop.crash_world import SharedMemory, WindowsProcess, lives_at
from tests.pop.memory_kit import forget_copies
from tests.pop.simulation import DeathError

POINTS = points("pop-")
ELSEWHERE = {
    "pop-cut-copied": "an ordered cut, below", "pop-cut-reviving": "an ordered cut, below",
    "pop-entry-in-log": "check points of a stop, below",
    "pop-order-ended": "batches without room, below", "pop-start-order": "damage, below",
    "pop-start-window": "damage, below",
}  # fmt: skip
BEFORE = {
    "pop-start-freed": ["pop-acked", "pop-window-ended"], "pop-start-move-done": ["pop-entry-published"],
    "pop-start-moved": ["pop-move-old-done"], "pop-start-returned": ["pop-entry-published"],
    "pop-start-revived": ["pop-flush-copied"],
}  # fmt: skip
"""Points of a start, and those at which the worker has died before."""
SEEDS, STEPS = 60, 300
HITS, HITS_OF_A_SAMPLE = 6, 2
NOW_MS, MONO_MS, INVISIBLE_MS = 1_800_000_000_000, 1000, 60_000


@pytest.mark.parametrize("point", [point for point in POINTS if point not in ELSEWHERE])
def test_promises_hold_when_the_worker_dies_at_a_point(point: str, is_thorough: bool) -> None:
    """An acknowledged message is never seen again, none is lost, and none is with two consumers."""
    wanted = HITS if is_thorough else HITS_OF_A_SAMPLE
    hits = lives_at(point, BEFORE.get(point, POINTS), seeds=SEEDS, steps=STEPS, hits=wanted)
    assert hits >= wanted, f"{point} was reached {hits} times"


def test_the_exceptions_name_points_that_exist() -> None:
    assert {*ELSEWHERE, *BEFORE, *(point for before in BEFORE.values() for point in before)} <= set(POINTS)


class Lives:
    """Workers of one memory, one after the other."""

    def __init__(self) -> None:
        self.memory = SharedMemory(4, 40)
        self.worker: WindowsProcess | None = None

    def next(self, crash_point: str | None = None) -> WindowsProcess:
        """The next worker. Raises DeathError."""
        self.end()
        self.worker = WindowsProcess(self.memory, NOW_MS, MONO_MS, crash_point)
        return self.worker

    def dies(self, crash_point: str) -> bool:
        """True if a worker dies while it starts."""
        try:
            self.next(crash_point)
        except DeathError:
            return True
        return False

    def end(self) -> None:
        """End the worker."""
        if self.worker is not None:
            self.worker.end()


@pytest.fixture
def lives() -> Iterator[Lives]:
    made = Lives()
    yield made
    made.end()
    made.memory.close()


def give_at(start: int, following: int) -> Give:
    """A pop of the queue offsets from `start` on."""
    return Give(NOW_MS, MONO_MS, start, following, INVISIBLE_MS)


def give_batch(worker: WindowsProcess, place: int, attempt: bytes = b"a1") -> None:
    """An orderly pop of the message 5."""
    worker.order_give(place, give_at(5, 6), attempt, [5])
    worker.order_show(place)


def fill(lives: Lives) -> None:
    """Three windows, in which consumers hold messages 5 to 7."""
    worker = lives.next()
    for window_id in (1, 2, 3):
        place = worker.make(window_id, 0, 0, 5)
        for offset in (5, 6, 7):
            worker.give(place, give_at(offset, offset + 1), [offset])
    lives.end()


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", ["pop-page-marked", "pop-window-ended", "pop-start-freed"])
def test_a_damaged_entry_ends_all_windows_at_last(lives: Lives, point: str, nth: int) -> None:
    """Its messages are below the next offset of a window. That window may not outlive it."""
    fill(lives)
    lives.memory.entry(0).base_offset ^= 1
    assert lives.dies(f"{point}:{nth}")
    worker = lives.next()
    assert (worker.places, worker.of_window) == ({}, {})
    assert worker.state["entries"] == 0


def test_a_damaged_window_ends_alone(lives: Lives) -> None:
    fill(lives)
    lives.memory.window(1).queue_id ^= 1
    assert lives.dies("pop-start-window:1")
    worker = lives.next()
    assert set(worker.places) == {1, 3}
    assert worker.state["entries"] == worker.state["open"] == 6


def test_a_damaged_batch_ends_alone(lives: Lives) -> None:
    worker = lives.next()
    for window_id in (1, 2):
        give_batch(worker, worker.make(window_id, 0, 0, 5))
    lives.end()
    lives.memory.order(0).attempt[0] ^= 1
    assert lives.dies("pop-start-order:1")
    worker = lives.next()
    assert not worker.order_blocks(0, b"", MONO_MS)
    assert worker.order_blocks(1, b"", MONO_MS)
    assert (worker.state["windows"], worker.state["orders"], worker.first_open(0)) == (2, 1, 5)


def test_a_batch_gives_way_though_the_worker_dies(lives: Lives) -> None:
    """The window goes on without it, and the slot is there again."""
    worker = lives.next("pop-order-ended:1")
    place = worker.make(1, 0, 0, 5)
    give_batch(worker, place)
    with pytest.raises(DeathError):
        worker.orders_ready(5, MONO_MS + INVISIBLE_MS)
    worker = lives.next()
    assert worker.state["orders"] == 0
    assert worker.orders_ready(5, MONO_MS) is None
    assert lives.memory.window(place).next_offset == 5


@pytest.mark.parametrize(("point", "is_blocked"), [("pop-order-given", False), ("pop-order-shown", True)])
def test_a_batch_blocks_its_queue_when_its_answer_leaves(lives: Lives, point: str, is_blocked: bool) -> None:
    """Its pop has named no attempt, so nothing else gets it again."""
    worker = lives.next(f"{point}:1")
    place = worker.make(1, 0, 0, 5)
    with pytest.raises(DeathError):
        give_batch(worker, place, b"")
    worker = lives.next()
    assert worker.order_blocks(place, b"", MONO_MS) == is_blocked


@pytest.mark.parametrize("again", [None, "pop-start-returned:1", "pop-start-returned:2", "pop-next-offset:1"])
def test_a_pop_without_an_answer_is_returned_as_a_whole(lives: Lives, again: str | None) -> None:
    """Its entries are in slots of any order. The next start may die, too."""
    worker = lives.next("pop-entry-published:4")
    place = worker.make(1, 0, 0, 0)
    for offset in (0, 1):
        worker.give(place, give_at(offset, offset + 1), [offset])
    for offset in (0, 1):
        worker.ack(place, offset, NOW_MS, offset, 1)
    with pytest.raises(DeathError):
        worker.give(place, give_at(2, 101), [2, 100])
    assert again is None or lives.dies(again)
    worker = lives.next()
    assert worker.returned(place, 10) == [2, 100]
    assert lives.memory.window(place).next_offset == 101


@pytest.mark.parametrize("point", ["pop-move-old-done", "pop-changed"])
def test_a_change_that_is_served_twice_has_one_receipt(lives: Lives, point: str) -> None:
    """The replacement takes the request again. The receipt of its answer has to name the entry."""
    worker = lives.next(f"{point}:1")
    place = worker.make(1, 0, 0, 0)
    worker.give(place, give_at(0, 2), [0, 1])
    change, again = (Give(NOW_MS + later, MONO_MS, 0, 0, INVISIBLE_MS, client=7) for later in (1, 9))
    with pytest.raises(DeathError):
        worker.change(place, 0, NOW_MS, 0, change)
    worker = lives.next()
    assert worker.change(place, 0, NOW_MS, 0, again) == lib.RMQ_POP_KNOWN
    assert worker.changed_at(place, 0, structs.replace(again, client=8)) == -1
    assert worker.changed_at(place, 0, again) == NOW_MS + 1
    assert worker.ack(place, 0, NOW_MS + 1, 0, 1) == (lib.RMQ_POP_DONE, 1)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_stop_that_dies_at_its_check_points_leaves_open_messages(lives: Lives, nth: int) -> None:
    worker = lives.next(f"pop-entry-in-log:{nth}")
    place = worker.make(1, 0, 0, 0)
    worker.give(place, give_at(0, 101), [0, 100])
    with pytest.raises(DeathError):
        worker.note_in_log(place, 0, NOW_MS)
    worker = lives.next()
    assert sum(worker.in_log(place, 0, NOW_MS, offset, 1) for offset in (0, 100)) == nth, "entries in any order"
    assert worker.ack(place, 0, NOW_MS, 100, 1) == worker.ack(place, 0, NOW_MS, 0, 1) == (lib.RMQ_POP_DONE, 1)


@pytest.mark.parametrize("nth", [1, 2, 9])
@pytest.mark.parametrize("point", ["pop-cut-reviving", "pop-cut-copied"])
def test_copies_are_forgotten_though_the_first_cut_dies(lives: Lives, point: str, nth: int) -> None:
    memory, chance = lives.memory, random.Random(nth)
    slots = [memory.entry(number) for number in range(memory.entries_max)]
    for slot in slots:
        slot.state, slot.acked, slot.copied = chance.randrange(6), chance.getrandbits(64), chance.getrandbits(64)
    before = [(int(slot.state), int(slot.acked), int(slot.copied)) for slot in slots]

    def cut() -> None:
        pages = lib.rmq_pop_pages_open(memory.bytes, memory.layout, memory.segment)
        lib.rmq_pop_forget_copies(pages, memory.layout)

    assert in_child(cut, f"{point}:{nth}")
    assert not in_child(cut)
    assert [(int(slot.state), int(slot.acked), int(slot.copied)) for slot in slots] == forget_copies(before)
