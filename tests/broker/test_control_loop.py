"""The loop over a real plane: records in, verdicts out, generations, backlog, a clean stop."""

import os
import re
import struct
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig, changed
from ringmq.broker.config.identity import Identity
from ringmq.broker.control import PEER_LINES_PER_MINUTE, STORE_LOOK_MS, TICK_MS, ControlLoop
from ringmq.broker.control_report import read_report
from ringmq.broker.control_wiring import saved_by
from ringmq.broker.core import Broker
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.requests.producer_check import ProducerCheck
from ringmq.broker.requests.reply_queue import BACKLOG_BYTES_LARGE
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.broker.requests.slow_requests import DROPPED_COUNTER
from ringmq.broker.tables.loading import load_into, load_state
from ringmq.broker.tables.persistence import Persistence
from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.asks import Asker, Inbox
from ringmq.ipc.plane import NONE, Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.native import ffi, lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData
from ringmq.remoting.json_body import read_object, write_body
from ringmq.remoting.route import BrokerData, TopicRouteData
from ringmq.remoting.subscription import SubscriptionData
from tests.broker.fakes import FakeStore

READER = 0
ASKERS = frozenset({lib.RMQ_ROLE_READ, lib.RMQ_ROLE_DISPATCH, lib.RMQ_ROLE_HA, lib.RMQ_ROLE_SERVICES})


@dataclass
class Nothing:
    queues: dict[tuple[str, int], Any]
    append_offset: int = 0


@dataclass
class Harness:
    """A plane, the loop over it, and the reader's side of both rings."""

    plane: Plane
    loop: ControlLoop
    root: Path
    generation: int = 1

    def put(
        self,
        command: RemotingCommand | bytes,
        pending: int = 5,
        connection: int = 3,
        kind: int = 0,
        cut: int = 0,
        age_ms: int = 0,
    ) -> None:
        frame = command if isinstance(command, bytes) else encode_frame(command)
        head = ffi.new("struct rmq_inbox_record *")
        head.type = kind or lib.RMQ_INBOX_COLD_FRAME
        head.role, head.role_generation = lib.RMQ_ROLE_READ + READER, self.generation
        head.connection, head.connection_generation, head.pending = connection, 1, pending
        head.frame_length = len(frame)
        head.received_mono_ns = time.monotonic_ns() - age_ms * 1_000_000 if age_ms else 0
        ffi.memmove(head.peer_host, bytes([127, 0, 0, 9]), 4)
        head.peer_port = 4567
        payload = frame[: len(frame) - cut]
        assert lib.rmq_inbox_put(self.plane.struct, 0, head, payload, len(payload), ffi.NULL) == 0

    def verdicts(self) -> list[tuple[int, int, int, bytes, bool]]:
        """(type, connection, pending, payload, last) of what the reader finds; the room is given back."""
        ring = self.plane.header.asks.answerer[0].answers[lib.RMQ_ROLE_READ + READER]
        found = []
        size = ffi.sizeof("struct rmq_verdict")
        base = ffi.cast("char *", self.plane.struct.base) + ring.slots_at
        while ring.tail < ring.head:
            verdict = ffi.cast("struct rmq_verdict *", base + (ring.tail & (ring.capacity - 1)))
            if verdict.type != 0:
                payload = bytes(ffi.buffer(ffi.cast("char *", verdict) + size, verdict.length - size))
                found.append((verdict.type, verdict.connection, verdict.pending, payload, bool(verdict.last)))
            ring.tail += (verdict.length + 7) & ~7
        return found

    def answers(self) -> list[RemotingCommand]:
        self.loop.turn(now())
        return [decode_frame(payload) for kind, _, _, payload, _ in self.verdicts() if kind == lib.RMQ_VERDICT_SEND]


def now() -> int:
    return time.time_ns() // 1_000_000


SMALL = Capacity(
    topics=1024, queues=8192, groups=256, subscriptions=256, offsets=1024, parked_slots=64,
    commit_slots=64, arrived_slots=64, answerers=(AnswererPlan(lib.RMQ_ROLE_CONTROL, ASKERS, 1 << 20, 1 << 16),),
)  # fmt: skip


@contextmanager
def made_harness(root: Path, capacity: Capacity) -> Iterator[Harness]:
    """A loop that has not turned yet, over a plane of its own."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    plane = Plane.create(name, capacity, root.stat(), 1)
    plane.role(lib.RMQ_ROLE_READ).generation = 1
    names = {"storePathRootDir": str(root), "brokerName": "wire-a"}
    config = changed(BrokerConfig(), names)
    load_into(plane, config, Nothing({}))
    broker = Broker(config, Identity("127.0.0.1", 1, "127.0.0.1", now()), plane, FakeStore())
    broker.prepare(now())
    load_state(root, config, broker.topics, broker.groups, broker.offsets, now(), fresh=False)
    loop = ControlLoop(plane, broker, Persistence(root, saved_by(broker)), OutboundCalls(lambda: None))
    yield Harness(plane, loop, root)
    remove_segments(name)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with made_harness(tmp_path, SMALL) as made:
        yield made


def json_frame(header: str) -> bytes:
    """A frame whose header is this text."""
    data = header.encode()
    return struct.pack(">II", 4 + len(data), len(data)) + data


def heartbeat(group: str = "G") -> RemotingCommand:
    body = HeartbeatData("c1", consumers=[ConsumerData(group)]).encode()
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=body, opaque=8)


def test_a_request_is_answered_to_its_pending_entry(harness: Harness) -> None:
    harness.put(RemotingCommand.request(9999, opaque=77), pending=42, connection=6)
    assert harness.loop.turn(now())
    ((kind, connection, pending, payload, last),) = harness.verdicts()
    assert (kind, connection, pending, last) == (lib.RMQ_VERDICT_SEND, 6, 42, True)
    assert (decode_frame(payload).code, decode_frame(payload).opaque) == (3, 77)


def test_a_slow_request_gets_a_line_unless_a_reader_runs_it_again(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    ext = {"a": "P", "b": "Late", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    harness.put(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100), pending=2, cut=100, age_ms=5000)
    harness.put(RemotingCommand.request(9999), age_ms=5000)
    harness.put(RemotingCommand.request(9998), age_ms=1)
    for _ in range(12):
        harness.put(RemotingCommand.request(9997), age_ms=5000)
    harness.loop.turn(now())
    lines = [line for line in capsys.readouterr().err.splitlines() if "slow request" in line]
    assert len(lines) == 10
    assert re.match(r"ringmq: control: slow request: 5\d{3}\.\d ms, code 9999, ", lines[0])
    assert "from 127.0.0.9:4567" in lines[0] and not [line for line in lines if "9998" in line]
    assert harness.plane.role(lib.RMQ_ROLE_CONTROL).counters[DROPPED_COUNTER] == 3
    harness.loop.broker.apply_config(changed(harness.loop.broker.config, {"ringmqSlowRequestMs": "0"}))
    harness.put(RemotingCommand.request(9999), age_ms=5000)
    harness.loop.turn(now() + 2000)
    assert "slow request" not in capsys.readouterr().err


def test_what_a_change_means_for_health_is_reported(harness: Harness) -> None:
    later = {"startAcceptSendRequestTimeStamp": str(1 << 60), "brokerPermission": "4"}
    harness.loop.broker.apply_config(changed(harness.loop.broker.config, later))
    harness.loop.turn(now())
    report = read_report(harness.plane.name)
    assert report is not None and (report.sends_from_ms, report.permission) == (1 << 60, 4)


def test_a_send_without_its_body_makes_the_topic_and_runs_again(harness: Harness) -> None:
    ext = {"a": "P", "b": "Fresh", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    harness.put(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100), pending=2, cut=100)
    harness.loop.turn(now())
    assert [verdict[:3] for verdict in harness.verdicts()] == [(lib.RMQ_VERDICT_REDO, 3, 2)]
    topic_id = harness.plane.topic_find("Fresh")
    assert topic_id is not None
    assert harness.plane.queue_find(topic_id, 3) is not None
    assert '"Fresh"' in (harness.root / "config" / "topics.json").read_text(), "saved before the verdict"


def test_notices_go_out_before_the_answer(harness: Harness) -> None:
    harness.put(heartbeat(), pending=9)
    harness.loop.turn(now())
    verdicts = harness.verdicts()
    codes = [decode_frame(payload).code for _, _, _, payload, _ in verdicts]
    assert codes == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0]
    assert [pending for _, _, pending, _, _ in verdicts] == [NONE, 9]


def test_oneway_requests_are_released_and_junk_closes(harness: Harness) -> None:
    harness.put(RemotingCommand.request(9999, oneway=True), pending=4)
    bad = encode_frame(RemotingCommand.request(1))
    head_length = struct.unpack(">I", bad[4:8])[0] & 0xFFFFFF
    command = RemotingCommand.request(1)
    harness.put(command, pending=5, cut=head_length)
    harness.loop.turn(now())
    kinds = [(kind, pending) for kind, _, pending, _, _ in harness.verdicts()]
    assert kinds == [(lib.RMQ_VERDICT_DROP, 4), (lib.RMQ_VERDICT_CLOSE, 5)]


NESTED = "[" * 990 + "]" * 990
"""Read as JSON, and too deep to be written as text."""


@pytest.mark.parametrize("topic", ['"\\ud800"', NESTED])
def test_a_header_that_does_not_decode_closes_its_connection_alone(harness: Harness, topic: str) -> None:
    harness.put(json_frame(f'{{"code":353,"extFields":{{"group":"G","topic":{topic},"readable":"false"}}}}'), pending=5)
    harness.put(RemotingCommand.request(9999), pending=6)
    harness.loop.turn(now())
    kinds = [(kind, pending) for kind, _, pending, _, _ in harness.verdicts()]
    assert kinds == [(lib.RMQ_VERDICT_CLOSE, 5), (lib.RMQ_VERDICT_SEND, 6)]
    assert harness.loop.broker.groups.body()["forbiddenTable"] == {}


def test_a_closed_connection_leaves_its_groups(harness: Harness) -> None:
    harness.put(heartbeat())
    harness.loop.turn(now())
    harness.put(RemotingCommand.request(0), kind=lib.RMQ_INBOX_CLOSED)
    harness.loop.turn(now())
    assert harness.loop.broker.consumers.get("G") is None


def test_control_lets_go_of_what_retention_took(harness: Harness) -> None:
    store = harness.loop.broker.store
    assert isinstance(store, FakeStore)
    for later_ms in (0, TICK_MS, STORE_LOOK_MS):
        harness.loop.turn(now() + later_ms)
    assert store.looks == 2


def test_a_restarted_reader_has_none_of_its_connections(harness: Harness) -> None:
    harness.put(heartbeat())
    harness.loop.turn(now())
    harness.verdicts()
    harness.generation = 2
    harness.plane.role(lib.RMQ_ROLE_READ).generation = 2
    harness.put(RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}))
    assert [answer.code for answer in harness.answers()] == [1]
    assert harness.loop.broker.membership.connections() == set()


def test_records_that_a_dead_reader_left_behind_are_nobodys(harness: Harness) -> None:
    harness.plane.role(lib.RMQ_ROLE_READ).generation = 2
    harness.generation = 2
    harness.put(heartbeat())
    harness.loop.turn(now())
    harness.verdicts()
    harness.generation = 1
    harness.put(heartbeat("Old"), connection=9)
    harness.loop.turn(now())
    assert harness.verdicts() == []
    assert harness.loop.broker.consumers.get("Old") is None
    assert harness.loop.broker.consumers.get("G") is not None


def test_answers_beyond_the_ring_wait_in_order_and_are_cut_into_chunks(harness: Harness) -> None:
    topics = {f"T{index:03}": 1 for index in range(600)}
    for topic in topics:
        harness.loop.broker.topics.create_for_group(topic, 1, 0, False, now())
    for opaque in range(3):
        harness.put(RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG, opaque=opaque), pending=opaque)
    bodies: dict[int, bytes] = {}
    order: list[int] = []
    for _ in range(200):
        harness.loop.turn(now())
        for _, _, pending, payload, last in harness.verdicts():
            assert len(payload) <= Inbox(harness.plane).chunk_bytes
            bodies[pending] = bodies.get(pending, b"") + payload
            if last:
                order.append(pending)
        if len(order) == 3:
            break
    assert order == [0, 1, 2]
    assert len(bodies[0]) > harness.plane.header.asks.answerer[0].answers[lib.RMQ_ROLE_READ + READER].capacity
    assert [decode_frame(bodies[opaque]).opaque for opaque in order] == order


def test_a_defect_in_a_handler_costs_one_answer(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(harness.loop.broker.locks, "lock", broken)
    harness.put(RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=b'{"mqSet":[{}]}'))
    harness.put(RemotingCommand.request(9999))
    answers = harness.answers()
    assert [answer.code for answer in answers] == [1, 3]
    assert answers[0].remark == "ZeroDivisionError: planted"


def test_files_that_cannot_be_written_stay_dirty(harness: Harness) -> None:
    config = harness.root / "config"
    harness.loop.turn(now())
    for file in config.iterdir():
        file.unlink()
    config.rmdir()
    config.write_text("in the way")
    harness.put(heartbeat())
    harness.loop.turn(now())
    assert harness.loop.broker.topics.dirty
    config.unlink()
    harness.loop.turn(now())
    assert not harness.loop.broker.topics.dirty


def change(code: int, ext: dict[str, str], opaque: int = 1) -> RemotingCommand:
    return RemotingCommand.request(code, ext, opaque=opaque)


MAKE = {
    "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}  # fmt: skip


def test_a_change_that_is_not_on_disk_is_not_answered_as_if_it_were(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    config = harness.root / "config"
    kept = harness.root / "kept"
    harness.loop.turn(now())
    for topic in ("Once", "Twice"):
        config.rename(kept)
        config.write_text("in the way")
        harness.put(change(RequestCode.UPDATE_AND_CREATE_TOPIC, MAKE | {"topic": topic}, opaque=1))
        harness.put(change(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}, opaque=2))
        harness.put(change(RequestCode.UPDATE_AND_CREATE_TOPIC, MAKE | {"topic": "a b"}, opaque=3))
        harness.put(heartbeat())
        answers = {answer.opaque: answer for answer in harness.answers() if answer.is_response}
        assert {opaque: answer.code for opaque, answer in answers.items()} == {1: 1, 2: 1, 3: 29, 8: 0}
        assert "a restart may lose it" in (answers[2].remark or "")
        assert "File exists" in (answers[2].remark or "")
        harness.put(change(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}))
        assert [answer.code for answer in harness.answers()] == [1], "nothing to change, and still not on disk"
        said = [line.split(": ")[2] for line in capsys.readouterr().err.splitlines() if "config files" in line]
        assert said == ["config files"]
        config.unlink()
        kept.rename(config)
        harness.put(change(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}))
        assert [answer.code for answer in harness.answers()] == [0]
        assert "config files are written again" in capsys.readouterr().err


def test_a_made_topic_that_is_not_on_disk_says_so_when_the_name_server_knows_it(harness: Harness) -> None:
    registrar = with_name_server(harness)
    registrar.ended.append(Outcome("ns:1", None))
    harness.loop.turn(now())
    config = harness.root / "config"
    config.rename(harness.root / "kept")
    config.write_text("in the way")
    harness.put(change(RequestCode.UPDATE_AND_CREATE_TOPIC, MAKE))
    assert harness.answers() == []
    registrar.ended.append(Outcome("ns:1", None))
    assert [answer.code for answer in harness.answers()] == [1]


def test_a_defect_in_saving_is_told_and_ends_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Iterator[None]:
        yield
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(harness.loop._persistence, "saving_tables", broken)
        harness.put(heartbeat())
        harness.loop.turn(now())
        harness.loop.turn(now())
    assert capsys.readouterr().err.count("ZeroDivisionError: planted") == 1
    assert harness.loop.broker.topics.dirty
    harness.loop.turn(now())
    assert not harness.loop.broker.topics.dirty


def test_what_peers_send_does_not_use_up_the_lines_of_our_own_faults(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise OSError(f"planted {arguments}")

    began = now()
    harness.loop.turn(began)
    monkeypatch.setattr(harness.loop.broker.locks, "lock", broken)
    capsys.readouterr()
    for number in range(1200):
        harness.put(json_frame(f'{{"code":"x{number}"}}'))
        harness.put(RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=b'{"clientId":"%d","mqSet":[{}]}' % number))
        harness.loop.turn(began)
        harness.verdicts()
    said = capsys.readouterr().err
    assert said.count("junk from 127.0.0.9: header field code = 'x") == PEER_LINES_PER_MINUTE
    assert said.count("request 41 failed:") == PEER_LINES_PER_MINUTE
    monkeypatch.setattr(harness.loop.broker.offsets, "drain", lambda now_ms: broken("disk"))
    harness.loop.turn(began + TICK_MS)
    assert "consumer offsets: planted ('disk',)" in capsys.readouterr().err
    harness.put(json_frame('{"code":"late"}'))
    harness.loop.turn(began + 60_000)
    assert (
        f"'late' is not an integer; {1200 - PEER_LINES_PER_MINUTE} more lines were dropped" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("first", "spoken"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS hello"),
        (struct.pack(">i", 17 << 20), "frame length 17825792 over 16777212"),
    ],
)
def test_junk_that_a_reader_reports_gets_one_line(
    harness: Harness, capsys: pytest.CaptureFixture[str], first: bytes, spoken: str
) -> None:
    harness.plane.header.settings.frame_bytes_max = 16 << 20
    for _ in range(30):
        harness.put(first, kind=lib.RMQ_INBOX_JUNK)
    assert harness.answers() == []
    assert capsys.readouterr().err.count(f"junk from 127.0.0.9: {spoken}") == 1


def test_a_refusal_gets_one_line_and_is_reported(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    harness.loop.broker.config = changed(harness.loop.broker.config, {"adminAddresses": "192.0.2.1"})
    for pending in range(30):
        harness.put(RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4"), pending)
    assert {answer.code for answer in harness.answers()} == {ResponseCode.NO_PERMISSION}
    assert capsys.readouterr().err.count("code 25 (UPDATE_BROKER_CONFIG) from host 127.0.0.9 is refused") == 1
    harness.loop.turn(now() + 10 * TICK_MS)
    report = read_report(harness.plane.name)
    assert report is not None
    assert dict(report.refused) == {"change admin": 30, "replication": 0}


def test_changed_settings_are_told_in_bounded_lines(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    began = now()
    for number in range(2 * PEER_LINES_PER_MINUTE):
        harness.put(
            RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMsgsNumBatch=%d" % (number + 1))
        )
    harness.put(RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerRocketProperty=1"))
    while harness.loop.turn(began):
        pass  # a turn ends at its time limit
    said = capsys.readouterr().err
    assert "request 25 from 127.0.0.9:4567 sets maxMsgsNumBatch = 1 (was 64)" in said
    assert said.count("request 25 from") == PEER_LINES_PER_MINUTE
    harness.put(RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"sendMessageThreadPoolNums=7"))
    harness.loop.turn(began + 60_000)
    said = capsys.readouterr().err
    assert "sets sendMessageThreadPoolNums: no effect in RingMQ" in said
    assert f"{PEER_LINES_PER_MINUTE} more lines were dropped" in said


def test_a_clean_stop_answers_and_saves(harness: Harness) -> None:
    harness.put(RemotingCommand.request(9999, opaque=5))
    harness.loop.broker.offsets.put("G", "TBW102", 0, 6, now())
    harness.loop.close(now())
    assert [verdict[0] for verdict in harness.verdicts()] == [lib.RMQ_VERDICT_SEND]
    assert "0:6" in (harness.root / "config" / "consumerOffset.json").read_text()


@pytest.mark.timed
def test_parking_ends_at_the_bell_and_at_the_next_tick(harness: Harness) -> None:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    harness.plane.set_event_fds({lib.RMQ_ROLE_CONTROL: descriptor})
    harness.loop.turn(now())
    began = time.monotonic()
    harness.loop.park(now())
    assert time.monotonic() - began < 5
    harness.put(RemotingCommand.request(9999))
    began = time.monotonic()
    harness.loop.park(now())
    assert time.monotonic() - began < 0.09, "work that is there is not slept over"
    os.close(descriptor)


def test_a_commit_of_an_older_pull_never_undoes_a_later_request(harness: Harness) -> None:
    """The pull's offset lies in the commit ring while the client's UPDATE_CONSUMER_OFFSET is in the inbox."""
    broker = harness.loop.broker
    harness.put(heartbeat())
    harness.loop.turn(now())
    harness.verdicts()
    group, slot = harness.plane.group_find("G"), broker.tables.slot("TBW102", 0)
    assert group is not None
    assert slot is not None
    ring = harness.plane.header.ports.port[READER].commit
    entry = ffi.cast("struct rmq_offset_commit *", harness.plane.struct.base + ring.slots_at)[ring.head % ring.capacity]
    entry.group_id, entry.queue_slot, entry.offset = group, slot, 10
    ring.head += 1
    ext = {"consumerGroup": "G", "topic": "TBW102", "queueId": "0", "commitOffset": "12"}
    harness.put(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext))
    assert [answer.code for answer in harness.answers()] == [0]
    harness.loop.turn(now() + 1000)
    assert broker.offsets.get("G", "TBW102", 0) == 12


def test_offsets_of_queues_that_no_record_can_name_are_kept_beside_the_plane(harness: Harness) -> None:
    """A master's table of offsets may hold any number."""
    offsets = harness.loop.broker.offsets
    for queue_id in (1 << 31, 1 << 40, -1):
        offsets.put("G", "TBW102", queue_id, 5, now())
        assert offsets.get("G", "TBW102", queue_id) == 5


class ScriptedRegistrar:
    """Takes calls; the test says how they end."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, RemotingCommand, bool]] = []
        self.looks: list[tuple[str, RemotingCommand, bool]] = []
        self.ended: list[Outcome] = []

    def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        self.calls.append((address, command, False))

    def call_if_connected(self, address: str, commands: Sequence[RemotingCommand], timeout_ms: int) -> None:
        for command in commands:
            kept = self.looks if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else self.calls
            kept.append((address, command, True))

    def outcomes(self) -> list[Outcome]:
        ended, self.ended = self.ended, []
        return ended

    def lost(self) -> list[str]:
        return []

    def close(self, timeout_s: float) -> None:
        pass


def test_a_made_topic_is_answered_when_the_name_server_knows_it(harness: Harness, tmp_path: Path) -> None:
    broker = harness.loop.broker
    broker.config = changed(broker.config, {"namesrvAddr": "ns:1"})
    registrar = ScriptedRegistrar()
    harness.loop = ControlLoop(harness.plane, broker, Persistence(tmp_path, saved_by(broker)), registrar)  # type: ignore[arg-type]
    harness.loop.turn(now())
    assert [if_connected for _, _, if_connected in registrar.calls] == [False]
    registrar.ended.append(Outcome("ns:1", None))
    ext = {
        "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip
    harness.loop.turn(now())
    harness.put(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))
    assert harness.answers() == []
    address, command, if_connected = registrar.calls[-1]
    assert (address, command.code, command.ext_fields, if_connected) == ("ns:1", 217, {"topic": "Made"}, True)
    registrar.ended.append(Outcome("ns:1", None))
    assert [answer.code for answer in harness.answers()] == [0]
    harness.put(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext | {"perm": "4"}))
    assert harness.answers() == []
    harness.loop.turn(now() + 3100)
    assert harness.verdicts(), "a name server that does not answer is not waited for longer"


def announced_topics(command: RemotingCommand) -> set[str]:
    assert command.code == RequestCode.REGISTER_BROKER
    return set(read_object(command.body, "x")["topicConfigSerializeWrapper"]["topicConfigTable"])


def test_a_name_server_that_refuses_single_topics_gets_the_whole_table(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    registrar = with_name_server(harness)
    registrar.ended.append(Outcome("ns:1", None, RemotingCommand(0), RequestCode.REGISTER_BROKER))
    harness.loop.turn(now())
    for topic in ("First", "Second"):
        ext = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }  # fmt: skip
        harness.put(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))
        assert harness.answers() == []
        if topic == "First":
            error = "answered 3: request type 217 not supported"
            registrar.ended.append(Outcome("ns:1", error, RemotingCommand(3), 217))
            assert harness.answers() == []
        assert {topic, "TBW102"} <= announced_topics(registrar.calls[-1][1])
        registrar.ended.append(Outcome("ns:1", None, RemotingCommand(0), RequestCode.REGISTER_BROKER))
        assert [answer.code for answer in harness.answers()] == [0]
    assert [command.code for _, command, _ in registrar.calls] == [103, 217, 103, 103]
    assert capsys.readouterr().err.count("refuses a single topic (request 217), answered 3: request type 217") == 1


def test_another_broker_of_the_same_name_is_told_and_reported(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    registrar = with_name_server(harness)
    assert [command.ext_fields["topic"] for _, command, _ in registrar.looks] == ["wire-a"]
    route = TopicRouteData(broker_datas=[BrokerData("DefaultCluster", "wire-a", {0: "10.0.0.2:10911"})])
    answer = RemotingCommand(0, body=route.encode(standard_json=True))
    registrar.ended.append(Outcome("ns:1", None, answer, RequestCode.GET_ROUTEINFO_BY_TOPIC))
    registrar.ended.append(Outcome("ns:1", None, RemotingCommand(0), RequestCode.REGISTER_BROKER))
    for ticks in (10, 100):
        harness.loop.turn(now() + ticks * TICK_MS)
    said = capsys.readouterr().err
    assert said.count("another broker is registered as wire-a:0 at 10.0.0.2:10911") == 1
    report = read_report(harness.plane.name)
    assert report is not None
    assert [(server.registered, server.other) for server in report.name_servers] == [(True, "10.0.0.2:10911")]


def test_a_deleted_topic_is_announced_by_the_whole_table(harness: Harness) -> None:
    registrar = with_name_server(harness)
    registrar.ended.append(Outcome("ns:1", None))
    harness.loop.broker.topics.put(TopicConfig("Gone"), now())
    harness.loop.turn(now())
    assert registrar.calls[-1][1].ext_fields == {"topic": "Gone"}
    registrar.ended.append(Outcome("ns:1", None))
    harness.loop.turn(now())
    harness.put(RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}))
    harness.loop.turn(now())
    announced = announced_topics(registrar.calls[-1][1])
    assert "Gone" not in announced and "TBW102" in announced


def test_a_topic_that_is_deleted_before_its_turn_makes_the_whole_table_go(harness: Harness) -> None:
    registrar = with_name_server(harness)
    harness.loop.broker.topics.put(TopicConfig("Gone"), now())
    harness.loop.turn(now())
    harness.loop.broker.topics.delete("Gone", now())
    registrar.ended.append(Outcome("ns:1", None))
    harness.loop.turn(now())
    assert "TBW102" in announced_topics(registrar.calls[-1][1])


def test_subscriptions_of_the_process_before_are_withdrawn(harness: Harness) -> None:
    data = ConsumerData("G", subscriptions=[SubscriptionData("TBW102")])
    harness.put(RemotingCommand.request(RequestCode.HEART_BEAT, body=HeartbeatData("c", consumers=[data]).encode()))
    harness.loop.turn(now())
    group, topic = harness.plane.group_find("G"), harness.plane.topic_find("TBW102")
    copy = ffi.new("struct rmq_subscription_copy *")
    lib.rmq_subscription_get(harness.plane.struct, group, topic, copy)
    assert copy.kind == lib.RMQ_SUBSCRIPTION_ALL
    harness.plane.subscriptions_clear()
    lib.rmq_subscription_get(harness.plane.struct, group, topic, copy)
    assert copy.kind == lib.RMQ_SUBSCRIPTION_NONE


def test_a_record_whose_writer_stands_still_is_not_spun_on(harness: Harness) -> None:
    harness.loop.turn(now())
    inbox = harness.plane.header.asks.answerer[0].inbox
    record = ffi.cast(
        "struct rmq_inbox_record *", harness.plane.struct.base + inbox.slots_at + inbox.head % inbox.capacity
    )
    harness.plane.role(lib.RMQ_ROLE_READ).claim_position = inbox.head
    record.length = -64  # claimed, and not filled
    inbox.head += 64
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    harness.plane.set_event_fds({lib.RMQ_ROLE_CONTROL: descriptor})
    began = time.process_time()
    ended = time.monotonic() + 0.3
    rounds = 0
    while time.monotonic() < ended:
        assert not harness.loop.turn(now())
        harness.loop.park(now())
        rounds += 1
    os.close(descriptor)
    assert rounds < 400, "about one look per millisecond"
    assert time.process_time() - began < 0.25


def with_name_server(harness: Harness) -> ScriptedRegistrar:
    registrar = ScriptedRegistrar()
    harness.loop.broker.config = changed(harness.loop.broker.config, {"namesrvAddr": "ns:1"})
    persistence = Persistence(harness.root, saved_by(harness.loop.broker))
    harness.loop = ControlLoop(harness.plane, harness.loop.broker, persistence, registrar)  # type: ignore[arg-type]
    harness.loop.turn(now())
    return registrar


def test_a_name_server_that_fails_again_is_told_again(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    registrar = with_name_server(harness)
    for error in ("refused", "refused", None, "refused"):
        registrar.ended.append(Outcome("ns:1", error))
        harness.loop.turn(now())
    said = [line.removeprefix("ringmq: control: ") for line in capsys.readouterr().err.splitlines()]
    assert said == ["name server ns:1: refused", "name server ns:1 answers again", "name server ns:1: refused"]


def test_the_registration_period_is_live(harness: Harness) -> None:
    registrar = with_name_server(harness)
    harness.loop.broker.apply_config(changed(harness.loop.broker.config, {"registerNameServerPeriod": "10000"}))
    registrar.ended.append(Outcome("ns:1", None))
    began = now()
    harness.loop.turn(began)
    due = harness.loop._registrar._registration.servers["ns:1"].next_ms
    assert due == began + 10_000


def test_a_fault_is_told_in_words(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    harness.plane.watermarks.store_fault_errno = 28
    for fault in (lib.RMQ_FAULT_CREATE_FILE, lib.RMQ_FAULT_FSYNC, lib.RMQ_FAULT_NONE):
        harness.plane.watermarks.store_fault = fault
        harness.loop.turn(now() + 1000 * (fault + 1))
        harness.loop._next_tick_ms = 0
    said = capsys.readouterr().err.splitlines()
    assert "the next log file cannot be made" in said[0] and "No space left" in said[0]
    assert "fsync" in said[1] and "docs/operating.md" in said[1]
    assert said[2].endswith("the store accepts writes again")


def told_topics(harness: Harness, body: bytes, kind: int = lib.RMQ_INBOX_TOPICS) -> str:
    """What control tells a service that asks for topics."""
    asker = Asker(harness.plane, lib.RMQ_ROLE_SERVICES, lib.RMQ_ROLE_CONTROL)
    assert asker.ask(kind, 7, body)
    harness.loop.turn(10_000)
    (told,) = asker.answers()
    assert told.pending == 7
    return told.payload.decode()


def test_topics_that_a_service_asks_for_are_made_where_they_are_not_there(harness: Harness) -> None:
    topics = harness.loop.broker.topics
    topics.put(TopicConfig("There", 8, 8), 10_000)
    wanted = [TopicConfig("rmq_sys_one", 4, 4, 2), TopicConfig("There", 1, 1)]
    assert told_topics(harness, write_body({"topics": [config.to_json() for config in wanted]})) == ""
    assert harness.plane.topic_find("rmq_sys_one") is not None, "the answer comes behind the entry in the plane"
    there = topics.get("There")
    assert there is not None and there.read_queue_nums == 8, "an operator's settings stay"


def test_topics_that_cannot_be_made_are_told_with_the_cause(harness: Harness) -> None:
    too_many = write_body({"topics": [TopicConfig("One", 70_000, 4).to_json()]})
    assert "readQueueNums = 70000 is outside" in told_topics(harness, too_many)
    assert told_topics(harness, b"not json") and harness.plane.topic_find("One") is None


def test_topics_that_are_not_on_disk_are_not_told_as_made(harness: Harness) -> None:
    """A start would not know a topic in which the service has decided something."""
    (harness.root / "config").write_text("in the way")
    told = told_topics(harness, write_body({"topics": [TopicConfig("rmq_sys_one", 4, 4, 2).to_json()]}))
    assert told == "config files cannot be written: a restart would lose the topics"


@pytest.mark.parametrize(
    ("settings", "asked", "made"),
    [
        (SubscriptionGroupConfig("G", retry_queue_nums=3), RetryAsk("G"), {"%RETRY%G": 3}),
        (None, RetryAsk("G", dead=True), {"%RETRY%G": 1, "%DLQ%G": 1}),
        (SubscriptionGroupConfig("G", retry_queue_nums=0), RetryAsk("G", dead=True), {}),
        (None, RetryAsk("no group"), {}),
    ],
)
def test_topics_of_a_retry_are_made(
    harness: Harness, settings: SubscriptionGroupConfig | None, asked: RetryAsk, made: dict[str, int]
) -> None:
    broker = harness.loop.broker
    if settings is not None:
        broker.groups.put(settings, 10_000)
    assert told_topics(harness, asked.encode(), lib.RMQ_INBOX_RETRY) == ""
    names = [f"{prefix}{asked.group}" for prefix in ("%RETRY%", "%DLQ%")]
    found = {name: broker.topics.get(name) for name in names}
    assert {name: config.write_queue_nums for name, config in found.items() if config} == made
    assert all(config.perm == 6 for config in found.values() if config)
    entry = harness.plane.group_find("G")
    if made:
        assert entry is not None and int(harness.plane.group(entry).config) >> 8 & 0xFF == made["%RETRY%G"]


def told_check(harness: Harness, payload: bytes) -> str:
    """Control's answer to a service that sends a check."""
    asker = Asker(harness.plane, lib.RMQ_ROLE_SERVICES, lib.RMQ_ROLE_CONTROL)
    assert asker.ask(lib.RMQ_INBOX_CHECK, 7, payload)
    harness.loop.turn(10_000)
    (told,) = asker.answers()
    assert told.pending == 7
    return told.payload.decode()


def check_frame(number: int) -> bytes:
    ext = {"commitLogOffset": str(number)}
    return encode_frame(RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, ext, b"half", oneway=True))


def test_checks_go_to_the_clients_of_the_group_in_turn(harness: Harness) -> None:
    for number, group in enumerate(("PG", "PG", "Other"), 1):
        body = HeartbeatData(f"c{number}", producer_groups=[group]).encode()
        harness.put(RemotingCommand.request(RequestCode.HEART_BEAT, body=body), pending=number, connection=number)
    assert [answer.code for answer in harness.answers()] == [0, 0, 0]
    for number in range(4):
        assert told_check(harness, ProducerCheck("PG", check_frame(number)).encode()) == ""
    sent = harness.verdicts()
    connections = [connection for _, connection, _, _, _ in sent]
    assert connections[:2] == connections[2:] and sorted(connections) == [1, 1, 2, 2]
    assert {(kind, pending) for kind, _, pending, _, _ in sent} == {(lib.RMQ_VERDICT_SEND, NONE)}
    commands = [decode_frame(payload) for _, _, _, payload, _ in sent]
    assert [command.ext_fields["commitLogOffset"] for command in commands] == ["0", "1", "2", "3"]
    assert all(command.is_oneway and command.body == b"half" for command in commands)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (ProducerCheck("Nobody", check_frame(0)).encode(), "producer group Nobody has no client"),
        (b"", "a check of 0 bytes names no producer group"), (b"\x00\x01\xff", "codec can't decode"),
        (ProducerCheck("PG", b"\0\0").encode(), "shorter than its 8-byte prefix"),
    ],
)  # fmt: skip
def test_a_check_that_cannot_be_sent_has_a_reason(harness: Harness, payload: bytes, reason: str) -> None:
    assert reason in told_check(harness, payload)
    assert harness.verdicts() == []


def test_a_check_waits_for_a_reader_with_a_long_backlog(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.loop._replies, "backlog_bytes", lambda: BACKLOG_BYTES_LARGE + 1)
    assert "bytes wait for a read worker" in told_check(harness, ProducerCheck("Nobody", check_frame(0)).encode())
