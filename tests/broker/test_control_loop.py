"""Control's loop over a real plane: records in, verdicts out, generations, backlog, saving, log lines, a clean stop."""

import os
import re
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from ringmq.broker.config.broker_config import property_table
from ringmq.broker.config.relations import changed
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.broker.control import PEER_LINES_PER_MINUTE, STORE_LOOK_MS, TICK_MS
from ringmq.broker.control_report import read_report
from ringmq.broker.outbound_calls import Outcome
from ringmq.broker.requests.slow_requests import DROPPED_COUNTER
from ringmq.ipc.asks import Inbox
from ringmq.ipc.plane import NONE
from ringmq.native import ffi, lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData
from ringmq.remoting.subscription import SubscriptionData
from tests.broker.control_kit import READER, Harness, harness, now, with_name_server
from tests.broker.fakes import FakeStore
from tests.speed import WALL, allowed

__all__ = ["harness"]


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
    harness: Harness, log_text: Callable[[], str]
) -> None:
    ext = {"a": "P", "b": "Late", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    harness.put(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100), pending=2, cut=100, age_ms=5000)
    harness.put(RemotingCommand.request(9999), age_ms=5000)
    harness.put(RemotingCommand.request(9998), age_ms=1)
    for _ in range(12):
        harness.put(RemotingCommand.request(9997), age_ms=5000)
    harness.loop.turn(now())
    lines = [line for line in log_text().splitlines() if "slow request" in line]
    assert len(lines) == 10
    assert re.match(r"slow request: 5\d{3}\.\d ms, code 9999, ", lines[0])
    assert "from 127.0.0.9:4567" in lines[0] and not [line for line in lines if "9998" in line]
    assert harness.plane.role(lib.RMQ_ROLE_CONTROL).counters[DROPPED_COUNTER] == 3
    harness.loop.broker.apply_config(changed(harness.loop.broker.config, {"ringmqSlowRequestMs": "0"}))
    harness.put(RemotingCommand.request(9999), age_ms=5000)
    harness.loop.turn(now() + 2000)
    assert "slow request" not in log_text()


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


@pytest.mark.parametrize("topic", ['"\\q"', NESTED])
@pytest.mark.parametrize(
    ("opaque", "verdict"),
    [
        ("", lib.RMQ_VERDICT_CLOSE),
        ('"opaque":79,', lib.RMQ_VERDICT_SEND),
        ('"opaque":79,"flag":2,', lib.RMQ_VERDICT_DROP),
    ],
)
def test_a_header_that_does_not_decode_costs_its_connection_only_without_an_opaque(
    harness: Harness, topic: str, opaque: str, verdict: int
) -> None:
    text = f'{{{opaque}"code":353,"extFields":{{"group":"G","topic":{topic},"readable":"false"}}}}'
    harness.put(json_frame(text), pending=5)
    harness.put(RemotingCommand.request(9999), pending=6)
    while harness.loop.turn(now()):  # a slow machine ends the time of a turn behind the first request
        pass
    verdicts = harness.verdicts()
    kinds = [(kind, pending) for kind, _, pending, _, _ in verdicts]
    assert kinds == [(verdict, 5), (lib.RMQ_VERDICT_SEND, 6)]
    if verdict == lib.RMQ_VERDICT_SEND:
        answer = decode_frame(verdicts[0][3])
        assert (answer.code, answer.opaque) == (1, 79) and answer.remark
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
        harness.loop.broker.topics.put(TopicConfig(topic, 1, 1), now())
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

    monkeypatch.setattr(harness.loop.broker.locks, "is_any_live", broken)
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
    harness: Harness, log_text: Callable[[], str]
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
        said = [line.split(": ")[0] for line in log_text().splitlines() if "config files" in line]
        assert said == ["config files"]
        config.unlink()
        kept.rename(config)
        harness.put(change(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}))
        assert [answer.code for answer in harness.answers()] == [0]
        assert "config files are written again" in log_text()


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
    harness: Harness, monkeypatch: pytest.MonkeyPatch, log_text: Callable[[], str]
) -> None:
    def broken() -> Iterator[None]:
        yield
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(harness.loop._persistence, "saving_tables", broken)
        harness.put(heartbeat())
        harness.loop.turn(now())
        harness.loop.turn(now())
    assert log_text().count("ZeroDivisionError: planted") == 1
    assert harness.loop.broker.topics.dirty
    harness.loop.turn(now())
    assert not harness.loop.broker.topics.dirty


def test_what_peers_send_does_not_use_up_the_lines_of_our_own_faults(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, log_text: Callable[[], str]
) -> None:
    def broken(*arguments: object) -> None:
        raise OSError(f"planted {arguments}")

    began = now()
    harness.loop.turn(began)
    monkeypatch.setattr(harness.loop.broker.locks, "is_any_live", broken)
    log_text()
    for number in range(1200):
        harness.put(json_frame(f'{{"code":"x{number}"}}'))
        harness.put(RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=b'{"consumerGroup":"%d"}' % number))
        harness.loop.turn(began)
        harness.verdicts()
    said = log_text()
    assert said.count("junk from 127.0.0.9: header field code = 'x") == PEER_LINES_PER_MINUTE
    assert said.count("request 41 failed:") == PEER_LINES_PER_MINUTE
    monkeypatch.setattr(harness.loop.broker.offsets, "drain", lambda now_ms: broken("disk"))
    harness.loop.turn(began + TICK_MS)
    assert "consumer offsets: planted ('disk',)" in log_text()
    harness.put(json_frame('{"code":"late"}'))
    harness.loop.turn(began + 60_000)
    assert f"'late' is not an integer; {1200 - PEER_LINES_PER_MINUTE} more lines were dropped" in log_text()


@pytest.mark.parametrize(
    ("first", "spoken"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS hello"),
        (struct.pack(">i", 17 << 20), "frame length 17825792 over 16777212"),
    ],
)
def test_junk_that_a_reader_reports_gets_one_line(
    harness: Harness, log_text: Callable[[], str], first: bytes, spoken: str
) -> None:
    harness.plane.header.settings.frame_bytes_max = 16 << 20
    for _ in range(30):
        harness.put(first, kind=lib.RMQ_INBOX_JUNK)
    assert harness.answers() == []
    assert log_text().count(f"junk from 127.0.0.9: {spoken}") == 1


def test_a_refusal_gets_one_line_and_is_reported(harness: Harness, log_text: Callable[[], str]) -> None:
    harness.loop.broker.config = changed(harness.loop.broker.config, {"adminAddresses": "192.0.2.1"})
    for pending in range(30):
        harness.put(RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4"), pending)
    assert {answer.code for answer in harness.answers()} == {ResponseCode.NO_PERMISSION}
    assert log_text().count("code 25 (UPDATE_BROKER_CONFIG) from host 127.0.0.9 is refused") == 1
    harness.loop.turn(now() + 10 * TICK_MS)
    report = read_report(harness.plane.name)
    assert report is not None
    assert dict(report.refused) == {"change admin": 30, "replication": 0}
    for pending in range(3):
        harness.put(RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4"), pending)
    harness.answers()
    assert "is refused" not in log_text()
    harness.loop.turn(now() + 10 * TICK_MS + 61_000)
    (line,) = [line for line in log_text().splitlines() if "is refused" in line]
    assert line.endswith("; 3 more of this cause")


def test_settings_without_effect_are_told_in_bounded_lines(harness: Harness, log_text: Callable[[], str]) -> None:
    began = now()
    ignored = sorted(STOCK_PROPERTY_NAMES - property_table().keys() - {"brokerConfigPath", "rocketmqHome"})
    for name in ignored[: 2 * PEER_LINES_PER_MINUTE]:
        harness.put(RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"%s=1" % name.encode()))
    while harness.loop.turn(began):
        pass  # a turn ends at its time limit
    said = log_text()
    assert f"request 25 from 127.0.0.9:4567 sets {ignored[0]}: no effect in RingMQ" in said
    assert said.count("request 25 from") == PEER_LINES_PER_MINUTE
    harness.put(RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"sendMessageThreadPoolNums=7"))
    harness.loop.turn(began + 60_000)
    said = log_text()
    assert "sets sendMessageThreadPoolNums: no effect in RingMQ" in said
    assert f"{PEER_LINES_PER_MINUTE} more lines were dropped" in said


def test_a_clean_stop_answers_and_saves(harness: Harness) -> None:
    harness.put(RemotingCommand.request(9999, opaque=5))
    harness.loop.broker.offsets.put("G", "TBW102", 0, 6, now())
    harness.loop.close(now())
    assert [verdict[0] for verdict in harness.verdicts()] == [lib.RMQ_VERDICT_SEND]
    assert "0:6" in (harness.root / "config" / "consumerOffset.json").read_text()


@pytest.mark.timed(cpus=1)
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
    assert time.monotonic() - began < allowed(0.09, WALL), "work that is there is not slept over"
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
    assert time.process_time() - began < allowed(0.25)


def test_a_fault_is_told_in_words(harness: Harness, log_text: Callable[[], str]) -> None:
    harness.plane.watermarks.store_fault_errno = 28
    for fault in (lib.RMQ_FAULT_CREATE_FILE, lib.RMQ_FAULT_FSYNC, lib.RMQ_FAULT_NONE):
        harness.plane.watermarks.store_fault = fault
        harness.loop.turn(now() + 1000 * (fault + 1))
        harness.loop._next_tick_ms = 0
    said = log_text().splitlines()
    assert "the next log file cannot be made" in said[0] and "No space left" in said[0]
    assert "fsync" in said[1] and "docs/operating.md" in said[1]
    assert said[2].endswith("the store accepts writes again")
