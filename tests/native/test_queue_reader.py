"""The queue reader against the files that dispatch wrote, against retention, damage and want, and against its twin."""

import errno
import os
import random
import resource
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit, maps_of

from ringmq.native import ffi, lib
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_reader import (
    SCAN_MAX,
    TAGS_MAX,
    DamagedError,
    DeletedError,
    NotConfirmedError,
    NotMappedError,
    QueueReader,
    QueueReadError,
    Ranges,
    Units,
)
from ringmq.store.queue_reader_twin import QueueBounds, QueueReaderTwin

SEGMENT_BYTES = 65536
COUNT = 700  # units: two full files of 300 and the begin of a third
FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


class PlaneBounds:
    """What the kit's plane says, for the twin."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    @property
    def confirm_offset(self) -> int:
        return int(lib.rmq_confirm_offset(self._kit.marks))

    @property
    def min_offset(self) -> int:
        return int(self._kit.marks.min_offset)

    @property
    def append_offset(self) -> int:
        return int(self._kit.marks.append_offset)

    def queue(self, slot: int) -> QueueBounds:
        queue = lib.rmq_queue_at(self._kit.plane, slot)
        topic = lib.rmq_topic_at(self._kit.plane, queue.topic_id)
        name = bytes(ffi.buffer(topic.name, topic.name_length)).decode()
        is_live = bool(topic.config >> 40 & lib.RMQ_TOPIC_LIVE)
        return QueueBounds(name, queue.queue_id, queue.min_offset, queue.max_offset, is_live)


def fill(kit: Kit, topic: int, count: int) -> None:
    """Messages through write and dispatch, with three tags in turn."""
    for number in range(1, count * 200 // SEGMENT_BYTES + 2):
        kit.create_segment(number * SEGMENT_BYTES)
    with kit.writer() as write, kit.dispatcher() as dispatch:
        for number in range(count):
            kit.request(topic, 0, b"%04d" % number, properties=f"TAGS\x01{'abc'[number % 3]}\x02".encode())
            if number % 32 == 31:
                write()
                kit.completions()
        write()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """TopicA/0 has COUNT messages; slot 0."""
    kit = Kit(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(kit, kit.topic(b"TopicA"), COUNT)
    assert kit.queue(1, 0).max_offset == COUNT
    return kit


@pytest.fixture
def reader(kit: Kit) -> Iterator[QueueReader]:
    with QueueReader(kit.plane, 8, 8) as reader:
        yield reader


def queue_file(kit: Kit, first: int) -> Path:
    return kit.root / "consumequeue" / "TopicA" / "0" / f"{first * 20:020d}"


def log_file(kit: Kit, number: int) -> Path:
    return kit.root / "commitlog" / f"{number * SEGMENT_BYTES:020d}"


def write_unit(kit: Kit, number: int, unit: bytes) -> None:
    with queue_file(kit, number // 300 * 300).open("r+b") as file:
        file.seek(number % 300 * 20)
        file.write(unit)


def offsets(found: Units) -> list[int]:
    return [unit.queue_offset for unit in found.units]


def next_of(question: Callable[[], Any]) -> int:
    with pytest.raises(DeletedError) as error:
        question()
    return error.value.next_offset


# --- units ---------------------------------------------------------------------------------------------------


def test_units_go_on_over_file_borders(kit: Kit, reader: QueueReader) -> None:
    found = reader.units(0, 290, 320)
    assert (offsets(found), found.next_offset) == (list(range(290, 610)), 610)
    on_disk = kit.queue_units("TopicA", 0)
    assert {unit[0]: unit[1:] for unit in found.units} == {number: on_disk[number] for number in range(290, 610)}


def test_units_end_at_the_maximum_and_go_on_when_it_moves(kit: Kit, reader: QueueReader) -> None:
    kit.queue(1, 0).max_offset = 400
    assert offsets(reader.units(0, 390, 100)) == list(range(390, 400))
    assert reader.units(0, 400, 100) == Units([], 400)
    assert reader.units(0, 450, 100) == Units([], 450)
    kit.queue(1, 0).max_offset = 402
    assert offsets(reader.units(0, 400, 100)) == [400, 401]


def test_units_below_the_minimum_are_deleted(kit: Kit, reader: QueueReader) -> None:
    assert offsets(reader.units(0, 0, 1)) == [0]
    kit.queue(1, 0).min_offset = 350
    assert next_of(lambda: reader.units(0, 0, 10)) == 350
    assert next_of(lambda: reader.units(0, -1, 10)) == 350
    assert offsets(reader.units(0, 350, 2)) == [350, 351]


def test_units_whose_records_are_deleted(kit: Kit, reader: QueueReader) -> None:
    """Retention takes the log first. Dispatch raises the minimum of the queue a moment later."""
    every = reader.units(0, 0, COUNT).units
    first = next(unit for unit in every if unit.commit_log_offset >= SEGMENT_BYTES)
    kit.marks.min_offset = SEGMENT_BYTES
    assert next_of(lambda: reader.units(0, 5, 10)) == min(first.queue_offset, 300), "within one file of the queue"
    assert next_of(lambda: reader.units(0, first.queue_offset - 1, 10)) == first.queue_offset
    assert offsets(reader.units(0, first.queue_offset, 1)) == [first.queue_offset]


def test_records_side_by_side_in_one_file_are_one_range(kit: Kit, reader: QueueReader) -> None:
    """As many as a pull would have."""
    settings = kit.header.settings
    settings.memory_window_bytes = 1 << 40
    settings.pull_memory_count_max, settings.pull_memory_bytes_max = 400, 1 << 30
    every = reader.units(0, 0, COUNT).units
    found = reader.ranges(0, 0, COUNT)
    assert (found.messages, found.next_offset) == (400, 400)
    assert found.size == sum(unit.size for unit in every[:400])
    pieces = list(struct.iter_unpack("=QII", found.pieces))
    places = [(unit.commit_log_offset, unit.size) for unit in every[:400]]
    assert expanded(pieces, places) == places
    assert len(pieces) < 400 and all(at // SEGMENT_BYTES == (at + size - 1) // SEGMENT_BYTES for at, size, _ in pieces)
    assert reader.ranges(0, 0, COUNT, messages=398).messages == 2
    settings.pull_memory_bytes_max = every[0].size + every[1].size
    assert reader.ranges(0, 0, COUNT).messages == 2
    assert reader.ranges(0, 0, COUNT, 1, every[0].size).messages == 1
    settings.pull_memory_bytes_max = 1
    assert reader.ranges(0, 0, COUNT).messages == 1, "the first message is taken, however large"
    assert reader.ranges(0, COUNT, 5) == Ranges(b"", 0, 0, COUNT)


def test_a_range_has_the_bounds_of_its_first_record(kit: Kit, reader: QueueReader) -> None:
    """It is on disk, and the others of the range are in memory. A read worker looks at the begin of a range alone."""
    set_pull_bounds(kit)
    first = reader.units(0, 0, 1).units[0]
    kit.header.settings.memory_window_bytes = int(kit.marks.append_offset) - first.commit_log_offset - first.size
    assert reader.ranges(0, 0, COUNT).messages == DISK_MAX[0]
    assert reader.ranges(0, 1, COUNT).messages == MEMORY_MAX[0]


def expanded(pieces: list[tuple[int, int, int]], places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The records in ranges, given their sizes in order."""
    sizes, found = iter(size for _, size in places), []
    for at, size, messages in pieces:
        end = at + size
        for _ in range(messages):
            found.append((at, next(sizes)))
            at += found[-1][1]
        assert at == end
    return found


def test_a_deleted_queue_file_is_stepped_over_by_the_caller_alone(kit: Kit, reader: QueueReader) -> None:
    queue_file(kit, 300).unlink()
    queue_file(kit, 600).unlink()
    found = reader.units(0, 298, 10)
    assert (offsets(found), found.next_offset) == ([298, 299], 300), "the units in front of it are given first"
    assert next_of(lambda: reader.units(0, 300, 10)) == 600
    assert next_of(lambda: reader.units(0, 650, 10)) == COUNT, "not beyond the end"


def test_tags_choose_units(kit: Kit, reader: QueueReader) -> None:
    hashes = [lib.rmq_java_hash(tag, 1) for tag in (b"a", b"c")]
    found = reader.units(0, 0, 5, hashes)
    assert (offsets(found), found.next_offset) == ([0, 2, 3, 5, 6], 7)
    assert reader.units(0, 0, 5, [12345]) == Units([], COUNT)
    assert reader.units(0, 0, 5, []) == Units([], COUNT)


def test_fillers_are_told_apart(kit: Kit, reader: QueueReader) -> None:
    for number in (1, 2, 5):
        write_unit(kit, number, FILLER)
    assert [unit.is_filler for unit in reader.units(0, 0, 6).units] == [False, True, True, False, False, True]
    every_tag = [lib.rmq_java_hash(tag, 1) for tag in (b"a", b"b", b"c")] + [0]
    assert offsets(reader.units(0, 0, 4, every_tag)) == [0, 3, 4, 6]


def test_one_call_looks_at_a_bounded_number_of_units(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store", queue_file_bytes=2_000_000)
    kit.topic(b"TopicA")
    queue_file(kit, 0).parent.mkdir(parents=True)
    queue_file(kit, 0).write_bytes((struct.pack(">qiq", 0, 50, 7) * (SCAN_MAX + 10)).ljust(2_000_000, b"\0"))
    kit.queue(1, 0).max_offset = SCAN_MAX + 10
    kit.marks.append_offset = kit.marks.dispatched_offset = 50
    with QueueReader(kit.plane, 1, 1) as reader:
        assert reader.units(0, 0, 10, [8]) == Units([], SCAN_MAX)
        assert reader.units(0, SCAN_MAX, 10, [8]) == Units([], SCAN_MAX + 10)


def test_a_damaged_unit_is_not_stepped_over(kit: Kit, reader: QueueReader) -> None:
    write_unit(kit, 5, bytes(20))
    found = reader.units(0, 0, 10)
    assert (offsets(found), found.next_offset) == ([0, 1, 2, 3, 4], 5)
    with pytest.raises(DamagedError, match="queue offset 5"):
        reader.units(0, 5, 10)
    os.truncate(queue_file(kit, 300), 10 * 20 + 7)
    assert offsets(reader.units(0, 305, 10)) == list(range(305, 310))
    with pytest.raises(DamagedError):
        reader.units(0, 310, 10)


def test_a_unit_beyond_the_log_is_damaged(kit: Kit, reader: QueueReader) -> None:
    write_unit(kit, 5, struct.pack(">qiq", kit.marks.append_offset, 1, 0))
    assert reader.units(0, 0, 10).next_offset == 5
    with pytest.raises(DamagedError, match="queue offset 5"):
        reader.units(0, 5, 10)
    write_unit(kit, 5, struct.pack(">qiq", (1 << 63) - 1, (1 << 31) - 1, 0))
    with pytest.raises(DamagedError, match="queue offset 5"):
        reader.units(0, 5, 10)


def test_a_closed_reader_gives_nothing(kit: Kit) -> None:
    reader = QueueReader(kit.plane, 8, 8)
    for _ in range(2):
        reader.close()
    for question in (
        reader.tick,
        lambda: reader.units(0, 0, 1),
        lambda: reader.record(0, 100),
        lambda: reader.in_memory(0),
    ):
        with pytest.raises(TypeError):
            question()


def test_units_of_a_deleted_topic(kit: Kit, reader: QueueReader) -> None:
    assert reader.units(0, 0, 10).units
    lib.rmq_topic_set(kit.plane, 1, 0)
    assert next_of(lambda: reader.units(0, 3, 10)) == 3
    assert maps_of(queue_file(kit, 0)) == 1
    reader.tick()
    assert maps_of(queue_file(kit, 0)) == 0
    kit.topic(b"TopicA")  # made again: the files of the same names are of other units
    kit.queue(2, 0).max_offset = 1
    assert next_of(lambda: reader.units(0, 3, 10)) == 3
    assert offsets(reader.units(1, 0, 10)) == [0]


def test_what_no_consume_queue_has_is_refused(kit: Kit, reader: QueueReader) -> None:
    kit.topic(b"Batches", flags=lib.RMQ_TOPIC_BATCH_QUEUE)
    for slot in (1, 2, 1 << 31):
        with pytest.raises(ValueError, match="no such ConsumeQueue"):
            reader.units(slot, 0, 10)
    with pytest.raises(ValueError, match="tag hashes"):
        reader.units(0, 0, 10, range(TAGS_MAX + 1))
    with pytest.raises(ValueError, match="log_files_max = 0"):
        QueueReader(kit.plane, 0, 1)


# --- records -------------------------------------------------------------------------------------------------


def test_records_are_those_of_the_log(kit: Kit, reader: QueueReader) -> None:
    records = kit.records()
    assert records[-1][0] > SEGMENT_BYTES
    for unit in reader.units(0, 0, COUNT).units:
        with reader.record(unit.commit_log_offset, unit.size) as data:
            assert (unit.commit_log_offset, bytes(data)) == records[unit.queue_offset][:2]


def test_records_of_units_are_held_in_one_call(kit: Kit, reader: QueueReader) -> None:
    """Each as if it were held alone, one hold for neighbours in a file, and nothing mapped behind the release."""
    native = lib.rmq_queue_reader_open(kit.plane, 8, 8)
    units, following = ffi.new("struct rmq_queue_unit[]", COUNT), ffi.new("int64_t *")
    records, copies = ffi.new("struct rmq_held_record[]", COUNT), ffi.new("struct rmq_record_copy[]", COUNT)
    assert lib.rmq_queue_reader_units(native, 0, 0, ffi.NULL, units, COUNT, following) == COUNT
    assert lib.rmq_queue_reader_records(native, units, COUNT, records) == COUNT
    lib.rmq_record_copies_read(copies, units, records, COUNT)
    for unit, record, copy in zip(units, records, copies, strict=True):
        with reader.record(unit.commit_log_offset, unit.size) as data:
            assert ffi.buffer(record.at, unit.size)[:] == bytes(data)
        assert (copy.record, copy.record_bytes, copy.position) == (record.at, unit.size, unit.commit_log_offset)
    files = [unit.commit_log_offset // SEGMENT_BYTES for unit in units]
    firsts = [at == 0 or files[at - 1] != file for at, file in enumerate(files)]
    assert [record.map != ffi.NULL for record in records] == firsts and sum(firsts) > 1
    kit.marks.min_offset = files[-1] * SEGMENT_BYTES
    held = maps_of(log_file(kit, 0))
    lib.rmq_queue_reader_tick(native)
    assert maps_of(log_file(kit, 0)) == held, "a held mapping stays"
    lib.rmq_queue_reader_release_all(records, COUNT)
    lib.rmq_queue_reader_tick(native)
    assert maps_of(log_file(kit, 0)) == held - 1
    lib.rmq_queue_reader_close(native)


def test_records_of_units_end_in_front_of_one_that_is_refused(kit: Kit) -> None:
    native = lib.rmq_queue_reader_open(kit.plane, 8, 8)
    units, following = ffi.new("struct rmq_queue_unit[]", 10), ffi.new("int64_t *")
    records = ffi.new("struct rmq_held_record[]", 10)
    assert lib.rmq_queue_reader_units(native, 0, 0, ffi.NULL, units, 10, following) == 10
    units[6].size = 0
    assert lib.rmq_queue_reader_records(native, units, 10, records) == 6
    lib.rmq_queue_reader_release_all(records, 6)
    assert lib.rmq_queue_reader_records(native, units + 6, 1, records) == 0
    assert lib.rmq_queue_reader_record(native, units[6].commit_log_offset, 0, records) == -errno.EBADMSG
    lib.rmq_queue_reader_close(native)
    assert not maps_of(log_file(kit, 0)), "nothing stays held"


def test_a_held_record_outlives_its_file(kit: Kit, reader: QueueReader) -> None:
    unit, record = reader.units(0, 7, 1).units[0], kit.records()[7][1]
    held = reader.record(unit.commit_log_offset, unit.size)
    log_file(kit, 0).unlink()
    kit.marks.min_offset = SEGMENT_BYTES
    reader.tick()
    assert bytes(held.data) == record
    assert next_of(lambda: reader.record(unit.commit_log_offset, unit.size)) == -1
    assert maps_of(log_file(kit, 0)) == 1
    held.release()
    reader.tick()
    assert maps_of(log_file(kit, 0)) == 0
    with pytest.raises(ValueError, match="released"):
        bytes(held.data)


def test_a_mapping_goes_with_its_files_though_others_stay(kit: Kit, reader: QueueReader) -> None:
    reader.units(0, 0, COUNT)
    assert [maps_of(queue_file(kit, first)) for first in (0, 300, 600)] == [1, 1, 1]
    kit.queue(1, 0).min_offset = 599
    reader.tick()
    assert [maps_of(queue_file(kit, first)) for first in (0, 300, 600)] == [0, 1, 1]


def test_nothing_above_the_confirm_offset_is_given(kit: Kit, reader: QueueReader) -> None:
    units = reader.units(0, 0, COUNT).units
    kit.marks.confirm_policy = lib.RMQ_CONFIRM_FLUSHED
    kit.marks.dispatched_offset = units[4].end
    for bound, seen in ((units[4].end, 5), (units[9].end - 1, 9), (units[9].end, 10)):
        kit.marks.flushed_offset = bound
        found = reader.units(0, 0, COUNT)
        assert (offsets(found), found.next_offset) == (list(range(seen)), seen)
        assert reader.units(0, seen, 1) == Units([], seen)
        with reader.record(units[seen - 1].commit_log_offset, units[seen - 1].size):
            pass
        with pytest.raises(NotConfirmedError):
            reader.record(units[seen].commit_log_offset, units[seen].size)
    with pytest.raises(NotConfirmedError):
        reader.record(kit.marks.append_offset + SEGMENT_BYTES, 100)


def test_a_place_where_no_record_can_lie(reader: QueueReader) -> None:
    for size in (0, 101, SEGMENT_BYTES + 1):
        with pytest.raises(DamagedError):
            reader.record(SEGMENT_BYTES - 100, size)


def test_memory_reaches_back_for_the_memory_window(kit: Kit, reader: QueueReader) -> None:
    kit.header.settings.memory_window_bytes = 1000
    end = kit.marks.append_offset
    assert [reader.in_memory(at) for at in (end, end - 1000, end - 1001, 0)] == [True, True, False, False]


# --- want ----------------------------------------------------------------------------------------------------


def test_held_records_fill_the_places_for_log_files(kit: Kit) -> None:
    with QueueReader(kit.plane, 1, 1) as reader:
        units = reader.units(0, 0, COUNT).units
        assert (len(units), maps_of(queue_file(kit, 0))) == (COUNT, 0), "one queue file after the other had the place"
        first, last = units[0], units[-1]
        held = reader.record(first.commit_log_offset, first.size)
        with reader.record(units[1].commit_log_offset, units[1].size):
            pass  # of the same file
        with pytest.raises(NotMappedError, match="busy"):
            reader.record(last.commit_log_offset, last.size)
        held.release()
        with reader.record(last.commit_log_offset, last.size) as data:
            assert len(data) == last.size
        assert maps_of(log_file(kit, 0)) == 0


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Every open fails."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_files_that_cannot_be_opened_now_are_not_deleted(kit: Kit, reader: QueueReader) -> None:
    last = reader.units(0, COUNT - 1, 1).units[0]
    with no_descriptors():
        assert offsets(reader.units(0, COUNT - 1, 1)) == [COUNT - 1], "mapped before"
        with pytest.raises(NotMappedError, match="Too many open files"):
            reader.units(0, 299, 10)
        with pytest.raises(NotMappedError, match="Too many open files"):
            reader.record(last.commit_log_offset, last.size)
    assert offsets(reader.units(0, 299, 3)) == [299, 300, 301]
    with reader.record(last.commit_log_offset, last.size) as data:
        assert len(data) == last.size


def test_units_in_front_of_a_file_that_cannot_be_mapped_are_given(kit: Kit, reader: QueueReader) -> None:
    path = queue_file(kit, 300)
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path)  # ELOOP says nothing about the units
    found = reader.units(0, 298, 10)
    assert (offsets(found), found.next_offset) == ([298, 299], 300)
    with pytest.raises(NotMappedError):
        reader.units(0, 300, 10)
    path.unlink()
    path.with_suffix(".away").rename(path)
    assert offsets(reader.units(0, 300, 2)) == [300, 301]


def test_a_reader_closes_only_when_its_bytes_are_free(kit: Kit) -> None:
    reader = QueueReader(kit.plane, 8, 8)
    unit = reader.units(0, 0, 1).units[0]
    held = reader.record(unit.commit_log_offset, unit.size)
    part = held.data[:4]
    with pytest.raises(BufferError, match="1 records"):
        reader.close()
    reader.tick()
    assert bytes(part) == unit.size.to_bytes(4, "big")
    part.release()
    reader.close()
    assert (maps_of(log_file(kit, 0)), maps_of(queue_file(kit, 0))) == (0, 0)


# --- agreement with the twin ---------------------------------------------------------------------------------


def outcome(question: Callable[[], Any]) -> Any:
    """The answer, or which error and where it says to go on."""
    try:
        return question()
    except QueueReadError as error:
        return type(error), getattr(error, "next_offset", None)


def record_of(reader: QueueReader | QueueReaderTwin, position: int, size: int) -> bytes:
    with reader.record(position, size) as data:
        return bytes(data)


def assert_same_record(reader: QueueReader, twin: QueueReaderTwin, position: int, size: int) -> bool:
    """Whether there was one."""
    record = outcome(lambda: record_of(reader, position, size))
    assert record == outcome(lambda: record_of(twin, position, size)), (position, size)
    assert reader.in_memory(position) == twin.in_memory(position)
    return isinstance(record, bytes)


def reader_exceeds(twin: QueueReaderTwin) -> Callable[[int, int, int], bool]:
    """The bounds of a pull."""

    def exceeds(position: int, messages: int, size: int) -> bool:
        messages_max, size_max = MEMORY_MAX if twin.in_memory(position) else DISK_MAX
        return messages > 1 and (messages > messages_max or size > size_max)

    return exceeds


def set_pull_bounds(kit: Kit) -> None:
    settings = kit.header.settings
    settings.pull_memory_count_max, settings.pull_memory_bytes_max = MEMORY_MAX
    settings.pull_disk_count_max, settings.pull_disk_bytes_max = DISK_MAX


def assert_agreement(reader: QueueReader, twin: QueueReaderTwin, slot: int, offset: int, room: int, wanted: Any) -> int:
    """Units and their records; how many records were the same."""
    found = outcome(lambda: reader.units(slot, offset, room, wanted))
    assert found == outcome(lambda: twin.units(slot, offset, room, wanted)), (slot, offset, room, wanted)
    units = found.units if isinstance(found, Units) else []
    ranges = outcome(lambda: reader.ranges(slot, offset, room, 3, 500))
    assert ranges == outcome(lambda: twin.ranges(slot, offset, room, 3, 500, reader_exceeds(twin))), (
        slot,
        offset,
        room,
    )
    return sum(assert_same_record(reader, twin, unit.commit_log_offset, unit.size) for unit in units)


def test_twin_agrees_over_a_golden_store(golden_store: Path, tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store", segment_bytes=1 << 20)
    kit.header.settings.memory_window_bytes = 50_000
    set_pull_bounds(kit)
    kit.header.settings.store_path = str(golden_store).encode()
    kit.header.settings.commit_log_path = str(golden_store / "commitlog").encode()
    config = StoreConfig(root=golden_store, commit_log_file_bytes=1 << 20, consume_queue_file_bytes=6000)
    store = MessageStore(config)
    end = store.queue_end()
    kit.marks.append_offset = kit.marks.dispatched_offset = end
    slots = 0
    for name in store.queue_names():
        if name.is_batch:
            continue
        queue = store.queue(name.topic, name.queue_id)
        assert queue is not None
        topic = name.topic.encode()
        topic_id = lib.rmq_topic_find(kit.plane, topic, len(topic))
        if topic_id == lib.RMQ_NONE:
            topic_id = kit.topic(topic, queues=0)
        lib.rmq_queue_add(kit.plane, topic_id, name.queue_id, 0, queue.max_offset(end), 0)
        slots += 1
    twin = QueueReaderTwin(store, PlaneBounds(kit), 50_000)
    same, tags = 0, set()
    with QueueReader(kit.plane, 2, 2) as reader:
        for slot in range(slots):
            everything = twin.units(slot, 0, 10_000).units
            first_tag = [ffi.cast("int32_t", unit.tags_code) for unit in everything[:1]]
            tags |= {unit.tags_code for unit in everything}
            for offset in (0, 1, len(everything) // 2, len(everything), len(everything) + 1):
                for room in (1, 7, 10_000):
                    for wanted in (None, [int(tag) for tag in first_tag]):
                        same += assert_agreement(reader, twin, slot, offset, room, wanted)
    assert slots > 5 and same > 1000 and len(tags) > 3


MEMORY_MAX, DISK_MAX = (9, 40_000), (5, 15_000)
"""Messages and bytes of an answer."""
UNITS_OF_A_FILE = 7
BEYOND_THE_LOG = struct.pack(">qiq", 3 * SEGMENT_BYTES, 100, 1)
TAGS = (0, 1, -1, (1 << 33) + 1, -(1 << 31))


def random_store(kit: Kit, chooser: random.Random) -> None:
    """Two queues with runs of fillers, damage, files that are missing or short, and bounds anywhere."""
    log = bytearray(chooser.randbytes(3 * SEGMENT_BYTES))
    for number in range(3):
        if number != 1 or chooser.random() < 0.8:
            log_file(kit, number).write_bytes(log[number * SEGMENT_BYTES :][:SEGMENT_BYTES])
    kit.marks.append_offset = 3 * SEGMENT_BYTES
    kit.marks.dispatched_offset = chooser.randrange(SEGMENT_BYTES, 3 * SEGMENT_BYTES)
    kit.marks.flushed_offset = chooser.randrange(SEGMENT_BYTES, 3 * SEGMENT_BYTES)
    kit.marks.min_offset = chooser.choice((0, 0, SEGMENT_BYTES))
    kit.marks.confirm_policy = lib.RMQ_CONFIRM_FLUSHED
    kit.header.settings.memory_window_bytes = chooser.randrange(3 * SEGMENT_BYTES)
    topic_id = kit.topic(b"TopicA", 2)
    for queue_id in range(2):
        folder = kit.root / "consumequeue" / "TopicA" / str(queue_id)
        folder.mkdir(parents=True)
        units, at = [], 0
        while at < 3 * SEGMENT_BYTES - 20_000:
            size = chooser.randrange(100, 12_000)
            at += chooser.choice((0, 5000))
            if chooser.random() < 0.9:  # else the record reaches over the end of its file
                at = at if at % SEGMENT_BYTES + size <= SEGMENT_BYTES else -(-at // SEGMENT_BYTES) * SEGMENT_BYTES
            units.append(struct.pack(">qiq", at, size, chooser.choice(TAGS)))
            at += size
            if chooser.random() < 0.1:
                units += [FILLER] * chooser.randrange(1, 12)
            if chooser.random() < 0.03:
                units.append(
                    chooser.choice(
                        (bytes(20), struct.pack(">qiq", -5, 100, 1), struct.pack(">qiq", 5, -1, 1), BEYOND_THE_LOG)
                    )
                )
        for first in range(0, len(units), UNITS_OF_A_FILE):
            data = b"".join(units[first : first + UNITS_OF_A_FILE]).ljust(UNITS_OF_A_FILE * 20, b"\0")
            kept = chooser.choices((len(data), 0, chooser.randrange(1, len(data))), (20, 1, 1))[0]
            if kept or first == 0:
                (folder / f"{first * 20:020d}").write_bytes(data[: kept or len(data)])
        queue = kit.queue(topic_id, queue_id)
        queue.min_offset = chooser.choice((0, chooser.randrange(len(units))))
        queue.max_offset = chooser.randrange(queue.min_offset, len(units) + 1)


@pytest.mark.parametrize("seed", range(25))
def test_twin_agrees_over_random_stores(tmp_path: Path, seed: int) -> None:
    chooser = random.Random(seed)
    kit = Kit(tmp_path / "store", segment_bytes=SEGMENT_BYTES, queue_file_bytes=UNITS_OF_A_FILE * 20)
    random_store(kit, chooser)
    set_pull_bounds(kit)
    config = StoreConfig(
        root=kit.root, commit_log_file_bytes=SEGMENT_BYTES, consume_queue_file_bytes=UNITS_OF_A_FILE * 20
    )
    store = MessageStore(config)
    twin = QueueReaderTwin(store, PlaneBounds(kit), kit.header.settings.memory_window_bytes)
    with QueueReader(kit.plane, chooser.choice((1, 2, 9)), chooser.choice((1, 2, 99))) as reader:
        for number in range(300):
            slot = chooser.randrange(2)
            offset = chooser.randrange(-1, kit.queue(1, slot).max_offset + 3)
            wanted = chooser.choice((None, [], [1], [0, -1], [-(1 << 31), 1]))
            assert_agreement(reader, twin, slot, offset, chooser.choice((1, 3, 50)), wanted)
            position, size = chooser.randrange(3 * SEGMENT_BYTES), chooser.choice((0, 1, 900, SEGMENT_BYTES))
            assert_same_record(reader, twin, position, size)
            if number == 200:  # retention
                queue = kit.queue(1, 0)
                queue.min_offset = (queue.min_offset + queue.max_offset) // 2
                for path in (kit.root / "consumequeue" / "TopicA" / "0").iterdir():
                    if int(path.name) // 20 + UNITS_OF_A_FILE <= queue.min_offset:
                        path.unlink()
                kit.marks.min_offset = SEGMENT_BYTES
                log_file(kit, 0).unlink(missing_ok=True)
                reader.tick()
                store.refresh()
            if number == 290:
                lib.rmq_topic_set(kit.plane, 1, 0)
