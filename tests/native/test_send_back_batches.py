"""Batches of send-backs: which rows of a batch are copied, left to the service, or wait for the next one."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit

from ringmq.broker.requests.records import request_of
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.services.send_back.rows import ROWS, TABLE, Rows, Tried, asked_of_row
from ringmq.store.queue_reader import QueueReader
from tests.native.plain_kit import HOST, ask

MESSAGES = 8
BODY_BYTES = 1000


class Batches:
    """Rows, and a store of MESSAGES messages at `places`."""

    def __init__(self, kit: Kit, reader: QueueReader) -> None:
        self.rows, self._reader = Rows(()), reader
        self.native = self.rows.native
        slot = int(lib.rmq_queue_find(kit.plane, lib.rmq_topic_find(kit.plane, b"T", 1), 0))
        units = reader.units(slot, 0, MESSAGES).units
        self.places = [int(unit.commit_log_offset) for unit in units]
        self._batch = ffi.new("struct rmq_copy_batch *")
        self._arena = self._batch.arena = ffi.new("uint8_t[]", 1 << 16)
        self._batch.body_bytes_max = self._batch.properties_bytes_max = 1 << 15
        self._copies, self.requests = ffi.new("struct rmq_record_copy[]", ROWS), ffi.new("struct rmq_request[]", ROWS)
        self.batch = 0

    def add(self, group: str, message: int = 0, offset: int | None = None) -> None:
        """Add a row, as Python does after it has decoded its request."""
        fields = {
            "offset": str(self.places[message] if offset is None else offset), "group": group, "delayLevel": "0",
        }  # fmt: skip
        of = ask(encode_frame(RemotingCommand.request(36, fields)))
        request = request_of(of, HOST, 9)
        assert self.rows.add(request, of.role, TABLE.decode(fields, request.command.version))

    def begin(self, room: int = 256) -> int:
        return int(lib.rmq_send_backs_look(self._reader.native, self.native, room))

    def end(self, room_bytes: int = 1 << 16) -> list[str]:
        """Copy what is stored. Returns the groups of the copies."""
        target = ffi.new("struct rmq_send_back_target *", {"topic_id": 1})
        count = lib.rmq_send_backs_fill(self.native, target, self._copies)
        self._batch.arena_at, self._batch.arena_end = 0, room_bytes
        done = lib.rmq_record_copies(self._copies, count, self._batch, self.requests) if count else 0
        self.batch += 1
        made = lib.rmq_send_backs_tokens(self.native, self._copies, self.requests, done, 5 << 32, self.batch)
        assert all(request.token >> 32 == 5 for request in self.requests[0:made])
        return [self.group(request.token & 0xFFFFFFFF) for request in self.requests[0:made]]

    def store(self) -> None:
        """Have all cases stored."""
        for number in range(self.native.cases_count):
            case = self.native.cases[number]
            case.action, case.targets_count = lib.RMQ_SEND_BACK_STORE, 1

    def group(self, slot: int) -> str:
        return asked_of_row(self.native.rows[slot]).group

    def left(self) -> list[tuple[str, Any]]:
        return [
            (self.group(slot), self.native.rows[slot].cause) for slot in self.native.left[0 : self.native.left_count]
        ]

    def ready(self) -> list[str]:
        return [self.group(slot) for slot in self.native.ready[0 : self.native.ready_count]]


FILES, SEGMENT_BYTES, SEGMENTS = 2, 4096, 3


@pytest.fixture
def batches(tmp_path: Path) -> Iterator[Batches]:
    """The reader has FILES files open at most. Each file has three messages."""
    kit = Kit(tmp_path, segment_bytes=SEGMENT_BYTES)
    topic = kit.topic(b"T")
    for number in range(1, SEGMENTS):
        kit.create_segment(number * SEGMENT_BYTES)
    with kit.writer() as write, kit.dispatcher() as dispatch:
        for number in range(MESSAGES):
            kit.request(topic, 0, bytes([number]) * BODY_BYTES)
            write()
            kit.completions()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()
    with QueueReader(kit.plane, FILES, 1) as reader:
        yield Batches(kit, reader)


def test_rows_of_further_cases_wait_for_the_next_batch(batches: Batches) -> None:
    groups = [f"g{number}" for number in range(40)]
    for group in groups:
        batches.add(group)
    assert batches.begin() == 40 and batches.native.cases_count == lib.RMQ_SEND_BACK_CASES_MAX
    batches.store()
    assert batches.end() == groups[:32] and batches.native.taken_count == 32
    assert batches.ready() == groups[32:] and not batches.left()
    assert batches.begin() == 8
    batches.store()
    assert batches.end() == groups[32:] and not batches.ready()


def test_copies_without_room_come_first_again(batches: Batches) -> None:
    for number in range(6):
        batches.add(f"g{number}", number)
    assert batches.begin(5) == 5
    batches.store()
    assert batches.end(room_bytes=2 * BODY_BYTES + 500) == ["g0", "g1"]
    assert batches.native.taken_count == 2
    assert batches.ready() == ["g2", "g3", "g4", "g5"]
    assert batches.native.open[batches.batch] == 2


def test_rows_that_are_left(batches: Batches) -> None:
    """Cases that Python does not have stored, sources that no consumer can have got, and damaged ones."""
    batches.add("case")
    for offset in (-1, 1 << 60, batches.places[1] + 1):
        batches.add(f"unsound{offset}", offset=offset)
    batches.add("stored", 2)
    assert batches.begin() == 5 and batches.native.cases_count == 2
    batches.native.cases[1].action, batches.native.cases[1].targets_count = lib.RMQ_SEND_BACK_STORE, 1
    assert batches.end() == ["stored"]
    assert batches.left() == [
        (group, 0) for group in ("case", "unsound-1", f"unsound{1 << 60}", f"unsound{batches.places[1] + 1}")
    ]
    for slot in batches.native.left[0:4]:
        lib.rmq_send_backs_release(batches.native, slot)
    assert len(batches.rows) == 1, "the copy has its slot until its answer"


def test_the_cause_of_a_copy_that_is_not_made(batches: Batches) -> None:
    batches.add("whole", 1)
    batches.add("long", 2)
    batches._batch.body_bytes_max = BODY_BYTES - 1
    batches.begin()
    batches.store()
    assert batches.end() == []
    assert batches.left() == [("whole", lib.RMQ_COPY_BODY), ("long", lib.RMQ_COPY_BODY)]


def test_what_was_tried_for_a_row_makes_a_case_of_its_own(batches: Batches) -> None:
    for _ in range(3):
        batches.add("G")
    batches.native.rows[batches.native.ready[1]].tried = Tried.MADE
    batches.begin()
    assert [batches.native.cases[number].rows for number in range(batches.native.cases_count)] == [2, 1]
    for number in range(2):
        batches.native.cases[number].action = lib.RMQ_SEND_BACK_DROP
    assert batches.end() == [] and not batches.left()
    assert len(batches.rows) == 0, "rows of a dead read worker end"


def test_sources_in_too_many_files_wait_for_the_next_batch(batches: Batches) -> None:
    messages = (0, 3, 6, 1, 7)
    for message in messages:
        batches.add(f"g{message}", message)
    assert [batches.places[message] // SEGMENT_BYTES for message in messages] == [0, 1, 2, 0, 2]
    batches.begin()
    batches.store()
    assert batches.end() == ["g0", "g3", "g1"] and batches.ready() == ["g6", "g7"]
    batches.begin()
    batches.store()
    assert batches.end() == ["g6", "g7"] and not batches.left()


def test_a_file_that_cannot_be_mapped_keeps_no_row_for_ever(batches: Batches) -> None:
    """The first row of a batch has no source beside it that could be let go of."""
    for message in (0, 3):
        batches.add(f"g{message}", message)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        batches.begin()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert batches.end() == [] and not batches.ready()
    assert batches.left() == [("g0", 0), ("g3", 0)]


def test_rows_have_a_limit(batches: Batches) -> None:
    batches.native.unused_count = 1
    batches.add("last")
    with pytest.raises(AssertionError):
        batches.add("beyond")
    assert len(batches.rows) == ROWS and batches.ready() == ["last"]
