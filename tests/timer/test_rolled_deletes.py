"""A batch with a rolled delete has nothing that is due behind it: messages there may be named by the delete."""

from typing import Any

import pytest

from ringmq.native import ffi, lib
from ringmq.timer.slots import Slots
from ringmq.timer.timer_log import Magic
from tests.timer.kit import PRECISION_MS, SECRET, MemoryFiles

SLOT_MS = 1_800_000_000_000
NOW_MS = SLOT_MS + PRECISION_MS
DEFAULT, ROLL, ROLLED_DELETE = Magic.DEFAULT, Magic.DEFAULT | Magic.ROLL, Magic.DEFAULT | Magic.ROLL | Magic.DELETE
ROOM = 8


class Batch:
    """A slot with a unit for each (magic, ms behind the slot), and the arrays for a batch of it."""

    def __init__(self, units: list[tuple[Magic, int]]) -> None:
        self.files = MemoryFiles(1, 4096)
        self.slots = Slots(self.files)  # type: ignore[arg-type]
        opened = lib.rmq_timer_slot_open(SLOT_MS, 1 << 20, 0, SECRET)
        self.slot = ffi.gc(opened, lib.rmq_timer_slot_close)
        for number, (magic, at_ms) in enumerate(units):
            unit = ffi.new("struct rmq_timer_unit *", {
                "enqueue_ms": SLOT_MS, "slot_ms": SLOT_MS, "magic": int(magic), "commit_log_offset": 100 * number,
                "size": 100,
            })  # fmt: skip
            assert lib.rmq_timer_append(self.files.struct, unit) == 1
            record = ffi.new("struct rmq_timer_record *", {"exact_ms": SLOT_MS + at_ms})
            assert lib.rmq_timer_slot_add(self.slot, number, int(magic), record) == 0
        self.slots.batch.room = ROOM

    def take(self) -> list[Magic]:
        count = lib.rmq_timer_take(self.files.struct, self.slot, NOW_MS, self.slots.batch)
        assert count == self.slots.batch.count
        return [Magic(magic) for magic in self.slots.batch.magics[0:count]]

    def submit(self, kinds: list[int]) -> Any:
        requests = ffi.new("struct rmq_request[]", [{"kind": kind} for kind in kinds])
        tally = ffi.new("struct rmq_timer_tally *")
        flight = self.slots.flight
        lib.rmq_timer_submitted(flight, self.slot, self.slots.batch, requests, len(kinds), tally)
        return flight


@pytest.mark.parametrize(
    ("units", "batches"),
    [
        ([(DEFAULT, 1), (ROLL, 0), (DEFAULT, 2)], [[ROLL, DEFAULT, DEFAULT]]),
        ([(ROLL, 0), (ROLLED_DELETE, 0), (ROLL, 0), (DEFAULT, 1)], [[ROLL, ROLLED_DELETE, ROLL], [DEFAULT]]),
        ([(DEFAULT, -5), (ROLLED_DELETE, 0), (DEFAULT, 1)], [[DEFAULT, ROLLED_DELETE], [DEFAULT]]),
    ],
)
def test_a_batch_ends_behind_a_rolled_delete(units: list[tuple[Magic, int]], batches: list[list[Magic]]) -> None:
    batch = Batch(units)
    for magics in [*batches, []]:
        assert batch.take() == magics


@pytest.mark.parametrize(
    ("kinds", "last"), [([1, 1, 1, 1], 3), ([1, 0, 1, 1], 2), ([1, 1], 2), ([1], 0), ([1, 0, 0, 1], 0)]
)
def test_the_last_rolled_delete_is_counted_among_the_copies(kinds: list[int], last: int) -> None:
    """Requests of kind 0 are not copied. Messages without a request return to the slot."""
    batch = Batch([(ROLL, 0), (ROLLED_DELETE, 0), (ROLLED_DELETE, 0), (ROLL, 0)])
    assert len(batch.take()) == 4
    flight = batch.submit(kinds)
    assert (flight.last_delete, flight.count) == (last, sum(kinds))
    assert not last or flight.delete_ms == SLOT_MS
    assert len(batch.take()) == 4 - len(kinds)
