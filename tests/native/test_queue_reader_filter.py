"""Units that a condition wants, and one unit by offset: the C core, its twin, and records that are on disk."""

import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit
from test_queue_reader import PlaneBounds, outcome
from waiting import wait_until

from ringmq.filters.compiler import compile_filter
from ringmq.filters.evaluator import matches
from ringmq.store.config import StoreConfig
from ringmq.store.consume_queue import Unit
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_reader import ColdError, DeletedError, QueueReader, Units
from ringmq.store.queue_reader_twin import QueueReaderTwin
from ringmq.store.record import parse_record

SEGMENT_BYTES = 1 << 20
"""A page of the log is read from the disk beside its neighbours."""
COUNT = 300
CONDITIONS = ("a = 3", "a < 4 AND b IS NULL", "c = 'x' OR b > 17", "a > 9", "a IS NOT NULL")


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """TopicA/0, slot 0, has COUNT messages with random properties, over two log files."""
    kit = Kit(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    for number in range(1, 3):
        kit.create_segment(number * SEGMENT_BYTES)
    topic, dice = kit.topic(b"TopicA"), random.Random(5)
    with kit.writer() as write, kit.dispatcher() as dispatch:
        for number in range(COUNT):
            pairs = [f"a\x01{number % 7}"] * (number % 5 > 0) + [f"b\x01{number}"] * dice.randrange(2)
            pairs += [f"c\x01{dice.choice('xyz')}"]
            body = b"%03d" % number + bytes(4000)
            kit.request(topic, 0, body, properties="\x02".join(pairs).encode())
            if number % 16 == 15:
                write()
                kit.completions()
        write()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()
    assert kit.queue(1, 0).max_offset == COUNT
    return kit


def wanted(condition: str) -> Any:
    program = compile_filter(condition)

    def wants(data: memoryview) -> bool:
        _, record = parse_record(data)
        assert record is not None
        return matches(program, record.properties)

    return wants


@pytest.mark.parametrize("memory_window_bytes", [0, 1 << 30])
def test_the_twin_agrees_over_conditions_offsets_and_deletions(kit: Kit, memory_window_bytes: int) -> None:
    kit.header.settings.memory_window_bytes = memory_window_bytes
    chooser, found = random.Random(3), 0
    config = StoreConfig(root=kit.root, commit_log_file_bytes=SEGMENT_BYTES, consume_queue_file_bytes=6000)
    store = MessageStore(config)
    with QueueReader(kit.plane, 8, 8) as reader:
        twin = QueueReaderTwin(store, PlaneBounds(kit), 1 << 40)
        for min_offset in (0, SEGMENT_BYTES):
            kit.marks.min_offset = min_offset
            for condition in CONDITIONS:
                program, wants = compile_filter(condition).encode(), wanted(condition)
                for offset in (0, COUNT - 1, COUNT, COUNT + 5, *(chooser.randrange(COUNT) for _ in range(4))):
                    room = chooser.choice((1, 7, 64, 1000))
                    units = outcome(lambda: reader.matching(0, offset, room, program))  # noqa: B023
                    assert units == outcome(lambda: twin.matching(0, offset, room, wants)), (condition, offset)  # noqa: B023
                    found += len(units.units) if isinstance(units, Units) else 0
                    assert outcome(lambda: reader.unit(0, offset)) == outcome(lambda: twin.unit(0, offset))  # noqa: B023
    assert found > 200


def test_one_unit_by_its_offset(kit: Kit) -> None:
    with QueueReader(kit.plane, 8, 8) as reader:
        first, last = reader.unit(0, 0), reader.unit(0, COUNT - 1)
        assert isinstance(first, Unit) and isinstance(last, Unit)
        assert (first.queue_offset, first.commit_log_offset, last.queue_offset) == (0, 0, COUNT - 1)
        assert reader.unit(0, COUNT) is None
        kit.queue(1, 0).min_offset = 10
        with pytest.raises(DeletedError):
            reader.unit(0, 9)
        with pytest.raises(ValueError, match="no such ConsumeQueue"):
            reader.unit(99, 0)


def test_a_record_on_disk_is_told_and_not_waited_for(kit: Kit) -> None:
    kit.header.settings.memory_window_bytes = 0
    program = compile_filter("a IS NOT NULL").encode()
    with QueueReader(kit.plane, 8, 8) as reader:
        here = reader.matching(0, 0, COUNT, program)
        assert here.next_offset == COUNT
        every = reader.units(0, 0, COUNT).units
    first = next(unit.queue_offset for unit in every if unit.commit_log_offset >= SEGMENT_BYTES)
    log = kit.root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    drop_pages(log)
    with QueueReader(kit.plane, 8, 8) as reader:
        with pytest.raises(ColdError, match=f"queue slot 0, queue offset {first}: its record is on disk"):
            reader.matching(0, first, COUNT, program)
        wait_until(lambda: outcome(lambda: reader.matching(0, first, 1, program))[0] is not ColdError, "it is read")
    drop_pages(log)
    with QueueReader(kit.plane, 8, 8) as reader:
        found = reader.matching(0, 0, COUNT, program)
        assert found.next_offset == first, "it ends in front of the file that is on disk"
        assert found.units == [unit for unit in here.units if unit.queue_offset < first]


def test_a_call_looks_at_a_bounded_number_of_bytes(kit: Kit) -> None:
    """A condition over long properties: the call ends, and the next one goes on."""
    topic = kit.topic(b"Long")
    kit.create_segment(3 * SEGMENT_BYTES)
    with kit.writer() as write, kit.dispatcher() as dispatch:
        for _ in range(90):
            kit.request(topic, 0, b"x", properties=b"k\x01" + b"v" * 32000 + b"\x02")
            write()
            kit.completions()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()
    slot, program = kit.queue_slot(topic, 0), compile_filter("a = 1").encode()
    with QueueReader(kit.plane, 8, 8) as reader:
        first = reader.matching(slot, 0, 10, program)
        assert first.units == [] and 0 < first.next_offset < 90
        assert 60 <= first.next_offset <= 66, "the limit is 65 times these properties"
        assert reader.matching(slot, first.next_offset, 10, program) == Units([], 90)


def test_an_unsound_program_is_refused(kit: Kit) -> None:
    program = compile_filter("a = 1").encode()
    with QueueReader(kit.plane, 8, 8) as reader:
        for text in (b"", program[:-8], bytes(len(program))):
            with pytest.raises(ValueError, match=f"{len(text)} bytes are no sound program"):
                reader.matching(0, 0, 1, text)
        assert reader.matching(0, 0, 1, program).next_offset > 0


def drop_pages(path: Path) -> None:
    """Write the file back and drop it from the page cache. No process maps it."""
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    found = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)], capture_output=True)
    assert found.stdout.split() == [b"0"], "no page is in memory"
