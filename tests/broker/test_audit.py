"""One audit line for each change in control, with its cause and the values before and after."""

import json
import logging
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringmq.broker.handlers.offsets import AUDITED_MAX
from ringmq.broker.requests.request import Request, Slices
from ringmq.ha import handshake
from ringmq.ha.handshake import PeerClaim
from ringmq.ipc import audit
from ringmq.ipc.audit import (
    CHANGES_MAX,
    CLIENT_LINES_PER_MINUTE,
    LINES_PER_MINUTE,
    Actor,
    AuditTrail,
    AuditWriter,
    Kind,
)
from ringmq.ipc.log_lines import Style, format_line
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from tests.broker.fakes import START_MS, Harness, make_harness, peer

PEER = peer(1).address
TOPIC = {
    "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "false",
}  # fmt: skip
Ask = Callable[[Harness], Any]
Expected = tuple[str, str, str, object, object]
"""(kind, name, request, before, after) of a line."""


def group_body(**fields: Any) -> bytes:
    return json.dumps(SubscriptionGroupConfig("G").to_json() | fields).encode()


def topic(harness: Harness, code: int = RequestCode.UPDATE_AND_CREATE_TOPIC, **fields: str) -> Any:
    return harness.ask(code, TOPIC | fields)


def topics(harness: Harness, *names: str) -> Any:
    body = json.dumps({"topicConfigList": [TopicConfig(name, 2, 2).to_json() for name in names]}).encode()
    return harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


def commit(harness: Harness, offset: int, **options: Any) -> Any:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": str(offset)}
    return harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext, **options)


def longer_slave(harness: Harness) -> Any:
    """A slave with four more bytes of log than the master shows a proof of them."""
    log = harness.store.log
    claim = PeerClaim(
        cluster="GoldCluster", broker_name="wire-a", broker_id=1, start_id="1f", min_offset=0,
        max_offset=len(log) + 4, file_bytes=65_536, broker_addr="127.0.0.1:10911", ha_port=5555, room="",
        tail=((0, len(log), zlib.crc32(log)),),
    )  # fmt: skip
    harness.ask(RequestCode.HA_HANDSHAKE, body=handshake.body(claim))
    harness.broker.replication.proof_ended("", 0)
    return harness.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "salvage"})


@pytest.fixture
def harness() -> Iterator[Harness]:
    """A broker with topic T and group G, and offset 7 of queue 1."""
    settings = {"mappedFileSizeCommitLog": "65536", "maxMessageSize": "4194304", "haAllowedNetworks": "127.0.0.0/8"}
    harness = make_harness({**settings, "brokerRole": "SYNC_MASTER"})
    harness.store.log = bytes(5000)
    harness.plane.watermarks.append_offset = 5000
    topic(harness)
    harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group_body())
    harness.broker.offsets.put("G", "T", 1, 7, START_MS)
    harness.broker.topics.put(TopicConfig("%RETRY%G", 1, 1), START_MS)  # as a group with offsets has it
    harness.broker.audit.changes.clear()
    yield harness


def lines(harness: Harness) -> list[Expected]:
    """The fields of the lines since the last call, without the peer: that of the request, or the slave."""
    found = []
    for change in harness.broker.audit.changes:
        fields = change.fields()
        assert fields.pop("peer") == ("127.0.0.1:10911" if fields["request"] == "HA_HANDSHAKE" else PEER)
        found.append(tuple(fields.values()))
    harness.broker.audit.changes.clear()
    return found


CHANGES: dict[str, tuple[Ask, list[Expected]]] = {
    "a new topic": (
        lambda harness: topic(harness, topic="New"),
        [("topic", "New", "UPDATE_AND_CREATE_TOPIC", None, TopicConfig("New", 4, 4).to_json())],
    ),
    "a changed topic": (
        lambda harness: topic(harness, perm="4", writeQueueNums="5"),
        [
            (
                "topic", "T", "UPDATE_AND_CREATE_TOPIC",
                {"perm": 6, "writeQueueNums": 4}, {"perm": 4, "writeQueueNums": 5},
            )
        ],
    ),
    "a list of topics": (
        lambda harness: topics(harness, "A", "B"),
        [
            ("topic", name, "UPDATE_AND_CREATE_TOPIC_LIST", None, TopicConfig(name, 2, 2).to_json())
            for name in ("A", "B")
        ],
    ),
    "a deleted topic": (
        lambda harness: harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        [
            ("offsets", "T@*", "DELETE_TOPIC_IN_BROKER", ["G"], None),
            ("topic", "T", "DELETE_TOPIC_IN_BROKER", TopicConfig("T", 4, 4).to_json(), None),
        ],
    ),
    "a changed group": (
        lambda harness: harness.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group_body(consumeEnable=False)
        ),
        [
            (
                "group", "G", "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
                {"consumeEnable": True}, {"consumeEnable": False},
            )
        ],
    ),
    "a group of a client": (
        lambda harness: harness.join("Joined", {}),
        [
            ("group", "Joined", "HEART_BEAT", None, SubscriptionGroupConfig("Joined").to_json()),
            ("topic", "%RETRY%Joined", "HEART_BEAT", None, TopicConfig("%RETRY%Joined", 1, 1).to_json()),
        ],
    ),
    "a deleted group": (
        lambda harness: harness.ask(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"}
        ),
        [
            ("group", "G", "DELETE_SUBSCRIPTIONGROUP", SubscriptionGroupConfig("G").to_json(), None),
            ("offsets", "*@G", "DELETE_SUBSCRIPTIONGROUP", ["T"], None),
        ],
    ),
    "a forbidden topic": (
        lambda harness: harness.ask(
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "G", "topic": "T", "readable": "false"}
        ),
        [("permission", "T@G", "UPDATE_AND_GET_GROUP_FORBIDDEN", {"readable": True}, {"readable": False})],
    ),
    "a reset": (
        lambda harness: harness.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "1", "offset": "-1"},
        ),
        [("offsets", "T@G", "INVOKE_BROKER_TO_RESET_OFFSET", {"1": 7}, {"1": 0})],
    ),
    "offsets of another group": (
        lambda harness: harness.ask(
            RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "true"}
        ),
        [("offsets", "T@H", "CLONE_GROUP_OFFSET", {}, {"1": 7})],
    ),
    "an offset that an operator sets": (
        lambda harness: commit(harness, 3),
        [("offsets", "T@G", "UPDATE_CONSUMER_OFFSET", {"1": 7}, {"1": 3})],
    ),
    "a configuration": (
        lambda harness: harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\nmaxMsgsNumBatch=64"),
        [("configuration", "wire-a", "UPDATE_BROKER_CONFIG", {"brokerPermission": "6"}, {"brokerPermission": "4"})],
    ),
    "a hold": (
        longer_slave,
        [
            ("hold", "sends", "HA_HANDSHAKE", "accepted", "refused"),
            (
                "hold", "slave 1 (127.0.0.1:10911)", "HA_DECIDE",
                {
                    "brokerId": 1, "address": "127.0.0.1:10911", "commonOffset": 5000, "masterOffset": 5000,
                    "slaveOffset": 5004,
                },
                {"choice": "salvage"},
            ),
            ("hold", "sends", "HA_DECIDE", "refused", "accepted"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_has_one_line(harness: Harness, name: str) -> None:
    ask, expected = CHANGES[name]
    assert ask(harness).code == 0
    assert lines(harness) == expected
    if name in ("a changed topic", "a list of topics", "a forbidden topic", "a configuration", "a reset"):
        ask(harness)
        assert lines(harness) == [], "nothing differs at the second time"


REFUSED: dict[str, Ask] = {
    "a bad topic": lambda harness: topic(harness, topic="a b"),
    "a topic list with a bad name": lambda harness: topics(harness, "A", "a b"),
    "a group out of range": lambda harness: harness.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group_body(retryQueueNums=-1)
    ),
    "a setting out of range": lambda harness: harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMsgsNumBatch=0"),
    "an unknown group": lambda harness: harness.ask(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "T", "group": "None", "timestamp": "-1", "isForce": "true", "queueId": "1", "offset": "-1"},
    ),
    "no slave that waits": lambda harness: harness.ask(RequestCode.HA_DECIDE, {"brokerId": "1", "choice": "salvage"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_request_has_no_line(harness: Harness, name: str) -> None:
    assert REFUSED[name](harness).code != 0
    assert lines(harness) == []


def test_commits_of_members_and_repeated_ones_have_no_line(harness: Harness) -> None:
    harness.join("G", {"T": "*"}, connection=peer(2))
    harness.broker.audit.changes.clear()
    assert commit(harness, 8, connection=peer(2)).code == 0
    commit(harness, 9, oneway=True)
    assert lines(harness) == []
    commit(harness, 10)
    commit(harness, 11)
    harness.now_ms += 60_001
    commit(harness, 12)
    assert [after for *_, after in lines(harness)] == [{"1": 10}, {"1": 12}]


def test_a_reset_of_many_queues_names_some(harness: Harness) -> None:
    topic(harness, topic="Wide", readQueueNums="100", writeQueueNums="100")
    harness.broker.audit.changes.clear()
    ext = {"topic": "Wide", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "-1", "offset": "-1"}
    assert harness.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext).code == 0
    ((*_, before, after),) = lines(harness)
    assert isinstance(before, dict) and isinstance(after, dict)
    assert len(before) == AUDITED_MAX and after["more"] == 100 - AUDITED_MAX


def test_the_cause_ends_with_its_step(harness: Harness) -> None:
    """Work of the broker between two steps of a long request is not that request's."""
    body = json.dumps({"topicConfigList": [TopicConfig(f"N{n}", 2, 2).to_json() for n in range(100)]}).encode()
    command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
    begun = harness.handlers.begin(Request(command, peer(1), START_MS))
    assert isinstance(begun, Slices)
    while not harness.broker.audit.changes:
        next(begun.steps)
    made = len(harness.broker.audit.changes)
    harness.broker.topics.put(TopicConfig("Between", 1, 1), START_MS)
    assert harness.broker.audit.changes[made].actor == audit.BROKER.actor
    for _ in begun.steps:
        pass
    actors = {change.actor for change in harness.broker.audit.changes if change.name != "Between"}
    assert actors == {Actor(PEER, "UPDATE_AND_CREATE_TOPIC_LIST")}
    assert len(harness.broker.audit.changes) == 101


def trail_of(count: int) -> AuditTrail:
    trail = AuditTrail()
    for number in range(count):
        trail.add(Kind.TOPIC, f"T{number}", None, number)
    return trail


def test_the_lines_of_a_minute_are_bounded(log_text: Callable[[], str]) -> None:
    trail = trail_of(CHANGES_MAX + 5)
    writer = AuditWriter(trail)
    writer.turn(0)
    assert log_text().count("audit") == CHANGES_MAX
    trail.changes = trail_of(CHANGES_MAX).changes
    writer.turn(59_999)
    assert log_text().count("audit") == LINES_PER_MINUTE - CHANGES_MAX
    writer.turn(60_000)
    left = 2 * CHANGES_MAX + 5 - LINES_PER_MINUTE
    assert log_text() == f"audit: {left} changes of the last minutes have no line, they are too many\n"
    writer.turn(120_000)
    assert log_text() == ""


def test_a_turn_writes_some_lines_and_later_turns_the_rest(log_text: Callable[[], str]) -> None:
    writer = AuditWriter(trail_of(25))
    written = []
    while writer.is_waiting:
        writer.turn(0, 10)
        written.append(log_text().count("audit"))
    assert written == [10, 10, 5]


def test_entries_that_clients_make_leave_the_lines_of_operators(harness: Harness, log_text: Callable[[], str]) -> None:
    writer = AuditWriter(harness.broker.audit)
    for number in range(CLIENT_LINES_PER_MINUTE):
        harness.join(f"G{number}", {})
    writer.turn(0)
    assert log_text().count("audit") == CLIENT_LINES_PER_MINUTE
    topic(harness, topic="New")
    writer.turn(1)
    assert log_text().count("audit") == 1
    writer.turn(60_000)
    assert f"audit: {CLIENT_LINES_PER_MINUTE} changes" in log_text(), "their retry topics"


def test_secrets_have_no_place_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    trail = AuditTrail()
    before = {"secretKey": "hidden-1", "url": "http://user:hidden-2@host/", "perm": 6}
    trail.add(Kind.CONFIGURATION, "b", before, before | {"secretKey": "hidden-3", "perm": 4, "note": "token=hidden-4"})
    with caplog.at_level(logging.INFO, "ringmq"):
        AuditWriter(trail).turn(0)
    (record,) = caplog.records
    for is_json in (False, True):
        line = format_line(Style(is_json), 0, record.levelno, "control", record.getMessage(), record.__dict__["fields"])
        assert "hidden-" not in line and "perm" in line and line.count("(hidden)") == 3


def test_the_line(harness: Harness) -> None:
    topic(harness, perm="4")
    (change,) = harness.broker.audit.changes
    assert format_line(Style(), START_MS, logging.INFO, "control", "audit", change.fields()).partition("Z ")[2] == (
        f'INFO control audit kind=topic name=T peer={PEER} request=UPDATE_AND_CREATE_TOPIC before={{"perm":6}} '
        'after={"perm":4}'
    )
