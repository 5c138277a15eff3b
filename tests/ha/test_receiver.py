"""The ha role of a slave: streams into the log, reports, what it refuses, and what a death leaves."""

import errno
import os
import signal
import socket
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from golden_streams import FILE_BYTES, LOG_END, links, master_log
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plane_kit import Kit, die_with_parent
from receiver_kit import Receiver, SlaveKit, frame, frames

from ringmq.ha.receiver_twin import ReceiverTwin
from ringmq.native import ffi, lib
from tests.waiting import wait_until

SEGMENT = 65_536
ALOG_END = 410_372
SYNC_START = 393_216


def slave_with_files(root: Path, *, append_offset: int = 0, files: int = 4, **more: object) -> SlaveKit:
    kit = SlaveKit(root / "slave", append_offset=append_offset, **more)
    size = kit.header.settings.segment_bytes
    for number in range(files):
        kit.create_segment(append_offset - append_offset % size + number * size)
    return kit


def made_log(root: Path, messages: int = 40) -> bytes:
    """What a master of this house writes: two topics, several queues, and the end of a file in the middle."""
    kit = Kit(root / "master", segment_bytes=SEGMENT)
    kit.create_segment(SEGMENT)
    topics = [kit.topic(b"TopicA", 3), kit.topic(b"TopicB", 1)]
    with kit.writer() as run:
        for number in range(messages):
            topic = topics[number % 3 == 0]
            body = bytes([65 + number % 26]) * (500 + 97 * number)
            kit.request(topic, number // 3 % 3 if topic == topics[0] else 0, body, properties=b"TAGS\x01t\x02")
            run()
            assert kit.completions()[0].code == 0
    end = kit.marks.append_offset
    assert SEGMENT < end < 2 * SEGMENT
    return kit.log(0, end)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return made_log(tmp_path_factory.mktemp("made"))


# -- whole streams -------------------------------------------------------------------------------------------------


def test_a_recorded_stream_with_reconnects_gives_the_masters_log(tmp_path: Path) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=FILE_BYTES)
    with kit.receiver() as slave:
        for link in links("classic-async"):
            slave.connect()
            slave.run()
            assert slave.reports() == [link.first_report]
            for piece in link.sent:
                assert slave.feed(piece) == lib.RMQ_RUN_BUDGET
            slave.run()
            assert slave.reports()[-1] == kit.marks.append_offset
            assert slave.master is not None
            slave.master.close()
            assert slave.run() == lib.RMQ_RUN_LINK
            assert slave.state.reason == lib.RMQ_LINK_EOF
    assert kit.marks.append_offset == ALOG_END
    assert kit.log(0, ALOG_END) == master_log()[:ALOG_END]
    assert len(kit.records()) > 300


def test_a_recorded_stream_that_starts_in_the_middle(tmp_path: Path) -> None:
    """The state after rebasing an empty slave at its master's newest file."""
    kit = slave_with_files(tmp_path, append_offset=SYNC_START, files=1, segment_bytes=FILE_BYTES)
    with kit.receiver() as slave:
        for number, link in enumerate(links("classic-sync")):
            slave.connect()
            slave.run()
            assert slave.reports() == [link.first_report if number else SYNC_START]
            for piece in link.sent:
                slave.feed(piece)
            slave.run()
            lib.rmq_receiver_detach(slave.handle)
    assert kit.marks.append_offset == LOG_END
    assert kit.log(SYNC_START, LOG_END) == master_log()[SYNC_START:LOG_END]


def test_an_empty_slave_is_told_where_the_stream_starts(tmp_path: Path) -> None:
    kit = slave_with_files(tmp_path, files=1, segment_bytes=FILE_BYTES)
    with kit.receiver() as slave:
        slave.connect()
        slave.run()
        assert slave.reports() == [0]
        assert slave.feed(links("classic-sync")[0].sent[0]) == lib.RMQ_RUN_LINK
        assert (slave.state.reason, slave.state.offset) == (lib.RMQ_LINK_STARTS_AT, SYNC_START)
    assert kit.marks.append_offset == 0


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cutting_of_the_stream_gives_the_same_log_and_queues(
    tmp_path_factory: pytest.TempPathFactory, log: bytes, data: st.DataObject
) -> None:
    offsets = st.lists(st.integers(1, len(log) - 1), max_size=30)
    stream = frames(
        log, 0, SEGMENT, data.draw(offsets, "transfers"), data.draw(st.sampled_from([700, 8192, 32_768]), "largest")
    )
    ends = sorted({*data.draw(st.lists(st.integers(1, len(stream) - 1), max_size=30), "reads"), len(stream)})
    kit = slave_with_files(tmp_path_factory.mktemp("cut"), segment_bytes=SEGMENT, files=3)
    twin = ReceiverTwin(0, SEGMENT)
    with kit.receiver() as slave:
        slave.connect()
        at = 0
        for end in ends:
            slave.feed(stream[at:end])
            twin.feed(stream[at:end])
            wait_until(lambda: slave.run() or slave.state.received_offset == twin.received_offset, "all is taken")
            assert kit.marks.append_offset == twin.append_offset
            assert not any(kit.log(twin.received_offset, 2 * SEGMENT)), "behind what has come there is nothing"
            at = end
        reports = slave.reports()
    assert twin.end() == log == kit.log(0, len(log))
    assert reports == sorted(set(reports)) and reports[-1] == len(log) and reports[0] == 0
    asked = kit.dispatch_all()
    assert sorted(asked) == [(b"TopicA", 0), (b"TopicA", 1), (b"TopicA", 2), (b"TopicB", 0)]
    units = {
        (view_topic, queue_id): list(kit.queue_units(view_topic, queue_id).values())
        for view_topic, queue_id in (("TopicA", 0), ("TopicA", 1), ("TopicA", 2), ("TopicB", 0))
    }
    expected: dict[tuple[str, int], list[int]] = {}
    for offset, record, view in kit.records():
        topic = record[view.topic_at :][: view.topic_length].decode()
        expected.setdefault((topic, view.queue_id), []).append(offset)
    assert {key: [unit[0] for unit in found] for key, found in units.items()} == expected


@pytest.mark.parametrize("rest", [0, 5, 12])
def test_small_transfers_that_come_at_once_leave_only_zeros_behind_them(tmp_path: Path, log: bytes, rest: int) -> None:
    """Their headers are received into the log with them; `rest` bytes are of a header without its body."""
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    with kit.receiver() as slave:
        slave.connect()
        slave.feed(frame(0, log[:100]))
        many = b"".join(frame(at, log[at : at + 100]) for at in range(100, 1000, 100))
        slave.feed(many + frame(1000)[:rest])
        wait_until(lambda: slave.run() or slave.state.received_offset == 1000, "all is taken")
        assert kit.log(0, 1000) == log[:1000]
        assert not any(kit.log(1000, SEGMENT))


# -- what is refused -----------------------------------------------------------------------------------------------


def test_what_breaks_a_rule_ends_the_connection_and_counts_for_nothing(tmp_path: Path, log: bytes) -> None:
    first = struct.unpack_from(">i", log)[0]
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    good = frame(0, log[:first])
    cut = struct.pack(">I", first - 1) + log[4 : first - 1]
    cases = [
        (frame(first), lib.RMQ_LINK_STARTS_AT, first, 0),
        (frame(0, b"GET / HTTP/1.1\r\n\r\n"), lib.RMQ_LINK_RECORD, 0, 0),
        (frame(0, bytes(64)), lib.RMQ_LINK_RECORD, 0, 0),
        (frame(0, cut), lib.RMQ_LINK_RECORD, 0, 0),
        (frame(0, struct.pack(">iI", SEGMENT - 1, 0xCBD43194)), lib.RMQ_LINK_RECORD, 0, 0),
        (struct.pack(">qi", 0, -1), lib.RMQ_LINK_SIZE, 0, 0),
        (struct.pack(">qi", 0, (4 << 20) + 1), lib.RMQ_LINK_SIZE, 0, 0),
        (struct.pack(">qi", 0, SEGMENT + 1), lib.RMQ_LINK_FILE_END, 0, 0),
        (good + frame(0, log[:first]), lib.RMQ_LINK_GAP, 0, first),
        (frame(first, log[first:9000]) + frame(first), lib.RMQ_LINK_GAP, first, None),
        (frame(0, b""), lib.RMQ_LINK_STARTS_AT, 0, None),
    ]
    with kit.receiver() as slave:
        for stream, reason, offset, append_offset in cases:
            before = kit.marks.append_offset
            slave.connect()
            slave.run()
            assert slave.feed(stream) == lib.RMQ_RUN_LINK
            assert (slave.state.reason, slave.state.offset) == (reason, offset)
            if append_offset is not None:
                assert kit.marks.append_offset == append_offset
            assert kit.marks.append_offset >= before
            assert max(slave.reports()) <= kit.marks.append_offset
            assert not any(kit.log(kit.marks.append_offset, SEGMENT))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (12, struct.pack(">i", -1)),
        (12, struct.pack(">i", 1 << 30)),
        (20, struct.pack(">q", -5)),
        (20, struct.pack(">q", 1 << 62)),
        (28, struct.pack(">q", 7)),
        (28, struct.pack(">q", -1)),
    ],
    ids=["queue id -1", "queue id 2^30", "queue offset -5", "queue offset 2^62", "place 7", "place -1"],
)
def test_an_impossible_value_is_replicated_and_left_out(tmp_path: Path, log: bytes, at: int, value: bytes) -> None:
    first = struct.unpack_from(">i", log)[0]
    damaged = log[: first + at] + value + log[first + at + len(value) :]
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    twin = ReceiverTwin(0, SEGMENT)
    twin.feed(frames(damaged, 0, SEGMENT))
    assert (twin.reason, twin.append_offset) == (0, len(log))
    with kit.receiver() as slave:
        slave.connect()
        finish(slave, damaged, 0)
    assert kit.log(0, len(log)) == damaged, "byte for byte"
    kit.dispatch_all()
    assert kit.marks.dispatched_offset == len(log)
    counters = kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters
    assert counters[lib.RMQ_DISPATCH_NOT_INDEXED] == 1
    assert counters[lib.RMQ_DISPATCH_IMPOSSIBLE_OFFSET] == first
    units = [
        unit[0]
        for topic, queues in (("TopicA", 3), ("TopicB", 1))
        for queue_id in range(queues)
        for unit in kit.queue_units(topic, queue_id).values()
        if unit[1] != 0x7FFFFFFF
    ]
    view, places, offset = ffi.new("struct rmq_record_view *"), [], 0
    while offset < len(log):
        result = lib.rmq_record_parse(log[offset:], len(log) - offset, 0, view)
        if result == lib.RMQ_RECORD_BLANK:
            offset += SEGMENT - offset % SEGMENT
            continue
        places.append(offset)
        offset += view.total_size
    assert sorted(units) == [slot for slot in places if slot != first]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 20_000), value=st.integers(1, 255), size=st.integers(900, 9000))
def test_the_twin_refuses_the_same_streams(
    tmp_path_factory: pytest.TempPathFactory, log: bytes, at: int, value: int, size: int
) -> None:
    stream = bytearray(frames(log[:30_000], 0, SEGMENT, body_max=4000))
    stream[at] ^= value
    kit = slave_with_files(tmp_path_factory.mktemp("twin"), segment_bytes=SEGMENT, files=1)
    twin = ReceiverTwin(0, SEGMENT)
    with kit.receiver() as slave:
        slave.connect()
        for start in range(0, len(stream), size):
            piece = bytes(stream[start : start + size])
            twin.feed(piece)
            slave.feed(piece)
            if twin.reason:
                break
        wait_until(
            lambda: slave.run() or slave.state.reason or slave.state.received_offset == twin.received_offset,
            "all is taken",
        )
        assert (slave.state.reason, kit.marks.append_offset) == (twin.reason, twin.append_offset)


# -- files and faults ----------------------------------------------------------------------------------------------


def test_the_stream_waits_for_the_next_file(tmp_path: Path, log: bytes) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT, files=1)
    stream = frames(log, 0, SEGMENT)
    with kit.receiver() as slave:
        slave.connect()
        slave.run()
        assert slave.master is not None
        slave.master.setblocking(True)
        slave.master.sendall(stream)
        slave.master.setblocking(False)
        wait_until(lambda: slave.run() or slave.state.waits_for_segment, "the receiver asks for a file")
        assert kit.marks.append_offset < SEGMENT
        assert max(slave.reports()) < SEGMENT
        assert kit.header.roles[lib.RMQ_ROLE_HA].counters[lib.RMQ_RECEIVE_SEGMENT_WAITS] == 1
        kit.create_segment(SEGMENT)
        kit.create_segment(2 * SEGMENT)
        wait_until(lambda: slave.run() or kit.marks.append_offset == len(log), "the rest is appended")
        assert slave.reports()[-1] == len(log)
    assert kit.log(0, len(log)) == log


def test_under_sync_flush_reports_say_what_is_flushed(tmp_path: Path, log: bytes) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT, sync=True)
    with kit.receiver() as slave, kit.flusher() as flush:
        slave.connect()
        slave.run()
        assert slave.reports() == [0]
        slave.feed(frame(0, log[:20_000]))
        appended = kit.marks.append_offset
        assert appended > 10_000
        slave.run()
        assert slave.reports() == []
        wait_until(lambda: flush() or kit.marks.flushed_offset == appended, "it is flushed")
        slave.run()
        assert slave.reports() == [appended]


def test_the_stream_begins_when_everything_is_flushed(tmp_path: Path, log: bytes) -> None:
    """The master takes the first report for the place to go on at."""
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT, sync=True)
    with kit.receiver() as slave:
        slave.connect()
        slave.feed(frame(0, log[:20_000]))
        slave.reports()
        slave.connect()
        slave.run()
        assert slave.reports() == []
        kit.marks.flushed_offset = kit.marks.append_offset
        slave.run()
        assert slave.reports() == [kit.marks.append_offset]


@pytest.mark.parametrize("fault", [lib.RMQ_FAULT_FSYNC, lib.RMQ_FAULT_DISK_FULL, lib.RMQ_FAULT_CREATE_FILE])
def test_a_store_with_a_fault_takes_and_reports_nothing(tmp_path: Path, log: bytes, fault: int) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    with kit.receiver() as slave:
        slave.connect()
        slave.run()
        assert slave.reports() == [0]
        kit.marks.store_fault, kit.marks.store_fault_errno = fault, 5
        assert slave.feed(frame(0, log[:20_000])) == lib.RMQ_RUN_LINK
        assert (slave.state.reason, slave.state.error) == (lib.RMQ_LINK_STORE, 5)
        assert slave.reports() == []
    assert kit.marks.append_offset == 0


def test_silence_ends_the_connection_and_a_quiet_slave_goes_on_reporting(tmp_path: Path, log: bytes) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    kit.header.settings.ha_heartbeat_ms = 20
    with kit.receiver() as slave:
        slave.connect()
        slave.feed(frame(0, log[:20_000]))
        reported: list[int] = []

        def has_reported() -> bool:
            assert slave.run() != lib.RMQ_RUN_LINK
            reported.extend(slave.reports())
            return len(reported) >= 4

        wait_until(has_reported, "it reports again and again")
        assert reported[-1] == kit.marks.append_offset
        kit.header.settings.ha_housekeeping_ms = 200
        wait_until(lambda: slave.run() == lib.RMQ_RUN_LINK, "it gives up")
        assert slave.state.reason == lib.RMQ_LINK_SILENT


# -- deaths --------------------------------------------------------------------------------------------------------


def test_a_death_in_mid_record_leaves_nothing_of_it(tmp_path: Path, log: bytes) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    with kit.receiver() as slave:
        slave.connect()
        slave.feed(frame(0, log[:20_000]))
    append = kit.marks.append_offset
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        with kit.receiver() as slave:
            slave.connect()
            slave.feed(frame(append, log[append : append + 300]))
            while True:
                slave.run()
    wait_until(lambda: any(kit.log(append, append + 300)), "half a record is in the page")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert kit.marks.append_offset == append
    assert kit.header.ports.journal.intent_high > append
    with kit.receiver() as slave:
        assert not any(kit.log(append, SEGMENT))
        slave.connect()
        slave.run()
        assert slave.reports() == [append]
        finish(slave, log, append)
    assert kit.log(0, len(log)) == log


def test_the_end_of_a_connection_in_mid_record_leaves_nothing_of_it(tmp_path: Path, log: bytes) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    with kit.receiver() as slave:
        slave.connect()
        slave.feed(frame(0, log[:20_000]))
        append = kit.marks.append_offset
        assert any(kit.log(append, 20_000)) and append < 20_000
        assert slave.master is not None
        slave.master.close()
        assert slave.run() == lib.RMQ_RUN_LINK
        assert not any(kit.log(append, 20_000))
        slave.connect()
        finish(slave, log, append)
    assert kit.log(0, len(log)) == log


def finish(slave: Receiver, log: bytes, start: int) -> None:
    assert slave.feed(frames(log[start:], start, SEGMENT)) == lib.RMQ_RUN_BUDGET
    wait_until(lambda: slave.run() >= 0 and slave.state.received_offset == len(log), "all of it is in the log")


# -- confirm offset ------------------------------------------------------------------------------------------------


def test_dispatch_stops_in_front_of_a_record_that_is_confirmed_in_part(tmp_path: Path, log: bytes) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    kit.marks.confirm_policy = lib.RMQ_CONFIRM_APPENDED | lib.RMQ_CONFIRM_LIMITED
    with kit.receiver() as slave:
        slave.connect()
        finish(slave, log, 0)
        borders = [0, *(offset for offset, *_ in kit.records()), len(log)]
        with kit.dispatcher() as run:
            for border, following in pairwise(borders[1:5]):
                lib.rmq_receiver_limit(slave.handle, (border + following) // 2)
                while kit.marks.dispatched_offset < border:
                    run()
                    kit.answer_questions()
                run()
                assert kit.marks.dispatched_offset == border
                assert kit.header.roles[lib.RMQ_ROLE_DISPATCH].counters[lib.RMQ_DISPATCH_BAD_RECORDS] == 0
        lib.rmq_receiver_limit(slave.handle, 2**64 - 1)
    kit.dispatch_all()
    assert kit.marks.dispatched_offset == len(log)


def test_what_was_readable_stays_so_when_a_master_has_confirmed_less(tmp_path: Path, log: bytes) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    kit.marks.confirm_policy = lib.RMQ_CONFIRM_APPENDED | lib.RMQ_CONFIRM_LIMITED
    with kit.receiver() as slave:
        slave.connect()
        assert slave.feed(frames(log[: SEGMENT // 2], 0, SEGMENT)) == lib.RMQ_RUN_BUDGET
        start = int(kit.marks.append_offset)
        lib.rmq_receiver_limit(slave.handle, 2**64 - 1)
        kit.dispatch_all()
        assert kit.marks.dispatched_offset == start
        lib.rmq_receiver_limit(slave.handle, start // 2)
        assert lib.rmq_confirm_offset(kit.marks) == start
        finish(slave, log, SEGMENT // 2)
        kit.dispatch_all()
        assert lib.rmq_confirm_offset(kit.marks) == kit.marks.dispatched_offset == start, "and no more becomes so"
        lib.rmq_receiver_limit(slave.handle, len(log))
    kit.dispatch_all()
    assert lib.rmq_confirm_offset(kit.marks) == kit.marks.dispatched_offset == len(log)


@pytest.mark.parametrize("is_streaming", [False, True])
def test_connections_of_other_slaves_are_closed_at_once(tmp_path: Path, log: bytes, is_streaming: bool) -> None:
    kit = slave_with_files(tmp_path, segment_bytes=SEGMENT)
    with kit.receiver() as receiver, socket.create_server(("127.0.0.1", 0)) as listener:
        assert lib.rmq_receiver_listen(receiver.handle, listener.fileno()) == 0
        if is_streaming:
            receiver.connect()
            receiver.run()
        others = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        receiver.run()
        for other in others:
            other.settimeout(5)
            assert other.recv(1) == b""
            other.close()
        if is_streaming:
            receiver.feed(frames(log, 0, SEGMENT))
            assert kit.marks.append_offset == len(log)


def test_a_listener_that_is_none_is_an_error(tmp_path: Path) -> None:
    with slave_with_files(tmp_path, segment_bytes=SEGMENT).receiver() as receiver:
        assert lib.rmq_receiver_listen(receiver.handle, -1) == -errno.EBADF
