"""Batches of copies: C sorts messages into cases as its twin does, and no message is lost on the way."""

import random
from typing import Any

import pytest

from ringmq.native import ffi, lib
from ringmq.pop.copies_twin import look

ROWS, BATCH = lib.RMQ_POP_COPIES_MAX, lib.RMQ_POP_COPY_BATCH


class Rows:
    """Messages that are ready, with their windows."""

    def __init__(self, windows: list[int]) -> None:
        self.native = ffi.new("struct rmq_pop_copies *")
        self._arrays: dict[str, Any] = {
            "rows": ffi.new("struct rmq_pop_copy[]", ROWS), "ready": ffi.new("uint32_t[]", ROWS),
            "taken": ffi.new("uint32_t[]", BATCH), "copied": ffi.new("uint32_t[]", BATCH),
            "unused": ffi.new("uint32_t[]", ROWS), "left": ffi.new("uint32_t[]", ROWS),
            "open": ffi.new("uint32_t[]", ROWS),
        }  # fmt: skip
        for name, array in self._arrays.items():
            setattr(self.native, name, array)
        self.window_of = dict(enumerate(windows))
        for slot, window in enumerate(windows):
            self.native.rows[slot].due.window = window
            lib.rmq_pop_copies_ready(self.native, slot)

    @property
    def ready(self) -> list[int]:
        return list(self.native.ready[0 : self.native.ready_count])

    def look(self, room: int) -> list[int]:
        """A batch of both."""
        taken, left, cases = look(self.ready, self.window_of, room)
        assert lib.rmq_pop_copies_look(self.native, room) == len(taken)
        assert list(self.native.taken[0 : self.native.taken_count]) == taken
        assert self.ready == left
        found = self.native.cases[0 : self.native.cases_count]
        assert [(case.window, case.rows) for case in found] == cases
        assert all(cases[self.native.rows[slot].case_number][0] == self.window_of[slot] for slot in taken)
        return taken


@pytest.mark.parametrize("seed", range(30))
def test_both_sort_alike_until_nothing_is_ready(seed: int) -> None:
    chance = random.Random(seed)
    windows = [1 + chance.randrange(chance.choice((1, 5, 200))) for _ in range(chance.choice((1, 255, 2000)))]
    rows, seen = Rows(windows), list[int]()
    while rows.ready:
        seen += rows.look(chance.choice((1, 64, 256, 4096)))
    assert sorted(seen) == list(range(len(windows)))


def test_messages_without_room_stay_in_front_and_those_on_disk_go_behind() -> None:
    rows = Rows([1] * 4)
    rows.look(4)
    rows.native.rows[0].is_later = 1
    rows.native.copied_count, rows.native.copied[0], rows.native.copied[1] = 2, 1, 2
    rows.native.rows[3].left = lib.RMQ_POP_LEFT_GONE
    requests, copies = ffi.new("struct rmq_request[]", BATCH), ffi.new("struct rmq_record_copy[]", BATCH)
    requests[0].kind = lib.RMQ_APPEND_SINGLE
    out, arena_at = ffi.new("struct rmq_request[]", 2 * BATCH), ffi.new("uint64_t *", 7)
    assert lib.rmq_pop_copies_tokens(rows.native, copies, requests, 1, 5, out, arena_at) == 1 and arena_at[0] == 7
    assert out[0].token == 1 and rows.native.open[5] == 1 and rows.native.rows[1].batch == 5
    assert rows.ready == [2, 0]
    assert list(rows.native.left[0 : rows.native.left_count]) == [3]
