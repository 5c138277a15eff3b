"""The master's HA writer in C, against slaves that are plain sockets."""

import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ha_kit import FOLLOWS, HaKit, Slave

from ringmq.ha.replica_watermark import Condition, PeerOffsets, Requirement, watermark
from ringmq.native import ffi, lib
from tests.speed import WALL, allowed

MakeHa = Callable[..., HaKit]
WINDOW = 131_072 + 65_536 + 32_768
"""The least that a window of 0 becomes, with messages of 128 KiB."""


@pytest.fixture
def make_ha(tmp_path: Path) -> Iterator[MakeHa]:
    made: list[HaKit] = []

    def make(**settings: Any) -> HaKit:
        made.append(HaKit(tmp_path, **settings))
        return made[-1]

    yield make
    for kit in made:
        kit.close()


def log_bytes(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


# -- the stream ----------------------------------------------------------------------------------------------


def test_the_log_arrives_whole_in_frames_that_never_cross_a_file_end(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.append(log_bytes(150_000))
    slave = ha.follow(0)
    ha.append(log_bytes(100_001, seed=2))
    ha.turn_until(lambda: slave.end() == len(ha.written), "everything has come")
    assert slave.body() == ha.written
    size = ha.header.settings.segment_bytes
    for offset, body in slave.frames():
        assert 0 < len(body) <= 32768
        assert offset // size == (offset + len(body) - 1) // size
    row = ha.row(slave)
    assert row.sent_offset == len(ha.written)
    assert row.sent_bytes == len(slave.stream)
    assert row.sent_transfers == len(slave.frames())


def test_a_slave_that_reads_slowly_gets_the_same_bytes(make_ha: MakeHa) -> None:
    ha = make_ha(window_bytes=64 << 20)
    ha.append(log_bytes(3_000_000))
    slave = ha.follow(12_345, receive_buffer_bytes=2048)
    dice = random.Random(7)
    while slave.end() < len(ha.written):
        ha.turn()
        slave.read(dice.randrange(1, 70_000))
    assert slave.body() == ha.written[12_345:]


def test_many_slaves_at_different_places_get_their_part(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.append(log_bytes(400_000))
    starts = [index * 23_456 for index in range(lib.RMQ_HA_PEERS_MAX)]
    slaves = [ha.follow(start) for start in starts]
    ha.turn_until(lambda: all(slave.end() == len(ha.written) for slave in slaves), "everybody has everything")
    for slave, start in zip(slaves, starts, strict=True):
        assert slave.body() == ha.written[start:]


def test_nothing_is_sent_before_the_start_is_decided(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.append(b"x" * 1000)
    slave = ha.connect()
    slave.report(0)
    ha.turn_until(lambda: ha.found(slave, lib.RMQ_HA_EVENT_FIRST_REPORT), "it has reported")
    for _ in range(5):
        ha.turn()
        assert not slave.read()
    assert lib.rmq_ha_sender_start(ha.sender, ha.peer(slave), 1001) == -22, "beyond the end"
    assert lib.rmq_ha_sender_start(ha.sender, ha.peer(slave), 1000) == 0
    assert lib.rmq_ha_sender_start(ha.sender, ha.peer(slave), 1000) == -22, "its stream has begun"


def test_an_idle_slave_gets_heartbeats_that_name_the_next_offset(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.header.settings.ha_heartbeat_ms = 60
    ha.append(b"x" * 777)
    slave = ha.follow(777)
    ha.turn_until(lambda: len(slave.frames()) >= 3, "three heartbeats")
    assert set(slave.frames()) == {(777, b"")}
    ha.append(b"y")
    ha.turn_until(lambda: slave.end() == 778, "data follows them")


def test_a_slave_whose_next_file_is_gone_is_told_by_closing(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.append(log_bytes(200_000))
    (ha.root / "commitlog" / f"{65536:020d}").unlink()
    slave = ha.follow(65_536 + 10)
    ha.turn_until(lambda: slave.closed, "the connection is closed")
    closed = ha.found(slave, lib.RMQ_HA_EVENT_CLOSED)
    assert closed is not None
    assert (closed.why, closed.error) == (lib.RMQ_HA_WHY_LOG, 2)


def test_files_that_nobody_reads_any_more_are_let_go(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.append(log_bytes(300_000))
    behind, ahead = ha.follow(70_000), ha.follow(0)
    ha.turn_until(lambda: ahead.end() == behind.end() == len(ha.written), "both have everything")

    def mapped() -> set[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {Path(line.split()[-1]).name for line in lines if str(ha.root) in line}

    ha.turn_until(lambda: mapped() == {f"{262_144:020d}"}, "only the file at the end is mapped")
    ha.append(log_bytes(40_000))
    ha.turn_until(lambda: ahead.end() == len(ha.written), "the stream goes on")
    assert ahead.body() == ha.written


# -- window and rate -----------------------------------------------------------------------------------------


def test_the_window_bounds_what_is_sent_and_not_reported(make_ha: MakeHa) -> None:
    ha = make_ha(window_bytes=0, message_bytes_max=131_072)
    ha.append(log_bytes(1_000_000))
    slave = ha.follow(0)
    ha.turn_until(lambda: slave.end() == WINDOW, "the window is full")
    for _ in range(5):
        ha.turn()
        assert not slave.read()
    slave.report(50_000)
    ha.turn_until(lambda: slave.end() == WINDOW + 50_000, "a report makes room for as much")
    slave.report(WINDOW)
    ha.turn_until(lambda: slave.end() == 2 * WINDOW, "and so does the next")
    assert slave.body() == ha.written[: 2 * WINDOW]


@pytest.mark.timed(cpus=1)
def test_flow_control_counts_every_byte(make_ha: MakeHa) -> None:
    ha = make_ha(window_bytes=8 << 20)
    rate = ha.header.settings.ha_bytes_per_second = 400_000
    ha.append(log_bytes(2_000_000))
    slave = ha.follow(0)
    began = time.monotonic()
    ha.turn_until(lambda: len(slave.stream) > rate, "a second's share has come")
    seconds = time.monotonic() - began
    assert 0.8 < seconds < allowed(1.6, WALL), f"{len(slave.stream)} bytes in {seconds:.2f} s"


# -- reports -------------------------------------------------------------------------------------------------


def test_silence_counts_from_the_first_bytes_that_wait_for_a_report(make_ha: MakeHa) -> None:
    ha = make_ha()
    slave = ha.follow(0)
    ha.turn()
    assert ha.row(slave).silent_since_mono_ms == 0, "nothing is sent"
    ha.append(log_bytes(10_000))
    ha.turn_until(lambda: slave.end() == 10_000, "it has come")
    since = int(ha.row(slave).silent_since_mono_ms)
    assert 0 < since <= time.monotonic_ns() // 1_000_000
    ha.append(log_bytes(10_000))
    ha.turn_until(lambda: slave.end() == 20_000, "more has come")
    slave.report(0)
    ha.turn()
    assert ha.row(slave).silent_since_mono_ms == since, "a report that says nothing new ends no silence"
    slave.report(9000)
    ha.turn_until(lambda: ha.row(slave).reported_offset == 9000, "it has reported a part")
    assert ha.row(slave).silent_since_mono_ms >= since
    slave.report(20_000)
    ha.turn_until(lambda: ha.row(slave).reported_offset == 20_000, "it has reported all")
    assert ha.row(slave).silent_since_mono_ms == 0


def test_reports_may_come_in_any_pieces(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.append(b"x" * 5000)
    slave = ha.follow(0)
    ha.turn_until(lambda: slave.end() == 5000, "everything has come")
    said = b"".join(offset.to_bytes(8, "big") for offset in (100, 2000, 2000, 4999))
    for index in range(len(said)):
        slave.socket.send(said[index : index + 1])
        ha.turn(100_000)
    ha.turn_until(lambda: ha.row(slave).reported_offset == 4999, "all four count")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((300, 200), lib.RMQ_HA_WHY_BACKWARD),
        ((300, 5001), lib.RMQ_HA_WHY_BEYOND),
        ((300, 2**63), lib.RMQ_HA_WHY_JUNK),
        ((300, 2**64 - 1), lib.RMQ_HA_WHY_JUNK),
        ((5000, 4999), lib.RMQ_HA_WHY_BACKWARD),
    ],
)
def test_a_lie_closes_and_acknowledges_nothing(make_ha: MakeHa, said: tuple[int, ...], why: int) -> None:
    ha = make_ha()
    ha.append(b"x" * 5000)
    ha.require(1)
    slave = ha.follow(0)
    ha.turn_until(lambda: slave.end() == 5000, "everything has come")
    slave.report(*said)
    ha.turn_until(lambda: slave.closed, "the connection is closed")
    closed = ha.found(slave, lib.RMQ_HA_EVENT_CLOSED)
    assert closed is not None
    assert (closed.why, closed.offset) == (why, said[-1])
    assert ha.marks.replicated_offset == 0, "not even what it said before in the same breath"
    assert ha.header.replication.peers[closed.peer].state == lib.RMQ_HA_FREE


@pytest.mark.parametrize(("again", "why"), [(99, lib.RMQ_HA_WHY_BACKWARD), (101, lib.RMQ_HA_WHY_BEYOND)])
def test_a_slave_that_was_sent_nothing_cannot_report_another_offset(make_ha: MakeHa, again: int, why: int) -> None:
    ha = make_ha()
    ha.append(b"x" * 5000)
    slave = ha.connect()
    slave.report(100, 100)
    ha.turn_until(lambda: ha.found(slave, lib.RMQ_HA_EVENT_FIRST_REPORT), "it has reported")
    slave.report(again)
    ha.turn_until(lambda: slave.closed, "the connection is closed")
    closed = ha.found(slave, lib.RMQ_HA_EVENT_CLOSED)
    assert closed is not None and closed.why == why


@pytest.mark.parametrize("junk", [b"\xff" * 9, b"\x80" + bytes(7), b"\xde\xad\xbe\xef" * 3000])
def test_junk_is_closed_without_a_first_report(make_ha: MakeHa, junk: bytes) -> None:
    ha = make_ha()
    slave = ha.connect()
    slave.socket.send(junk)
    ha.turn_until(lambda: slave.closed, "the connection is closed")
    assert ha.found(slave, lib.RMQ_HA_EVENT_FIRST_REPORT) is None
    assert ha.header.roles[lib.RMQ_ROLE_HA].counters[lib.RMQ_HA_FALSE_REPORTS] == 1


def test_who_says_nothing_is_closed_by_housekeeping_and_who_reports_stays(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.header.settings.ha_housekeeping_ms = 300
    mute, halfway, idle = ha.connect(), ha.connect(), ha.follow(0)
    halfway.socket.send(b"\0\0\0")

    def silent_ones_are_closed() -> bool:
        idle.report(0)
        return mute.closed and halfway.closed

    ha.turn_until(silent_ones_are_closed, "those that say nothing are closed")
    assert ha.found(idle, lib.RMQ_HA_EVENT_CLOSED) is None
    closed = ha.found(mute, lib.RMQ_HA_EVENT_CLOSED)
    assert closed is not None and closed.why == lib.RMQ_HA_WHY_SILENT


def test_no_more_than_sixteen_are_let_in(make_ha: MakeHa) -> None:
    ha = make_ha()
    slaves = [ha.connect() for _ in range(lib.RMQ_HA_PEERS_MAX)]
    assert sorted(ha.peer(slave) for slave in slaves) == list(range(lib.RMQ_HA_PEERS_MAX))
    late = Slave(ha.port)
    ha.slaves.append(late)
    ha.turn_until(lambda: late.closed, "the seventeenth is closed")
    assert ha.header.roles[lib.RMQ_ROLE_HA].counters[lib.RMQ_HA_REFUSED] == 1
    assert ha.found(late, lib.RMQ_HA_EVENT_FULL) is not None, "its host and port are told"
    slaves[5].socket.close()
    ha.slaves.remove(slaves[5])
    ha.turn_until(lambda: ha.found(slaves[5], lib.RMQ_HA_EVENT_CLOSED), "one has gone")
    assert ha.peer(ha.connect()) == ha.peer(slaves[5]), "its place is free"


def test_a_reset_is_an_event_with_its_cause(make_ha: MakeHa) -> None:
    ha = make_ha()
    slave = ha.follow(0)
    slave.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    slave.socket.close()
    ha.slaves.remove(slave)
    ha.turn_until(lambda: ha.found(slave, lib.RMQ_HA_EVENT_CLOSED), "it is noticed")
    closed = ha.found(slave, lib.RMQ_HA_EVENT_CLOSED)
    assert closed is not None and (closed.why, closed.error) == (lib.RMQ_HA_WHY_PEER, 104)


def test_an_order_to_close_is_followed_by_its_event(make_ha: MakeHa) -> None:
    ha = make_ha()
    slave = ha.follow(0)
    lib.rmq_ha_sender_disconnect(ha.sender, ha.peer(slave))
    assert ha.turn() == lib.RMQ_RUN_NEWS
    closed = ha.found(slave, lib.RMQ_HA_EVENT_CLOSED)
    assert closed is not None and closed.why == lib.RMQ_HA_WHY_ORDERED
    lib.rmq_ha_sender_disconnect(ha.sender, closed.peer)
    assert ha.turn() == lib.RMQ_RUN_BUDGET, "for one that is gone nothing happens"


# -- watermarks ----------------------------------------------------------------------------------------------


def test_the_words_follow_reports_and_never_fall(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.marks.confirm_policy = lib.RMQ_CONFIRM_LIMITED
    ha.require(2)
    ha.append(b"x" * 5000)
    first, second = ha.follow(0), ha.follow(0)
    ha.turn_until(lambda: first.end() == second.end() == 5000, "everything has come")
    first.report(5000)
    ha.turn_until(lambda: ha.row(first).reported_offset == 5000, "the first has reported")
    assert (ha.marks.replicated_offset, ha.marks.confirm_limit) == (0, 0), "one of two"
    second.report(3000)
    ha.turn_until(lambda: ha.marks.replicated_offset == 3000, "both have 3000")
    assert ha.marks.confirm_limit == 3000
    second.socket.close()
    ha.slaves.remove(second)
    ha.turn_until(lambda: ha.found(second, lib.RMQ_HA_EVENT_CLOSED), "the second has gone")
    ha.turn()
    assert (ha.marks.replicated_offset, ha.marks.confirm_limit) == (3000, 3000)


def test_a_connection_that_does_not_count_acknowledges_nothing(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.require(1)
    ha.append(b"x" * 5000)
    slave = ha.follow(0, flags=0)
    ha.turn_until(lambda: slave.end() == 5000, "everything has come")
    slave.report(5000)
    ha.turn_until(lambda: ha.row(slave).reported_offset == 5000, "it has reported")
    assert ha.marks.replicated_offset == 0
    lib.rmq_ha_sender_mark(ha.sender, ha.peer(slave), 7, lib.RMQ_HA_LEVEL_FLUSHED, FOLLOWS, b"room-a")
    ha.turn()
    assert ha.marks.replicated_offset == 5000
    assert (ha.row(slave).broker_id, ffi.string(ha.row(slave).room)) == (7, b"room-a")


def test_bytes_count_as_received_without_a_report(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.require(1, lib.RMQ_HA_LEVEL_RECEIVED)
    ha.append(b"x" * 5000)
    slave = ha.follow(0)
    ha.turn_until(lambda: ha.marks.replicated_offset == 5000, "the slave's kernel has acknowledged them", read=False)
    assert ha.row(slave).reported_offset == 0


def test_a_successor_keeps_what_was_right_before_anybody_is_back(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.marks.confirm_policy = lib.RMQ_CONFIRM_LIMITED
    ha.require(1)
    ha.append(b"x" * 5000)
    slave = ha.follow(0)
    ha.turn_until(lambda: slave.end() == 5000, "everything has come")
    slave.report(4000)
    ha.turn_until(lambda: ha.marks.replicated_offset == 4000, "4000 are replicated")
    connection = ha.row(slave).connection
    lib.rmq_ha_sender_close(ha.sender)
    ha.header.replication.peers[3].state = lib.RMQ_HA_TRANSFER  # as a predecessor that was killed would leave it
    ha.header.replication.peers[3].flags, ha.header.replication.peers[3].reported_offset = FOLLOWS, 5000
    ha.open()
    ha.require(1)
    ha.turn()
    assert (ha.marks.replicated_offset, ha.marks.confirm_limit) == (4000, 4000)
    again = ha.follow(4500)
    ha.turn_until(lambda: ha.marks.replicated_offset == 4500, "what it has counts")
    assert ha.row(again).connection == connection + 1


def test_nothing_is_computed_before_the_policy_is_known(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.marks.confirm_policy = lib.RMQ_CONFIRM_LIMITED
    ha.append(b"x" * 5000)
    ha.turn()
    assert (ha.marks.replicated_offset, ha.marks.confirm_limit) == (0, 0)


def test_the_watermark_equals_its_plain_twin() -> None:
    dice = random.Random(11)
    rows = ffi.new("struct rmq_ha_peer[]", lib.RMQ_HA_PEERS_MAX)
    struct = ffi.new("struct rmq_ha_requirement *")
    for _ in range(4000):
        peers = []
        for row in rows:
            peer = PeerOffsets(
                transfer=dice.random() < 0.8, counts=dice.random() < 0.8, level=dice.choice((4, 5)),
                sent_offset=dice.randrange(1200), received_offset=dice.randrange(1200),
                reported_offset=dice.randrange(1200),
            )  # fmt: skip
            peers.append(peer)
            row.state = lib.RMQ_HA_TRANSFER if peer.transfer else dice.choice((lib.RMQ_HA_FREE, lib.RMQ_HA_READY))
            row.flags = lib.RMQ_HA_PEER_COUNTS if peer.counts else lib.RMQ_HA_PEER_IN_SYNC
            row.level, row.sent_offset = peer.level, peer.sent_offset
            row.received_offset, row.reported_offset = peer.received_offset, peer.reported_offset
        conditions = tuple(
            Condition(dice.randrange(1 << 16), dice.randrange(0, 6), dice.randrange(0, 6))
            for _ in range(dice.randrange(5))
        )
        struct.count = len(conditions)
        for index, condition in enumerate(conditions):
            into = struct.conditions[index]
            into.peers, into.count, into.level = condition.peers, condition.count, condition.level
        append = dice.randrange(1200)
        assert lib.rmq_ha_watermark(struct, rows, append) == watermark(Requirement(conditions), peers, append)


# -- bells, state, stop --------------------------------------------------------------------------------------


def test_growth_rings_the_completer_and_dispatch(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.marks.confirm_policy = lib.RMQ_CONFIRM_LIMITED
    ha.require(1)
    ha.append(b"x" * 5000)
    ha.header.ports.parked.head += 1  # somebody waits
    slave = ha.follow(0)
    ha.turn_until(lambda: slave.end() == 5000, "everything has come")
    for role in (lib.RMQ_ROLE_FLUSH, lib.RMQ_ROLE_DISPATCH):
        lib.rmq_role_arm(ha.plane, role)
    slave.report(5000)
    ha.turn_until(lambda: ha.marks.replicated_offset == 5000, "it is replicated")
    assert lib.rmq_role_wait(ha.plane, lib.RMQ_ROLE_FLUSH, 0) == 1
    assert lib.rmq_role_wait(ha.plane, lib.RMQ_ROLE_DISPATCH, 0) == 1


def test_a_changed_state_rings_the_completer_once(make_ha: MakeHa) -> None:
    ha = make_ha()
    for state, rung in ((lib.RMQ_REPLICATION_LOST, 1), (lib.RMQ_REPLICATION_LOST, 0), (lib.RMQ_REPLICATION_OK, 1)):
        lib.rmq_role_arm(ha.plane, lib.RMQ_ROLE_FLUSH)
        lib.rmq_ha_sender_state(ha.sender, state, 3)
        assert lib.rmq_role_wait(ha.plane, lib.RMQ_ROLE_FLUSH, 0) == rung
        assert (ha.marks.replication_state, ha.marks.in_sync_replicas) == (state, 3)


def test_write_has_to_wake_it_only_where_that_serves_somebody(make_ha: MakeHa) -> None:
    ha = make_ha()
    sleeps = ha.header.roles[lib.RMQ_ROLE_HA].counters
    ha.turn()
    assert sleeps[lib.RMQ_HA_SLEEPS] == 0, "there is no slave"
    slave = ha.follow(0)
    ha.turn_until(lambda: sleeps[lib.RMQ_HA_SLEEPS], "a slave has everything: what is new has to reach it")
    before = sleeps[lib.RMQ_HA_SLEEPS]
    ha.append(b"x" * 1000)
    ha.turn(400_000)  # less than a nap
    assert slave.read() and sleeps[lib.RMQ_HA_SLEEPS] == before, "it naps after work"
    lib.rmq_ha_sender_disconnect(ha.sender, ha.peer(slave))
    ha.turn()
    ha.header.settings.sync_replication = 1
    ha.turn()
    assert sleeps[lib.RMQ_HA_SLEEPS] > before, "answers may depend on it"


@pytest.mark.timed(cpus=1)
def test_an_order_of_control_ends_the_slice(make_ha: MakeHa) -> None:
    ha = make_ha()
    assert ha.turn() == lib.RMQ_RUN_BUDGET
    assert lib.rmq_ha_command_put(ha.plane, b"{}", 2) == 0
    began = time.monotonic()
    assert ha.turn(5_000_000_000) == lib.RMQ_RUN_NEWS
    assert time.monotonic() - began < allowed(1, WALL)


@pytest.mark.timed(cpus=1)
def test_a_clean_stop_waits_for_the_last_report_but_not_for_ever(make_ha: MakeHa) -> None:
    ha = make_ha()
    ha.append(b"x" * 5000)
    slave, stalled = ha.follow(0), ha.follow(0)
    ha.turn_until(lambda: slave.end() == stalled.end() == 5000, "everything has come")
    ha.marks.stop_requested = lib.RMQ_STOP_DISPATCH
    assert ha.turn() == lib.RMQ_RUN_BUDGET, "its phase has not come"
    ha.marks.stop_requested = lib.RMQ_STOP_HA
    assert ha.turn() == lib.RMQ_RUN_BUDGET, "both owe a report"
    slave.report(5000)
    began = time.monotonic()
    assert ha.turn(5_000_000_000) == lib.RMQ_RUN_STOPPED
    assert 0.2 < time.monotonic() - began < allowed(2, WALL), "slaveTimeout"
