"""Consumer offsets of windows: C and its twin report the same, and tell others' offsets from reports of their own."""

import mmap
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plane_kit import Kit

from ringmq.ipc.ports import PortPlan
from ringmq.native import ffi, lib
from ringmq.pop.offsets import PASS_MS, Offsets
from ringmq.pop.offsets_twin import Offset, look
from ringmq.pop.window_names import Window

ROLE, GROUP, QUEUES, START, END = lib.RMQ_ROLE_POP, 1, 3, 77, 500


class Stage:
    """Windows of one group, a table of offsets, and a ring of commits that the test drains."""

    def __init__(self, root: Path) -> None:
        self.kit = Kit(
            root, ports=(PortPlan(ROLE, 4096, lib.RMQ_PORT_COMMITS | lib.RMQ_PORT_PULL_STATS, request_slots=64),)
        )
        plane = self.kit.plane
        topic = self.kit.topic(b"T", QUEUES)
        assert lib.rmq_group_add(plane, b"G", 1, lib.RMQ_GROUP_LIVE) == GROUP
        self.slots = [int(lib.rmq_queue_find(plane, topic, queue)) for queue in range(QUEUES)]
        for queue in range(QUEUES):
            self.kit.queue(topic, queue).max_offset = END
        layout = lib.rmq_pop_layout_of(64, 4096)
        self._map = mmap.mmap(-1, int(layout.mapped_bytes))
        self._base = ffi.from_buffer("uint8_t *", self._map, require_writable=True)
        self.pages = lib.rmq_pop_pages_open(self._base, layout, -1)
        self.layout = layout
        self.open()
        self.twins: dict[int, Offset] = {}
        self.firsts: dict[tuple[int, int], int] = {}
        """The start offset of the pop of each message."""
        self.places = [self._window(queue) for queue in range(QUEUES)]

    def open(self) -> None:
        """A process of the worker begins."""
        plane, self.rows = self.kit.plane, ffi.new("struct rmq_pop_offset[]", 64)
        self.windows = lib.rmq_pop_windows_open(self.pages, self.layout, 1000, 1000, ffi.new("uint64_t *"))
        port = int(lib.rmq_port_find(plane, ROLE))
        self.native = ffi.new(
            "struct rmq_pop_offsets *",
            {"windows": self.windows, "plane": plane, "port": port, "count": 64, "at": self.rows, "start_id": START},
        )

    def restart(self) -> None:
        """Another process goes on with the windows."""
        rows = bytes(ffi.buffer(self.rows))
        lib.rmq_pop_windows_close(self.windows)
        self.open()
        ffi.memmove(self.rows, rows, len(rows))

    def _window(self, queue: int) -> int:
        place = ffi.new("uint32_t *")
        assert lib.rmq_pop_window_make(self.windows, queue + 1, queue, 0, 0, place) == 0
        row = self.rows[place[0]]
        row.window, row.group_id, row.queue_slot = queue + 1, GROUP, self.slots[queue]
        self.twins[int(place[0])] = Offset([], 0, -1)
        return int(place[0])

    def table(self, number: int) -> int:
        return int(lib.rmq_offset_get(self.kit.plane, GROUP, self.slots[number]))

    def is_known(self, number: int) -> bool:
        return bool(lib.rmq_offset_is_known(self.kit.plane, GROUP, self.slots[number]))

    def start(self) -> None:
        """The broker starts again: the windows do not know its table of offsets."""
        self.native.start_id += 1
        for twin in self.twins.values():
            twin.is_told = False

    def set(self, number: int, offset: int) -> None:
        assert lib.rmq_offset_put(self.kit.plane, GROUP, self.slots[number], offset) == 0

    def drain(self) -> None:
        assert lib.rmq_offset_drain(self.kit.plane) >= 0

    def done_up_to(self, number: int, offset: int) -> None:
        """The messages of a queue up to an offset are done."""
        place = self.places[number]
        lib.rmq_pop_skip_to(self.windows, place, offset)
        _skip_to(self.twins[place], offset)

    def give(self, number: int, count: int) -> None:
        """The next messages of a queue are given."""
        place = self.places[number]
        first = int(lib.rmq_pop_window_at(self.windows, place).next_offset)
        give = ffi.new("struct rmq_pop_give *", {
            "pop_time_ms": 5, "mono_ms": 1000, "start_offset": first, "next_offset": first + count,
            "invisible_ms": 9000,
        })  # fmt: skip
        offsets = ffi.new("int64_t[]", list(range(first, first + count)))
        assert lib.rmq_pop_window_give(self.windows, place, give, offsets, count) == 0
        self.twins[place].next_offset = first + count
        self.twins[place].open += range(first, first + count)
        self.firsts |= {(number, offset): first for offset in range(first, first + count)}

    def ack(self, number: int, offset: int) -> None:
        """A message is done."""
        done = ffi.new("uint32_t *")
        place, first = self.places[number], self.firsts[number, offset]
        assert lib.rmq_pop_ack(self.windows, place, first, 5, offset, 1, done) == lib.RMQ_POP_DONE
        self.twins[place].open.remove(offset)

    def return_all(self, number: int, first: int) -> None:
        """No client has received the answer that began with `first`."""
        lib.rmq_pop_unsent(self.windows, self.places[number], first, 5)

    def returned(self, number: int) -> int:
        opened = int(lib.rmq_pop_open_messages(self.windows, self.places[number]))
        return opened - int(lib.rmq_pop_held_messages(self.windows, self.places[number]))

    def next_offset(self, number: int) -> int:
        return int(lib.rmq_pop_window_at(self.windows, self.places[number]).next_offset)

    def queue(self, number: int) -> Any:
        return lib.rmq_queue_at(self.kit.plane, self.slots[number])

    def look(self) -> list[int]:
        """A pass of both. Returns the numbers of windows that were set back."""
        tables = [self.table(number) if self.is_known(number) else None for number in range(QUEUES)]
        lib.rmq_pop_offsets_begin(self.native)
        may_compare = bool(self.native.may_compare)
        assert lib.rmq_pop_offsets_look(self.native, 64) == 0
        native = [self.places.index(place) for place in self.native.changed[0 : self.native.changed_count]]
        reports: list[int] = []
        left: list[int] = []
        twin = []
        for number, place in enumerate(self.places):
            window = self.twins[place]

            def skip_to(offset: int, window: Offset = window) -> None:
                _skip_to(window, offset)

            def report(offset: int) -> bool:
                reports.append(offset)
                return True

            row = self.queue(number)
            end = max(int(row.max_offset), int(row.log_end))
            is_told = look(
                window, tables[number], end, may_compare=may_compare, report=report, skip_to=skip_to,
                leave_returned=left.append,
            )  # fmt: skip
            if not is_told:
                twin.append(number)
        assert native == twin
        assert self.committed() == [self.twins[place].committed for place in self.places]
        return native

    def committed(self) -> list[int]:
        return [int(lib.rmq_pop_window_at(self.windows, place).committed) for place in self.places]

    def close(self) -> None:
        lib.rmq_pop_windows_close(self.windows)
        lib.rmq_pop_pages_close(self.pages)
        ffi.release(self._base)


def _skip_to(window: Offset, offset: int) -> None:
    window.next_offset = max(window.next_offset, offset)


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_the_lowest_open_message_is_reported_once(stage: Stage) -> None:
    stage.done_up_to(0, 5)
    assert stage.look() == []
    stage.drain()
    assert stage.table(0) == 5 and stage.native.reported == QUEUES
    assert stage.look() == [] and stage.native.reported == QUEUES


def test_open_messages_and_next_offsets_are_told(stage: Stage) -> None:
    def told() -> list[tuple[int, int]]:
        port = stage.kit.header.ports.port[int(lib.rmq_port_find(stage.kit.plane, ROLE))]
        entries = ffi.cast("struct rmq_pull_stats *", stage.kit.plane.base + port.pull_stats_at)
        keys = {int(entries[number].key): entries[number] for number in range(port.pull_stats.count)}
        found = [keys[GROUP << 32 | slot] for slot in stage.slots]
        return [(int(entry.open), int(entry.next_offset)) for entry in found]

    stage.look()
    assert told() == [(0, 0)] * QUEUES
    give = ffi.new("struct rmq_pop_give *", {"pop_time_ms": 5, "mono_ms": 1000, "next_offset": 3, "invisible_ms": 9000})
    assert lib.rmq_pop_window_give(stage.windows, stage.places[1], give, ffi.new("int64_t[]", [0, 1, 2]), 3) == 0
    stage.done_up_to(2, 7)
    lib.rmq_pop_offsets_begin(stage.native)
    assert lib.rmq_pop_offsets_look(stage.native, 64) == 0
    assert told() == [(0, 0), (3, 3), (0, 7)]
    assert lib.rmq_pull_stats_open(stage.kit.plane, GROUP, stage.slots[1]) == 3
    assert lib.rmq_pull_stats_open(stage.kit.plane, GROUP + 1, stage.slots[1]) == -1, "a group that pops nothing"
    reader = next(
        number for number in range(stage.kit.header.ports.count)
        if stage.kit.header.ports.port[number].flags & lib.RMQ_PORT_CONNECTIONS
    )  # fmt: skip
    lib.rmq_pull_stats_add(stage.kit.plane, reader, GROUP, stage.slots[1], 1, 1, 5, 1 << 40)
    assert lib.rmq_pull_stats_open(stage.kit.plane, GROUP, stage.slots[1]) == -1, "the group has pulled last"
    lib.rmq_pop_ack(stage.windows, stage.places[1], 0, 5, 1, 1, ffi.new("uint32_t *"))
    lib.rmq_pop_offsets_begin(stage.native)
    assert lib.rmq_pop_offsets_look(stage.native, 64) == 0
    assert told() == [(0, 0), (2, 3), (0, 7)]


def test_a_larger_offset_of_others_moves_the_window_on(stage: Stage) -> None:
    stage.look()
    stage.drain()
    stage.look()
    stage.set(1, 40)
    assert stage.look() == []
    assert lib.rmq_pop_window_at(stage.windows, stage.places[1]).next_offset == 40
    stage.drain()
    assert stage.table(1) == 40


def test_an_offset_beyond_the_end_passes_over_no_later_message(stage: Stage) -> None:
    """A client commits what it knows of a topic that was made anew since. The table gets the end in its place, once."""
    stage.look()
    stage.drain()
    stage.set(1, 1_000_000)
    assert stage.look() == [] and stage.next_offset(1) == END
    stage.queue(1).max_offset = END + 20
    assert stage.look() == [] and stage.next_offset(1) == END, "the report is on its way"
    stage.drain()
    reported = int(stage.native.reported)
    stage.start()  # the next process does not take the offset for another word
    assert stage.look() == [] and stage.next_offset(1) == END and stage.table(1) == END
    assert int(stage.native.reported) == reported


def test_open_messages_stay_before_an_end_that_takes_the_place_of_an_offset(stage: Stage) -> None:
    stage.give(1, 3)
    stage.look()
    stage.drain()
    stage.set(1, END + 1)
    stage.look()
    stage.drain()
    assert stage.look() == [] and stage.table(1) == stage.next_offset(1) == END
    assert lib.rmq_pop_open_messages(stage.windows, stage.places[1]) == 3


def test_the_offset_passes_messages_that_are_open_before_it(stage: Stage) -> None:
    """Members that pull have passed message 1. What the others do behind it counts all the same."""
    stage.give(1, 3)
    stage.look()
    stage.drain()
    stage.set(1, 3)
    stage.give(1, 4)
    stage.look()
    stage.ack(1, 3)
    stage.ack(1, 4)
    stage.look()
    stage.drain()
    assert stage.table(1) == 5
    stage.ack(1, 5)
    stage.ack(1, 6)
    stage.look()
    stage.drain()
    assert stage.table(1) == 7 == stage.next_offset(1)
    assert lib.rmq_pop_open_messages(stage.windows, stage.places[1]) == 3


def test_messages_that_no_client_has_received_come_by_the_retry_topic_behind_the_offset(stage: Stage) -> None:
    """Members that pull do not ask for them again."""
    stage.give(1, 3)
    stage.give(1, 2)
    stage.look()
    stage.drain()
    stage.return_all(1, 0)
    stage.return_all(1, 3)
    stage.look()
    assert stage.returned(1) == 5, "the next pop begins with them"
    stage.set(1, 3)
    stage.look()
    assert stage.returned(1) == 2
    due = ffi.new("struct rmq_pop_due[]", 64)
    assert lib.rmq_pop_due(stage.windows, 1000, due, 64) == 3
    assert [due[number].queue_offset for number in range(3)] == [0, 1, 2]


def test_the_log_may_end_behind_what_dispatch_knows(stage: Stage) -> None:
    """Behind a start, an offset of before it is not beyond the end."""
    stage.queue(1).log_end = END + 10
    stage.set(1, END + 10)
    assert stage.look() == [] and stage.next_offset(1) == END + 10
    stage.drain()
    assert stage.look() == [] and stage.table(1) == END + 10


def test_a_window_that_a_start_has_cut_back_reports_its_end(stage: Stage) -> None:
    """A power cut has taken messages, but not the consumer offset behind them."""
    stage.done_up_to(1, 400)
    stage.look()
    stage.drain()
    stage.queue(1).max_offset = 300
    lib.rmq_pop_clamp(stage.windows, stage.places[1], 300)
    twin = stage.twins[stage.places[1]]
    twin.next_offset = 300
    stage.start()
    assert stage.look() == [] and stage.next_offset(1) == 300
    stage.drain()
    assert stage.look() == [] and stage.table(1) == 300


def test_a_smaller_offset_of_others_is_told_but_not_that_of_an_older_file(stage: Stage) -> None:
    stage.done_up_to(2, 9)
    stage.look()
    stage.drain()
    stage.start()
    stage.set(2, 4)  # the table of a file that was saved before
    assert stage.look() == []
    stage.drain()
    assert stage.table(2) == 9
    assert stage.look() == []
    stage.set(2, 3)
    assert stage.look() == [2]


@pytest.mark.parametrize("offset", [-1, 0, 4])
def test_an_offset_that_is_deleted_or_set_right_behind_a_report_is_told(stage: Stage, offset: int) -> None:
    """No look comes between the report and the word of somebody else."""
    stage.done_up_to(1, 9)
    stage.look()
    stage.drain()
    stage.set(1, offset)
    assert stage.look() == [1]


@pytest.mark.parametrize("offset", [-1, 0, 4])
def test_the_word_of_others_counts_while_no_worker_looks(stage: Stage, offset: int) -> None:
    """An operator may set the offset while the worker rests. The memory says that this plane had another one."""
    stage.done_up_to(1, 9)
    stage.look()
    stage.drain()
    stage.set(1, offset)
    stage.restart()
    assert stage.look() == [1]


def test_an_equal_offset_of_a_new_start_may_be_set_back(stage: Stage) -> None:
    stage.done_up_to(0, 5)
    stage.look()
    stage.drain()
    stage.start()
    assert stage.look() == [] and stage.native.reported == QUEUES, "nothing is reported again"
    stage.set(0, 2)
    assert stage.look() == [0]


def test_a_full_table_is_told_again(stage: Stage) -> None:
    """Control could not store the report. That is nobody's word."""
    stage.done_up_to(0, 5)
    stage.look()
    stage.kit.header.tables.offset_capacity, room = 0, int(stage.kit.header.tables.offset_capacity)
    assert lib.rmq_offset_drain(stage.kit.plane) < 0
    assert stage.look() == []
    stage.kit.header.tables.offset_capacity = room
    stage.drain()
    assert stage.table(0) == 5


@pytest.mark.parametrize("seed", range(20))
def test_both_agree_on_random_steps(stage: Stage, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        number = chance.randrange(QUEUES)
        twin = stage.twins[stage.places[number]]
        match chance.randrange(6):
            case 0:
                stage.done_up_to(number, chance.randrange(END))
            case 1:
                stage.set(number, chance.randrange(-1, END + 100))
            case 2:
                if not chance.randrange(8):
                    stage.give(number, 3)
            case 5:
                if twin.open:
                    stage.ack(number, chance.choice(twin.open))
            case 3:
                stage.drain()
                if not chance.randrange(8):
                    stage.start()
            case _:
                stage.look()


class ChangedNames:
    """Windows by their place, and the places that have changed."""

    def __init__(self, windows: dict[int, Window]) -> None:
        self.windows, self._changed = windows, sorted(windows, reverse=True)

    def at(self, place: int) -> Window | None:
        return self.windows.get(place)

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def take_changed(self, room: int) -> list[int]:
        return [self._changed.pop() for _ in range(min(room, len(self._changed)))]

    def end(self, place: int) -> None:
        del self.windows[place]
        self._changed.append(place)

    def find(self, group_id: int, queue_slot: int) -> Window | None:
        found = (each for each in self.windows.values() if (each.group_id, each.queue_slot) == (group_id, queue_slot))
        return next(found, None)


def plane_of(stage: Stage) -> Any:
    watermarks = SimpleNamespace(start_id=START)
    return SimpleNamespace(struct=stage.kit.plane, header=stage.kit.header, watermarks=watermarks)


def test_windows_are_taken_over_some_a_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start finds all of them at once, and consumers wait for the end of each turn."""
    monkeypatch.setattr("ringmq.pop.offsets.FOLLOWED_PER_TURN", 2)
    plane = plane_of(stage)
    names: Any = ChangedNames({
        place: Window(place, number + 1, GROUP, stage.slots[number]) for number, place in enumerate(stage.places)
    })  # fmt: skip
    offsets = Offsets(plane, int(stage.native.port), stage.windows, names, 64, print, lambda group_id: None)
    assert offsets.turn(1000) and offsets.reported == 2
    assert not offsets.turn(1001) and offsets.sleep_ms(1001) == PASS_MS - 1, "the next pass has its time"
    assert not offsets.turn(1000 + PASS_MS) and offsets.reported == 3
    names.end(stage.places[0])
    stage.drain()
    for number in range(QUEUES):
        stage.done_up_to(number, 7)
    assert offsets.sleep_ms(1001 + PASS_MS) == 0
    assert not offsets.turn(1000 + 2 * PASS_MS)
    stage.drain()
    assert [stage.table(number) for number in range(QUEUES)] == [0, 7, 7]


def test_nothing_is_open_of_a_window_that_has_ended(stage: Stage) -> None:
    """A topic that is made anew has its queues: tools would take old numbers for its own."""
    plane, at = plane_of(stage), stage.places[1]
    names: Any = ChangedNames({at: Window(at, 2, GROUP, stage.slots[1])})
    offsets = Offsets(plane, int(stage.native.port), stage.windows, names, 64, print, lambda group_id: None)

    def told() -> tuple[int, int]:
        pair = stage.kit.plane, GROUP, stage.slots[1]
        return int(lib.rmq_pull_stats_open(*pair)), int(lib.rmq_pull_stats_next_offset(*pair))

    stage.give(1, 3)
    offsets.turn(1000)
    assert told() == (3, 3)
    names.end(at)
    offsets.turn(1001)
    assert told() == (0, 0)


def test_nothing_is_open_of_a_window_that_has_ended_before_the_worker_could_look(stage: Stage) -> None:
    """The worker before has died, and the topic is deleted, or the window is damaged."""
    places, slots = stage.places, stage.slots
    windows = {places[number]: Window(places[number], number + 1, GROUP, slots[number]) for number in (0, 1)}

    def started(places: dict[int, Window]) -> Offsets:
        names: Any = ChangedNames(dict(places))
        return Offsets(plane_of(stage), int(stage.native.port), stage.windows, names, 64, print, lambda group_id: None)

    def told() -> list[tuple[int, int]]:
        pairs = [(stage.kit.plane, GROUP, slot) for slot in slots[:2]]
        return [(int(lib.rmq_pull_stats_open(*pair)), int(lib.rmq_pull_stats_next_offset(*pair))) for pair in pairs]

    stage.give(0, 2)
    stage.give(1, 3)
    started(windows).turn(1000)
    assert told() == [(2, 2), (3, 3)]
    del windows[places[1]]
    started(windows).turn(1000)
    assert told() == [(2, 2), (0, 0)]
