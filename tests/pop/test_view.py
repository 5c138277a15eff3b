"""A look at open messages: C and its twin see the same in memories of random calls, whole or in steps."""

from __future__ import annotations

from typing import Any

import pytest
from test_window_twin import Play

from ringmq.ipc.plane import NONE
from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.pop.view_twin import Share, look, top

ROWS: int = lib.RMQ_POP_VIEW_ROWS
USED = ROWS // 4 * 3


class Look:
    """A view of C of all windows, or of the windows of group 1 that `of_group` names."""

    def __init__(self, windows: Any, now_ms: int, oldest_max: int, of_group: list[int] | None = None) -> None:
        self.rows = [ffi.new("struct rmq_pop_view_row[]", ROWS) for _ in range(2)]
        self.index = ffi.gc(lib.rmq_pop_index_open(table_secret(), 64, 8), lib.rmq_pop_index_close)
        for place in range(64):
            group = 2 if of_group is not None and place not in of_group else 1
            assert lib.rmq_pop_index_put(self.index, group, place, place, place + 1) == 0
        self.native = ffi.new("struct rmq_pop_view *")
        self.native.windows, self.native.index, self.native.now_ms = windows, self.index, now_ms
        self.native.group_id = NONE if of_group is None else 1
        self.native.oldest_max, (self.native.queues, self.native.clients) = oldest_max, self.rows
        lib.rmq_pop_view_begin(self.native)

    def run(self, room: int) -> int:
        """All steps. Returns their number."""
        steps = 1
        while lib.rmq_pop_view_step(self.native, room):
            steps += 1
        return steps

    def top(self, number: int, room: int) -> list[tuple[int, Share]]:
        found = ffi.new("struct rmq_pop_view_row[]", max(room, 1))
        count = lib.rmq_pop_view_top(self.rows[number], found, room)
        return [
            (int(row.key) - 1, Share(int(row.messages), int(row.oldest_ms), int(row.next_due_ms)))
            for row in found[0:count]
        ]


def time_of(value: int) -> int | None:
    return None if value == 2**63 - 1 else value


@pytest.mark.parametrize("seed", range(24))
def test_both_see_the_same(seed: int) -> None:
    play = Play(seed)
    for _ in range(120):
        play.go()
    random, memory, records = play.random, play.pair.twin.memory, play.pair.twin.records
    places = {int(memory.window(place).id): place for place in range(memory.windows_max) if memory.window(place).id}
    entries = [
        (places[entry.window], entry, records[number].stored if number in records else 0)
        for number in range(memory.entries_max)
        if (entry := memory.entry(number)).state and entry.window in places
    ]
    chosen = random.choice([None, random.sample(range(memory.windows_max), 2)])
    twin = play.pair.twin
    orders = [(place, twin.order_at(place), twin.open_numbers(place)) for place in sorted(twin.order_places.values())]
    now_ms, oldest_max = play.now_ms + random.choice((-5000, 0, 5000)), random.choice((1, 3, 64))
    native = Look(play.pair.native.native, now_ms, oldest_max, chosen)
    native.run(random.choice((1, 7, 1000)))
    found = native.native
    if chosen is None:  # of all groups, those of batches are left out
        expected = look(entries, [], list(places.values()), now_ms, oldest_max)
    else:
        expected = look(entries, orders, chosen, now_ms, oldest_max)
    assert (found.messages, found.returned, found.due) == (expected.messages, expected.returned, expected.due)
    assert found.entries == expected.entries
    assert (time_of(found.oldest_ms), time_of(found.oldest_due_ms)) == (expected.oldest_ms, expected.oldest_due_ms)
    oldest = [
        (int(one.pop_time_ms), int(one.place), int(one.queue_offset), int(one.messages), int(one.attempts))
        for one in found.oldest[0 : found.oldest_count]
    ]
    assert [each[0] for each in oldest] == [each[0] for each in expected.oldest]
    if oldest_max == 64:
        assert sorted(oldest) == sorted(expected.oldest)
    for number, shares in enumerate((expected.queues, expected.clients)):
        for room in (0, 1, 2, 50):
            assert native.top(number, room) == top(shares, room)
    assert (found.queue_count, found.client_count) == (len(expected.queues), len(expected.clients))


def test_a_step_looks_at_so_many_entries() -> None:
    play = Play(3)
    while len([1 for number in range(40) if play.pair.native.memory.entry(number).state]) < 20:
        play.go()
    assert Look(play.pair.native.native, 0, 1).run(10) >= 2


def test_clients_without_a_row_are_counted_together() -> None:
    play = Play(1, 1, USED + 10)
    play.make()
    (place,) = play.places()
    give = ffi.new("struct rmq_pop_give *", {"invisible_ms": 1000})
    windows, count = play.pair.native.native, USED + 5
    for number in range(count):
        give.client, give.pop_time_ms, give.start_offset = number + 1, number, 1 << 40
        offset = (1 << 40) + number
        give.next_offset = offset + 1
        assert lib.rmq_pop_window_give(windows, place, give, ffi.new("int64_t[]", [offset]), 1) == 0
    native = Look(windows, 0, 64)
    native.run(1 << 20)
    assert (native.native.messages, native.native.client_count, native.native.client_rest) == (count, USED, 5)
    assert [key for key, _ in native.top(1, 3)] == [1, 2, 3], "of equals the smaller key"
    assert [one.client for one in native.native.oldest] == list(range(1, 65))
