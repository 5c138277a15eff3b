"""Asks of workers: topics that have to be there, checks of producers, and replies for requesters."""

import pytest

from ringmq.broker.requests.client_request import ClientRequest
from ringmq.broker.requests.reply_queue import BACKLOG_BYTES_LARGE
from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.ipc.asks import Asker
from ringmq.ipc.plane import NONE
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.heartbeat import HeartbeatData
from ringmq.remoting.json_body import write_body
from tests.broker.control_kit import Harness, harness

__all__ = ["harness"]


def told_topics(harness: Harness, body: bytes, kind: int = lib.RMQ_INBOX_TOPICS) -> str:
    """The answer of control to a service that asks for topics."""
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


def test_a_topic_that_a_service_makes_again_counts_as_its_group(harness: Harness) -> None:
    """Its messages are acknowledged, so the limit of clients does not refuse it."""
    broker, names = harness.loop.broker, harness.loop.broker.client_names
    broker.groups.put(SubscriptionGroupConfig("Own"), 10_000)
    assert told_topics(harness, RetryAsk("Theirs").encode(), lib.RMQ_INBOX_RETRY) == ""
    broker.topics.delete("%RETRY%Theirs", 10_000)
    names.topics_used = limit = names.limit("topic")
    for topic, used in (("%RETRY%Theirs", 1), ("%DLQ%Gone", 2), ("%RETRY%Own", 2), ("rmq_sys_one", 2)):
        assert told_topics(harness, write_body({"topics": [TopicConfig(topic, 1, 1).to_json()]})) == ""
        assert topic in broker.topics
        assert names.topics_used == limit + used


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
        assert told_check(harness, ClientRequest("PG", check_frame(number)).encode()) == ""
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
        (ClientRequest("Nobody", check_frame(0)).encode(), "producer group Nobody has no client"),
        (b"", "a request of 0 bytes names no client"), (b"\x00\x01\xff", "codec can't decode"),
        (ClientRequest("PG", b"\0\0").encode(), "shorter than its 8-byte prefix"),
    ],
)  # fmt: skip
def test_a_check_that_cannot_be_sent_has_a_reason(harness: Harness, payload: bytes, reason: str) -> None:
    assert reason in told_check(harness, payload)
    assert harness.verdicts() == []


def test_a_check_waits_for_a_reader_with_a_long_backlog(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.loop._questions, "backlog_bytes", lambda: BACKLOG_BYTES_LARGE + 1)
    assert "bytes wait for a read worker" in told_check(harness, ClientRequest("Nobody", check_frame(0)).encode())


def reply_frame() -> bytes:
    return encode_frame(RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, {"topic": "R"}, b"reply"))


def told_reply(harness: Harness, payload: bytes) -> list[str]:
    """Control's answers to a service that sends a reply."""
    asker = Asker(harness.plane, lib.RMQ_ROLE_SERVICES, lib.RMQ_ROLE_CONTROL)
    assert asker.ask(lib.RMQ_INBOX_REPLY, 7, payload)
    harness.loop.turn(10_000)
    return [told.payload.decode() for told in asker.answers()]


def register_producer(harness: Harness, client_id: str, connection: int) -> None:
    body = HeartbeatData(client_id, producer_groups=["PG"]).encode()
    harness.put(RemotingCommand.request(RequestCode.HEART_BEAT, body=body), connection=connection)
    assert [answer.code for answer in harness.answers()] == [0]


@pytest.mark.parametrize(("code", "words"), [(0, ""), (1, "push reply message to c1fail. It has answered 1: no room")])
def test_a_reply_goes_to_the_newest_connection_of_its_client(harness: Harness, code: int, words: str) -> None:
    for connection, client_id in enumerate(("c1", "c1", "c2"), 1):
        register_producer(harness, client_id, connection)
    assert told_reply(harness, ClientRequest("c1", reply_frame()).encode()) == [], "it waits for the client"
    ((kind, connection, _, payload, _),) = harness.verdicts()
    pushed = decode_frame(payload)
    assert (kind, connection, pushed.code, pushed.body) == (lib.RMQ_VERDICT_SEND, 2, 326, b"reply")
    harness.put(RemotingCommand.response_to(pushed, code, "no room"), connection=2)
    harness.loop.turn(10_000)
    (told,) = Asker(harness.plane, lib.RMQ_ROLE_SERVICES, lib.RMQ_ROLE_CONTROL).answers()
    assert (told.pending, told.payload.decode()) == (7, words)


def test_a_reply_whose_client_goes_ends_with_it(harness: Harness) -> None:
    register_producer(harness, "c1", 1)
    assert told_reply(harness, ClientRequest("c1", reply_frame()).encode()) == []
    harness.put(b"", connection=1, kind=lib.RMQ_INBOX_CLOSED)
    harness.loop.turn(10_000)
    (told,) = Asker(harness.plane, lib.RMQ_ROLE_SERVICES, lib.RMQ_ROLE_CONTROL).answers()
    assert told.payload.decode() == "push reply message to c1fail. <c1> went away before it answered"
    assert told_reply(harness, ClientRequest("c1", reply_frame()).encode()) == [
        "push reply message fail, channel of <c1> not found."
    ]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (ClientRequest("Nobody", reply_frame()).encode(), "push reply message fail, channel of <Nobody> not found."),
        (b"", "names no client"), (ClientRequest("c1", b"\0\0").encode(), "shorter than its 8-byte prefix"),
    ],
)  # fmt: skip
def test_a_reply_that_cannot_be_sent_has_a_reason(harness: Harness, payload: bytes, reason: str) -> None:
    (told,) = told_reply(harness, payload)
    assert reason in told and harness.verdicts() == []


def test_a_reply_is_refused_while_a_reader_has_a_long_backlog(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.loop._questions, "backlog_bytes", lambda: BACKLOG_BYTES_LARGE + 1)
    (told,) = told_reply(harness, ClientRequest("c1", reply_frame()).encode())
    assert "bytes wait for a read worker" in told
