"""The write role: records, batches, rolls, refusals."""

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plane_kit import CONTROL, NO_WAIT, Kit, element
from waiting import TIMEOUT_S, wait_until

from ringmq.native import ffi, lib

ADDITIONS = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "store")


def record(data: bytes, view: Any, what: str) -> bytes:
    return data[getattr(view, f"{what}_at") :][: getattr(view, f"{what}_length")]


def test_one_record_byte_by_byte(kit: Kit) -> None:
    kit.set_additions(ADDITIONS)
    topic = kit.topic(b"TopicA", 4)
    pending = kit.request(
        topic, 3, b"hello", properties=b"KEYS\x01k1\x02TAGS\x01a", extra=b"UNIQ_KEY\x01ABC\x02", flag=7, sys_flag=1,
        reconsume_times=2, prepared_transaction_offset=9,
    )  # fmt: skip
    with kit.writer() as run:
        run()
    (completion,) = kit.completions()
    data = kit.log(0, completion.commit_log_end)
    properties = b"KEYS\x01k1\x02TAGS\x01a\x02UNIQ_KEY\x01ABC\x02" + ADDITIONS
    store_time = struct.unpack_from(">q", data, 56)[0]
    assert data == (
        struct.pack(">iIiiiqqiq", len(data), 0xDAA320A7, lib.rmq_crc32(b"hello", 5), 3, 7, 0, 0, 1, 1_700_000_000_000)
        + bytes([10, 0, 0, 1]) + struct.pack(">i", 5555) + struct.pack(">q", store_time)
        + bytes([127, 0, 0, 1]) + struct.pack(">i", 10911) + struct.pack(">iq", 2, 9)
        + struct.pack(">i", 5) + b"hello" + b"\x06TopicA" + struct.pack(">h", len(properties)) + properties
    )  # fmt: skip
    assert (completion.token, completion.code, completion.commit_log_offset, completion.queue_offset) == (
        pending, 0, 0, 0,
    )  # fmt: skip
    assert kit.marks.append_offset == len(data) == completion.commit_log_end
    assert kit.header.ports.port[0].request.tail == 1


def test_v6_hosts_and_long_topic(kit: Kit) -> None:
    name = b"%RETRY%" + b"x" * 140
    topic = kit.topic(name)
    kit.header.settings.store_host_bytes = 16
    kit.header.settings.store_host = bytes(range(16))
    kit.request(topic, 0, b"x", flags=lib.RMQ_APPEND_FLAG_BORN_V6, born_host=bytes(range(100, 116)))
    with kit.writer() as run:
        run()
    ((_, data, view),) = kit.records()
    assert view.magic == 0xDAA320AB
    assert view.sys_flag == 0x30
    assert data[view.born_host_at : view.born_host_at + 16] == bytes(range(100, 116))
    assert data[view.store_host_at : view.store_host_at + 16] == bytes(range(16))
    assert record(data, view, "topic") == name


def test_offsets_and_order_over_producers_and_queues(kit: Kit) -> None:
    topics = [kit.topic(b"A", 2), kit.topic(b"B", 2)]
    expected: dict[tuple[int, int, int], list[bytes]] = {}
    with kit.writer() as run:
        for number in range(60):
            for producer in (0, 1, CONTROL):
                topic, queue = topics[number % 2], number // 2 % 2
                body = f"{producer}-{number}".encode()
                kit.request(topic, queue, body, producer=producer)
                expected.setdefault((producer, topic, queue), []).append(body)
            if number % 7 == 0:
                run()
                assert all(c.code == 0 for p in (0, 1, CONTROL) for c in kit.completions(p))
        run()
    got: dict[tuple[int, int, int], list[bytes]] = {}
    next_offset: dict[tuple[bytes, int], int] = {}
    for _, data, view in kit.records():
        name, body = record(data, view, "topic"), record(data, view, "body")
        assert view.queue_offset == next_offset.get((name, view.queue_id), 0)
        next_offset[name, view.queue_id] = view.queue_offset + 1
        got.setdefault((int(body.split(b"-")[0]), topics[name == b"B"], view.queue_id), []).append(body)
    assert got == expected


def test_batch_elements_carry_the_header_properties_then_their_own(kit: Kit) -> None:
    kit.set_additions(ADDITIONS)
    topic = kit.topic(b"TopicA")
    elements = [element(b"one", b"a\x011\x02", 5), element(b"", b"b\x012"), element(b"three")]
    at = kit.keep(0, b"".join(elements))
    kit.request(
        topic, 0, b"", kind=lib.RMQ_APPEND_BATCH, properties=b"WAIT\x01true", extra=b"REAL_TOPIC\x01U\x02",
        body_at=at, body_length=sum(map(len, elements)),
    )  # fmt: skip
    with kit.writer() as run:
        run()
    (completion,) = kit.completions()
    found = kit.records()
    head, tail = b"WAIT\x01true\x02", b"REAL_TOPIC\x01U\x02" + ADDITIONS
    assert [record(d, v, "body") for _, d, v in found] == [b"one", b"", b"three"]
    pairs = [head + own + tail for own in (b"a\x011\x02", b"b\x012\x02", b"")]
    assert [record(d, v, "properties") for _, d, v in found] == pairs
    assert [v.queue_offset for *_, v in found] == [0, 1, 2]
    assert [v.flag for *_, v in found] == [5, 0, 0]
    assert (completion.queue_offset, completion.commit_log_offset) == (0, 0)
    assert completion.commit_log_end == kit.marks.append_offset
    position, stored = at, []
    for piece in elements:
        stored.append(struct.unpack(">q", kit.arena(0, position + 4, 8))[0])
        position += len(piece)
    assert stored == [offset for offset, *_ in found]


@pytest.mark.parametrize("damage", ["short", "body", "properties", "trailing", "empty", "negative"])
def test_malformed_batch_is_refused_whole(kit: Kit, damage: str) -> None:
    topic = kit.topic(b"TopicA")
    body = element(b"good") + element(b"bad", b"p\x01v\x02")
    body = {
        "short": body[:-1],
        "body": element(b"good") + struct.pack(">iiiii", 99, 0, 0, 0, 1 << 30) + b"xx",
        "properties": element(b"x")[:-2] + struct.pack(">h", 300),
        "trailing": body + b"\0" * 5,
        "empty": b"",
        "negative": struct.pack(">iiiii", 22, 0, 0, 0, -1) + b"\0\0",
    }[damage]
    kit.request(topic, 0, body, kind=lib.RMQ_APPEND_BATCH)
    kit.request(topic, 0, b"after")
    with kit.writer() as run:
        run()
    refused, after = kit.completions()
    assert (refused.code, refused.cause) == (13, lib.RMQ_CAUSE_BATCH_ELEMENT)
    assert (after.code, after.queue_offset, after.commit_log_offset) == (0, 0, 0)


def test_limits(kit: Kit) -> None:
    kit.header.settings.message_bytes_max = 1000
    topic = kit.topic(b"TopicA")
    kit.request(topic, 0, b"x" * 1001)
    kit.request(topic, 0, b"x" * 1000)
    kit.request(topic, 0, b"x", properties=b"p" * 32767)
    kit.request(topic, 0, b"x", queue_slot=4000)
    kit.request(topic + 1, 0, b"x", queue_slot=0)
    kit.request(topic, 0, b"x", body_at=(1 << 20) - 5, body_length=10)
    with kit.writer() as run:
        run()
    outcome = [(c.code, c.cause) for c in kit.completions()]
    size, slot = (13, lib.RMQ_CAUSE_MESSAGE_SIZE), (1, lib.RMQ_CAUSE_QUEUE_SLOT)
    assert outcome == [size, (0, 0), size, slot, slot, slot]
    assert len(kit.records()) == 1


def test_roll_leaves_a_blank_and_keeps_a_batch_in_one_file(kit: Kit) -> None:
    topic = kit.topic(b"TopicA")
    kit.create_segment(65536)
    sizes = []
    with kit.writer() as run:
        while kit.marks.append_offset < 60_000:
            kit.request(topic, 0, b"x" * 3000)
            run(1_000_000)
            sizes += [c.commit_log_offset for c in kit.completions()]
        before = kit.marks.append_offset
        kit.request(topic, 0, b"".join(element(b"y" * 1500) for _ in range(4)), kind=lib.RMQ_APPEND_BATCH)
        run(1_000_000)
    (batch,) = kit.completions()
    assert batch.commit_log_offset == 65536
    assert struct.unpack(">iI", kit.log(before, before + 8)) == (65536 - before, 0xCBD43194)
    assert len(kit.records()) == len(sizes) + 4


def test_exact_fit_leaves_eight_bytes(kit: Kit) -> None:
    topic = kit.topic(b"T")
    kit.create_segment(65536)
    fixed = 91 + 1
    with kit.writer() as run:
        kit.request(topic, 0, b"x" * (65536 - 8 - fixed))
        kit.request(topic, 0, b"y")
        kit.request(topic, 0, b"x" * (65536 - 7 - fixed))  # fits no file
        run()
    first, second, third = kit.completions()
    assert (first.commit_log_offset, first.commit_log_end) == (0, 65528)
    assert kit.log(65528, 65536) == struct.pack(">iI", 8, 0xCBD43194)
    assert second.commit_log_offset == 65536
    assert (third.code, third.cause) == (13, lib.RMQ_CAUSE_MESSAGE_SIZE)


def test_waits_for_the_next_file_then_goes_on(kit: Kit) -> None:
    topic = kit.topic(b"T")
    with kit.writer() as run:
        for _ in range(3):
            kit.request(topic, 0, b"x" * 30_000)
        run()
        assert len(kit.completions()) == 2
        assert kit.header.ports.port[0].request.tail == 2
        kit.create_segment(65536)
        run(200_000_000)
    (third,) = kit.completions()
    assert (third.code, third.commit_log_offset, third.queue_offset) == (0, 65536, 2)


@pytest.mark.parametrize("role", ["store", "dispatch"])
def test_faults_refuse_with_the_cause(kit: Kit, role: str) -> None:
    topic = kit.topic(b"T")
    setattr(kit.marks, f"{role}_fault", lib.RMQ_FAULT_DISK_FULL)
    setattr(kit.marks, f"{role}_fault_errno", 28)
    kit.request(topic, 0, b"x")
    with kit.writer() as run:
        run()
        (refused,) = kit.completions()
        assert (refused.code, refused.cause, refused.cause_errno) == (14, lib.RMQ_FAULT_DISK_FULL, 28)
        setattr(kit.marks, f"{role}_fault", 0)
        kit.request(topic, 0, b"x")
        run()
    assert [c.code for c in kit.completions()] == [0]


def test_stale_producer_is_dropped(kit: Kit) -> None:
    topic = kit.topic(b"T")
    kit.request(topic, 0, b"old")
    kit.header.ports.port[0].generation = 1
    kit.request(topic, 0, b"new", generation=1)
    with kit.writer() as run:
        run()
    (only,) = kit.completions()
    assert (only.code, only.queue_offset) == (0, 0)
    assert [record(d, v, "body") for _, d, v in kit.records()] == [b"new"]


def test_sync_flush_parks_and_no_wait_does_not(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store", sync=True)
    topic = kit.topic(b"T")
    first = kit.request(topic, 0, b"a")
    second = kit.request(topic, 0, b"b", flags=NO_WAIT)
    with kit.writer() as run:
        run()
    assert [c.token for c in kit.completions()] == [second]
    parked = kit.slot("struct rmq_parked *", kit.header.ports.parked, 0)
    assert kit.header.ports.parked.head == 1
    assert (parked.completion.token, parked.port, parked.completed_position) == (first, 0, 0)


def test_full_completion_ring_stops_only_its_producer(kit: Kit) -> None:
    topic = kit.topic(b"T")
    with kit.writer() as run:
        for _ in range(64):
            kit.request(topic, 0, b"x")
        run()
        kit.request(topic, 0, b"late")
        kit.request(topic, 0, b"other", producer=1)
        run()
        assert len(kit.completions(1)) == 1
        assert kit.header.ports.port[0].request.tail == 64
        assert len(kit.completions(0)) == 64
        run()
    assert len(kit.completions(0)) == 1


def test_restart_goes_on_where_it_was(kit: Kit) -> None:
    topic = kit.topic(b"T", 2)
    with kit.writer() as run:
        for number in range(10):
            kit.request(topic, number % 2, b"x")
        run()
    kit.completions()
    with kit.writer() as run:
        kit.request(topic, 1, b"y")
        run()
    (completion,) = kit.completions()
    assert completion.queue_offset == 5
    assert len(kit.records()) == 11


def test_open_wipes_what_a_dead_batch_touched(kit: Kit) -> None:
    topic = kit.topic(b"T")
    kit.request(topic, 0, b"x" * 1000)
    with kit.writer() as run:
        run()
    end = kit.marks.append_offset
    kit.create_segment(65536)
    for start, at in ((0, end), (65536, 0)):
        with (kit.root / "commitlog" / f"{start:020d}").open("r+b") as file:
            file.seek(at)
            file.write(b"\xee" * 500)
    kit.header.ports.journal.intent_high = 65536 + 500
    with kit.writer():
        pass
    assert not any(kit.log(end, 65536 * 2))
    assert kit.header.ports.journal.intent_high == end


def test_reuses_golden_bytes(kit: Kit, golden_log: list[bytes]) -> None:
    """Every ordinary record of a stock store, made again from its fields, has the same bytes."""
    kit.header.settings.segment_bytes = 1 << 20
    (kit.root / "commitlog" / f"{0:020d}").unlink()
    for number in range(4):
        kit.create_segment(number << 20)
    topics: dict[bytes, int] = {}
    expected = []
    with kit.writer() as run:
        for data in golden_log:
            view = ffi.new("struct rmq_record_view *")
            assert lib.rmq_record_parse(data, len(data), 1, view) == lib.RMQ_RECORD_OK
            if view.sys_flag & 0x80:
                continue  # inner batches are refused until their issue
            name = record(data, view, "topic")
            if name not in topics:
                topics[name] = kit.topic(name, 32)
            ports = struct.unpack_from(">i", data, view.born_host_at + 4)[0]
            kit.header.settings.store_port = struct.unpack_from(">i", data, view.store_host_at + 4)[0]
            kit.request(
                topics[name], view.queue_id, record(data, view, "body"), properties=record(data, view, "properties"),
                flag=view.flag, sys_flag=view.sys_flag, reconsume_times=view.reconsume_times,
                prepared_transaction_offset=view.prepared_transaction_offset, born_time_ms=view.born_time_ms,
                born_host=data[view.born_host_at : view.born_host_at + 4] + bytes(12), born_port=ports,
            )  # fmt: skip
            expected.append((data, view))
            run(1)
            assert [c.code for c in kit.completions()] == [0]
    found = kit.records()
    assert len(found) == len(expected) > 4000

    def masked(data: bytes, view: Any) -> bytes:
        keep = bytearray(data)
        keep[20:36] = bytes(16)  # queue and physical offset: inner batches are missing
        keep[56:64] = bytes(8)
        return bytes(keep)

    for (_, ours, our_view), (theirs, view) in zip(found, expected, strict=True):
        assert masked(ours, our_view) == masked(theirs, view)


def test_a_file_that_does_not_come_refuses_after_five_seconds(kit: Kit) -> None:
    topic = kit.topic(b"T")
    started = time.monotonic()
    with kit.writer() as run:
        for _ in range(3):
            kit.request(topic, 0, b"x" * 30_000)
        answers = []
        while len(answers) < 3:
            assert time.monotonic() < started + TIMEOUT_S
            run(200_000_000)
            answers += kit.completions()
        assert time.monotonic() - started >= 5
        assert (answers[2].code, answers[2].cause) == (1, lib.RMQ_CAUSE_SEGMENT_LATE)
        kit.request(topic, 0, b"x" * 30_000)
        kit.create_segment(65536)
        while not (later := kit.completions()):
            assert time.monotonic() < started + 2 * TIMEOUT_S
            run(20_000_000)
    assert (later[0].code, later[0].commit_log_offset, later[0].queue_offset) == (0, 65536, 2)


def populate(run: Callable[[int], int], counters: Any, populated: int) -> None:
    """Run until so many bytes are populated."""

    def is_populated() -> bool:
        run(5_000_000)
        return int(counters[lib.RMQ_WRITE_POPULATED_BYTES]) >= populated

    wait_until(is_populated, f"{populated} bytes are populated")


def test_pages_are_populated_ahead_of_the_append_position(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store", segment_bytes=4 << 20)
    kit.header.settings.populate_window_bytes = 1 << 20
    topic = kit.topic(b"T")
    counters = kit.header.roles[lib.RMQ_ROLE_WRITE].counters
    with kit.writer() as run:
        populate(run, counters, 1 << 20)
        at = kit.keep(0, b"x" * 100_000)
        kit.request(topic, 0, body_at=at, body_length=100_000)
        run()
        before = counters[lib.RMQ_WRITE_MINOR_FAULTS]
        for _ in range(3):
            kit.request(topic, 0, body_at=at, body_length=100_000)
            run()
        assert counters[lib.RMQ_WRITE_WINDOW_MISSES] == 0
        assert counters[lib.RMQ_WRITE_MINOR_FAULTS] - before < 10  # 73 pages were written
    assert len(kit.completions()) == 4


def test_large_folios_are_for_an_append_position_that_comes_near(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store", segment_bytes=16 << 20)
    kit.header.settings.populate_window_bytes = 4 << 20
    topic = kit.topic(b"T")
    counters = kit.header.roles[lib.RMQ_ROLE_WRITE].counters
    file = (tmp_path / "store/commitlog" / f"{0:020}").resolve()
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("a kernel without large folios")
    body = b"x" * 500_000

    def append(messages: int, populated: int) -> None:
        """And wait until so much is populated."""
        at = kit.keep(0, body)
        for _ in range(messages):
            kit.request(topic, 0, body_at=at, body_length=len(body))
        populate(run, counters, populated)

    with kit.writer() as run:
        append(0, 4 << 20)
        assert _advised_bytes(file) == 4 << 20  # the first window
        append(1, 4_500_000)
        assert _advised_bytes(file) == 4 << 20  # more than half of it is left
        append(6, 7_500_000)
        assert _advised_bytes(file) == 6 << 20  # what was begun in small pages stays so


def _advised_bytes(file: Path) -> int:
    """Of this process' mappings of a file that may have large folios."""
    total = size = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            is_of_file = words[-1] == str(file)
        elif words[0] == "Size:":
            size = int(words[1]) << 10
        elif words[0] == "VmFlags:" and is_of_file and "hg" in words:
            total += size
    return total


@pytest.mark.parametrize("gap", [290, 990])
def test_a_restarted_writer_follows_the_offsets_that_dispatch_follows(kit: Kit, gap: int) -> None:
    topic = kit.topic(b"T")
    queue = kit.queue(topic, 0)
    queue.max_offset = 10 + gap
    kit.request(topic, 0, b"of an earlier life of the topic")
    with kit.writer() as run:
        run()
    queue.max_offset = 10  # the queue was deleted and made again: a gap of more than a file (300 units) is not bridged
    kit.request(topic, 0, b"new")
    with kit.writer() as run:
        run()
    (*_, view) = kit.records()[-1]
    with kit.dispatcher() as dispatch:
        dispatch()
    assert kit.marks.dispatched_offset == kit.marks.append_offset
    assert view.queue_offset == (10 if gap > 300 else 11 + gap)
    assert queue.max_offset == view.queue_offset + 1
    assert kit.queue_units("T", 0)[view.queue_offset][0] == view.physical_offset


def test_a_restarted_writer_counts_nothing_of_an_earlier_topic(kit: Kit) -> None:
    earlier = kit.topic(b"T")
    for _ in range(5):
        kit.request(earlier, 0, b"of the earlier topic")
    with kit.writer() as run:
        run()
    lib.rmq_topic_set(kit.plane, earlier, 0)
    topic = kit.topic(b"T", replay_from=int(kit.marks.append_offset))
    for expected in (0, 1):
        kit.request(topic, 0, b"new")
        with kit.writer() as run:  # dispatch is behind all the time
            run()
        assert kit.records()[-1][2].queue_offset == expected


@pytest.mark.parametrize(
    ("behind", "recovered_end", "waits"),
    [(65, 0, 1), (63, 0, 0), (65, 1, 0)],
    ids=["far behind", "a little behind", "what was recovered"],
)
def test_dispatch_that_is_far_behind_is_waited_for(tmp_path: Path, behind: int, recovered_end: int, waits: int) -> None:
    """64 MiB; the request is answered all the same."""
    kit = Kit(tmp_path / "store", segment_bytes=128 << 20)
    topic = kit.topic(b"A")
    kit.marks.append_offset = kit.marks.dispatched_offset = behind << 20
    with kit.writer() as run:
        kit.marks.dispatched_offset = 0
        kit.header.recovered_end = recovered_end
        kit.request(topic, 0, b"x")
        run()
    assert [completion.code for completion in kit.completions()] == [0]
    assert kit.header.roles[lib.RMQ_ROLE_WRITE].counters[lib.RMQ_WRITE_DISPATCH_WAITS] == waits
