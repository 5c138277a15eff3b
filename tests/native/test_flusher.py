"""The flush role and the completer: group commit, order of answers, deadlines, faults, restart."""

import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_kit import in_child
from plane_kit import FLUSH_TIMEOUT_MS, Kit

from ringmq.native import ffi, lib
from tests.broker.seccomp import refusing, without_populate


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    yield Kit(tmp_path / "store", sync=True)


def park(kit: Kit, end: int, *, producer: int = 0, position: int, pending: int, waited_ms: int = 0) -> None:
    """What write does for a request that waits for the flush."""
    entry = kit.slot("struct rmq_parked *", kit.header.ports.parked, kit.header.ports.parked.head)
    ffi.memmove(entry, bytes(64), 64)
    entry.completion.commit_log_offset, entry.completion.token = end, pending
    entry.parked_mono_ms = time.monotonic_ns() // 1_000_000 - waited_ms
    entry.port, entry.completed_position = producer, position
    kit.header.ports.parked.head += 1


def test_answers_in_order_after_the_flush(kit: Kit) -> None:
    topic = kit.topic(b"T")
    pending = {0: [], 1: []}
    for number in range(20):
        producer = number % 2
        pending[producer].append(kit.request(topic, 0, b"x" * 100, producer=producer))
    with kit.writer() as write, kit.flusher() as flush:
        write()
        assert kit.marks.flushed_offset == 0
        assert kit.completions(0) == kit.completions(0, "completed") == []
        flush()
    assert kit.marks.flushed_offset == kit.marks.append_offset > 0
    for producer in (0, 1):
        answers = kit.completions(producer, "completed")
        assert [c.token for c in answers] == pending[producer]
        assert {c.code for c in answers} == {0}
    assert kit.header.ports.parked.tail == kit.header.ports.parked.head == 20
    assert kit.header.roles[lib.RMQ_ROLE_FLUSH].counters[lib.RMQ_FLUSH_COMPLETED] == 20


def dirtied_bytes() -> int:
    """The bytes of clean pages that this process has made dirty, by the kernel's own account. It writes such pages to
    the disk when it likes, so the number of pages that are dirty now says nothing."""
    return int(re.findall(r"^write_bytes: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)[0])


def write_again_what_a_predecessor_may_have_lost(kit: Kit) -> None:
    """The kernel tells a failed sync only once: the pages of one that nobody heard of look clean."""
    topic = kit.topic(b"T")
    log = kit.root / "commitlog" / f"{0:020d}"
    with kit.writer() as write, kit.flusher() as flush:
        kit.request(topic, 0, b"x" * 30_000)
        write()
        flush()
        synced = kit.marks.append_offset
        kit.request(topic, 0, b"x" * 30_000)
        write()
    with log.open("rb") as file:
        os.fsync(file.fileno())  # the pages are clean, as after a sync that failed
    before = dirtied_bytes()
    with kit.flusher() as flush:
        assert kit.marks.flushed_offset == synced
        assert dirtied_bytes() - before >= 28 << 10
        flush()
    assert kit.marks.flushed_offset == kit.marks.append_offset > synced
    assert not kit.marks.store_fault


def test_a_successor_writes_again_what_its_predecessor_may_have_lost(kit: Kit) -> None:
    write_again_what_a_predecessor_may_have_lost(kit)


def test_it_writes_again_on_kernels_before_5_14(kit: Kit) -> None:
    def work() -> None:
        refusing(*without_populate())()
        write_again_what_a_predecessor_may_have_lost(kit)

    assert not in_child(work)


def test_a_log_that_cannot_be_made_sure_of_is_a_fault(kit: Kit) -> None:
    kit.request(kit.topic(b"T"), 0, b"x")
    with kit.writer() as write:
        write()
    kit.header.settings.commit_log_path = str(kit.root / "gone").encode()
    with kit.flusher():
        assert (kit.marks.store_fault, kit.marks.store_fault_errno) == (lib.RMQ_FAULT_FSYNC, errno.ENOENT)


def test_flush_over_several_files(kit: Kit) -> None:
    topic = kit.topic(b"T")
    for number in range(1, 12):
        kit.create_segment(number * 65536)
    with kit.writer() as write, kit.flusher() as flush:
        for _ in range(22):
            kit.request(topic, 0, b"x" * 30_000)
            while kit.header.ports.port[0].request.tail < kit.header.ports.port[0].request.head:
                write(1_000_000)  # the next file may be a slice late
            kit.keep(0, bytes(1))
        flush()
    assert kit.marks.flushed_offset == kit.marks.append_offset > 10 * 65536
    assert [c.code for c in kit.completions(0, "completed")] == [0] * 22


def test_deadline_answers_ten_and_late_flush_does_not_answer_again(kit: Kit) -> None:
    park(kit, 100, position=0, pending=7, waited_ms=FLUSH_TIMEOUT_MS)
    park(kit, 100, position=1, pending=8)
    with kit.flusher() as flush:
        flush()
        (late,) = kit.completions(0, "completed")
        assert (late.token, late.code, late.cause) == (7, 10, lib.RMQ_CAUSE_FLUSH_TIMEOUT)
        kit.marks.append_offset = 200
        flush()
    (second,) = kit.completions(0, "completed")
    assert (second.token, second.code) == (8, 0)


def test_restart_between_answer_and_giving_up_does_not_answer_twice(kit: Kit) -> None:
    for position in range(3):
        park(kit, 10, position=position, pending=10 + position)
    for position in range(2):
        park(kit, 10, position=position, pending=20 + position, producer=1)
    kit.marks.append_offset = kit.marks.flushed_offset = 10
    for producer, count in ((0, 2), (1, 1)):  # as published by a completer that died before it moved parked.tail
        ring = kit.header.ports.port[producer].completed
        for position in range(count):
            kit.slot("struct rmq_completion *", ring, position).token = 10 * (producer + 1) + position
        ring.head = count
    with kit.flusher() as flush:
        flush()
    assert [c.token for c in kit.completions(0, "completed")] == [10, 11, 12]
    assert [c.token for c in kit.completions(1, "completed")] == [20, 21]
    assert kit.header.ports.parked.tail == 5


def test_failed_sync_is_never_repeated(kit: Kit) -> None:
    topic = kit.topic(b"T")
    first = kit.request(topic, 0, b"x")
    path = kit.root / "commitlog" / f"{0:020d}"
    with kit.writer() as write, kit.flusher() as flush:
        write()
        path.rename(path.with_suffix(".gone"))
        assert flush() == lib.RMQ_RUN_FAULT
        path.with_suffix(".gone").rename(path)
        flush()
        (answer,) = kit.completions(0, "completed")
        assert (answer.token, answer.code, answer.cause, answer.cause_errno) == (first, 14, lib.RMQ_FAULT_FSYNC, 2)
        assert kit.marks.flushed_offset == 0
        assert kit.marks.store_fault == lib.RMQ_FAULT_FSYNC
        assert lib.rmq_flusher_set_fault(flush.handle, lib.RMQ_FAULT_NONE, 0) == -16
        kit.request(topic, 0, b"y")
        write()
        assert [(c.code, c.cause, c.cause_errno) for c in kit.completions()] == [(14, lib.RMQ_FAULT_FSYNC, 2)]
        flush()
    assert kit.marks.flushed_offset == 0


def test_async_policy_flushes_by_interval(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store")
    topic = kit.topic(b"T")
    kit.request(topic, 0, b"x")
    with kit.writer() as write, kit.flusher() as flush:
        write()
        store_time = kit.header.ports.journal.entry[1].store_time_ms
        flush(200_000_000)
        assert kit.marks.flushed_offset == kit.marks.append_offset
        state = ffi.new("struct rmq_flush_state *")
        lib.rmq_flusher_state(flush.handle, state)
        assert (state.flushed_store_time_ms, state.next_segment, state.next_segment_exists) == (store_time, 65536, 0)
        kit.create_segment(65536)
        lib.rmq_flusher_state(flush.handle, state)
        assert state.next_segment_exists == 1


def test_least_pages_hold_back_until_the_thorough_flush(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store")
    kit.header.settings.flush_least_pages = 4
    kit.header.settings.flush_thorough_interval_ms = 100_000
    kit.marks.append_offset = 3 * 4096
    with kit.flusher() as flush:
        flush(60_000_000)
        assert kit.marks.flushed_offset == 0
        kit.marks.append_offset = 4 * 4096 + 1
        flush(60_000_000)
        assert kit.marks.flushed_offset == 4 * 4096 + 1
        kit.marks.append_offset += 1
        kit.marks.stop_requested = lib.RMQ_STOP_FLUSH
        assert flush(500_000_000) == lib.RMQ_RUN_STOPPED
    assert kit.marks.flushed_offset == 4 * 4096 + 2


def test_says_once_that_the_next_file_is_missing(kit: Kit) -> None:
    with kit.flusher() as flush:
        assert flush() == lib.RMQ_RUN_ROLLED
        assert flush() == lib.RMQ_RUN_BUDGET
        kit.create_segment(65536)
        kit.marks.append_offset = kit.marks.flushed_offset = 65536 + 8
        assert flush() == lib.RMQ_RUN_ROLLED


def test_min_offset_never_goes_back(kit: Kit) -> None:
    with kit.flusher() as flush:
        lib.rmq_flusher_set_min_offset(flush.handle, 65536)
        lib.rmq_flusher_set_min_offset(flush.handle, 0)
    assert kit.marks.min_offset == 65536
