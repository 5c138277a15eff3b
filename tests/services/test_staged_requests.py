"""What a client is told before a commit is looked at: limits, permissions, topics that control has to make first."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Connection, Outbox, Reply, Wait
from ringmq.broker.requests.turns import SLICE_MS, TurnClock
from ringmq.remoting import json_body, json_text, staged_writes
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError
from ringmq.remoting.staged_writes import COMMITS_TOPIC, STAGED_TOPIC, CommitRequest, StagedChunk
from ringmq.services.staged.commits import ANSWER_WITHIN_MS
from ringmq.services.staged.events import CommitRequested
from ringmq.services.staged.requests import (
    COMMITS_MAX,
    CONNECTION_COMMITS_MAX,
    HOST_COMMITS_MAX,
    WAITING_MAX,
    StagedRequests,
)
from tests.services.kit import CLIENT, NOW, FoundTopics, Maker, client, request_of

BOTH = {STAGED_TOPIC, COMMITS_TOPIC}
COMMIT, DESCRIBE = {"operation": "commit"}, {"operation": "describe"}
BODY = CommitRequest("q", 0, ()).encode()


class Harness:
    """The requests of staged writes over a configuration that tests change."""

    def __init__(self, topics: set[str]) -> None:
        self.config = BrokerConfig(broker_name="b", broker_ip1="10.0.0.1")
        self.topics, self.maker, self.outbox = FoundTopics(set(topics)), Maker(), Outbox()
        self.lines = list[str]()
        self.looks = 0
        """Looks at the clock. A step of a decoder takes a millisecond of it."""
        self.requests = StagedRequests(
            lambda: self.config, cast(Any, self.topics), self.maker, self.outbox, lambda: NOW, self.lines.append,
            TurnClock(self.clock_ns),
        )  # fmt: skip

    def clock_ns(self) -> int:
        self.looks += 1
        return self.looks * 1_000_000

    def ask(self, fields: dict[str, str], body: bytes = b"", connection: Connection = CLIENT) -> Any:
        return self.requests.on_request(request_of(RequestCode.STAGED_WRITES, fields, body, connection=connection))

    def slices(self) -> tuple[CommitRequested | None, int]:
        """The next commit, None if it was refused, and the slices until then."""
        for number in range(1, 1000):
            commit, replies = self.requests.next_commit(), len(self.outbox.effects)
            if commit is not None or replies:
                return commit, number
        raise AssertionError("no end")

    def replies(self) -> list[RemotingCommand]:
        return [effect.command for effect in self.outbox.take() if isinstance(effect, Reply)]


def test_one_commit_more_than_may_wait_is_refused_unread() -> None:
    harness = Harness(BOTH)
    for _ in range(CONNECTION_COMMITS_MAX):
        assert isinstance(harness.ask(COMMIT, BODY), Wait)
    answer = harness.ask(COMMIT, BODY)
    assert answer.code == ResponseCode.SYSTEM_BUSY and "this connection" in answer.remark
    harness = Harness(BOTH)
    for number in range(HOST_COMMITS_MAX):
        assert isinstance(harness.ask(COMMIT, BODY, client(number)), Wait)
    answer = harness.ask(COMMIT, BODY, client(99))
    assert answer.code == ResponseCode.SYSTEM_BUSY and "host 127.0.0.1" in answer.remark
    harness = Harness(BOTH)
    for number in range(COMMITS_MAX):
        assert isinstance(harness.ask(COMMIT, BODY, client(number, f"10.0.0.{number}")), Wait)
    assert harness.ask(COMMIT, BODY, client(1, "10.9.0.1")).code == ResponseCode.SYSTEM_BUSY
    assert harness.slices()[0] is not None
    assert isinstance(harness.ask(COMMIT, BODY, client(1, "10.9.0.1")), Wait)
    assert not harness.replies()


@pytest.mark.parametrize(
    ("attackers", "honest"),
    [
        (["10.0.0.1"] * 8, "10.0.0.1"),
        (["10.0.0.1"] * 8, "10.9.0.1"),
        (["10.0.0.1", "10.0.0.2"] * 4, "10.9.0.1"),
        (["10.0.0.1", "10.0.0.2"] * 4, "10.0.0.2"),
    ],
)
def test_connections_with_many_commits_give_way_to_one_with_few(attackers: list[str], honest: str) -> None:
    """Eight connections of one host or two ask 50 times each, and again whenever they are answered."""
    harness = Harness(BOTH)
    links = [client(number, host) for number, host in enumerate(attackers)]
    for link in links * 50:
        harness.ask(COMMIT, BODY, link)
    own = client(99, honest)
    assert isinstance(harness.ask(COMMIT, CommitRequest("honest", 7, ()).encode(), own), Wait)
    for link in links * 50:
        harness.ask(COMMIT, BODY, link)
    harness.outbox.take()
    found = list[str]()
    while "honest" not in found:
        commit, _ = harness.slices()
        assert commit is not None
        found.append(commit.request.query_id)
        for link in links:
            harness.ask(COMMIT, BODY, link)
        harness.outbox.take()
    assert len(found) <= 2 * (len(links) + 1)


def test_a_commit_that_gives_way_is_the_last_of_its_connection_and_told_to_come_again() -> None:
    harness = Harness(BOTH)
    for batch in range(HOST_COMMITS_MAX // 2):
        for number in range(2):
            harness.ask(COMMIT, CommitRequest(f"q{number}", batch, ()).encode(), client(number))
    assert isinstance(harness.ask(COMMIT, CommitRequest("honest", 0, ()).encode(), client(2)), Wait)
    ((code, remark),) = [(answer.code, answer.remark) for answer in harness.replies()]
    assert code == ResponseCode.SYSTEM_BUSY and "[OVERLOAD]" in (remark or "")
    found = [commit.request for commit, _ in (harness.slices() for _ in range(HOST_COMMITS_MAX)) if commit is not None]
    batches = [[one.batch_id for one in found if one.query_id == query] for query in ("q0", "q1", "honest")]
    assert batches == [list(range(11)), list(range(12)), [0]]


def test_a_body_over_the_limit_does_not_wait() -> None:
    with pytest.raises(RequestError):
        Harness(BOTH).ask(COMMIT, bytes(staged_writes.COMMIT_BODY_BYTES_MAX + 1))


def large(query: str = "q") -> bytes:
    """A commit of 60 partitions with 200 chunks each."""
    chunks = (StagedChunk(part, 0, number, number, 10, 1) for part in range(60) for number in range(200))
    return CommitRequest(query, 0, tuple(chunks)).encode()


def test_no_commit_is_read_while_requests_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of other services stand behind it in the same inbox."""
    read, plain = list[int](), json_body.read_request
    monkeypatch.setattr(json_body, "read_request", lambda body, *more: read.append(len(body)) or plain(body, *more))
    harness = Harness(BOTH)
    harness.ask(COMMIT, large())
    assert not read
    harness.slices()
    assert len(read) == 1


def test_a_large_commit_is_decoded_in_slices() -> None:
    """No slice is longer than SLICE_MS and a step, so that other requests are answered in between."""
    harness, body = Harness(BOTH), large()
    harness.ask(COMMIT, body)
    commit, slices = harness.slices()
    assert commit is not None and commit.request == CommitRequest.decode(body)
    steps = 1 + 12_060 // staged_writes.CHUNKS_A_STEP
    assert steps // SLICE_MS <= slices <= steps + 1


@pytest.mark.parametrize("attackers", [1, 16])
def test_a_commit_waits_for_one_commit_of_each_other_host_at_most(attackers: int) -> None:
    harness, bodies = Harness(BOTH), [large(f"a{number}") for number in range(attackers)]
    for number in range(HOST_COMMITS_MAX):
        harness.ask(COMMIT, bodies[number % attackers], client(number % attackers))
    harness.requests.next_commit()
    honest = client(1, "10.0.0.1")
    assert isinstance(harness.ask(COMMIT, CommitRequest("honest", 7, ()).encode(), honest), Wait)
    found = list[str]()
    while "honest" not in found:
        commit, _ = harness.slices()
        assert commit is not None
        found.append(commit.request.query_id)
        harness.ask(COMMIT, bodies[0], client(0))
    assert len(found) <= 3, "the one that is decoded in part, and the next one of the host"


def test_commits_of_one_connection_keep_their_order() -> None:
    harness = Harness(BOTH)
    for number in range(5):
        harness.ask(COMMIT, CommitRequest("q", number, ()).encode())
        harness.ask(COMMIT, CommitRequest("other", number, ()).encode(), client(2, "10.0.0.1"))
    found = [commit.request for commit, _ in (harness.slices() for _ in range(10)) if commit is not None]
    assert [request.batch_id for request in found if request.query_id == "q"] == [0, 1, 2, 3, 4]


def test_a_commit_that_cannot_be_decoded_is_answered_and_the_next_one_follows() -> None:
    harness = Harness(BOTH)
    harness.ask(COMMIT, b"no JSON")
    harness.ask(COMMIT, b'{"queryId":"' + rb"\n" * staged_writes.COMMIT_STRINGS_MAX + b'"}')
    harness.ask(COMMIT, BODY)
    assert harness.slices()[0] is None
    assert [answer.code for answer in harness.replies()] == [ResponseCode.SYSTEM_ERROR]
    assert harness.slices()[0] is None
    ((code, remark),) = [(answer.code, answer.remark) for answer in harness.replies()]
    assert code == ResponseCode.INVALID_PARAMETER and "strings and escapes" in (remark or "")
    commit, _ = harness.slices()
    assert commit is not None and commit.request.query_id == "q"
    assert harness.requests.is_idle and not harness.lines


@pytest.mark.parametrize(
    "values",
    [b",".join([b"1.5e30"] * 100_000), b",".join([b"9" * 4300] * 480), b'"' + b"x" * 2_000_000 + b'"'],
    ids=["odd", "long numbers", "long text"],
)
def test_a_large_commit_is_read_by_the_fast_parser_alone(values: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the standard library takes 0.1 s for 2 MB, in one step."""
    slow = list[str]()
    monkeypatch.setattr(json_text.json, "loads", lambda text, **more: slow.append(text) or {})
    harness = Harness(BOTH)
    harness.ask(COMMIT, rb'{"queryId":"\ud800","batchId":1,"x":[' + values + b'],"partitions":[]}')
    assert harness.slices()[0] is None
    (answer,) = harness.replies()
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER) and not slow
    harness.ask(COMMIT, rb'{"queryId":"\ud800","batchId":1,"x":[1],"partitions":[]}')
    harness.slices()
    assert len(slow) == 1, "a small one may be odd"


def test_the_largest_commits_of_writers_are_within_the_limits() -> None:
    part = {"partition": 1 << 30, "attempt": (1 << 63) - 1, "chunks": [[(1 << 63) - 1, 4 << 20, (1 << 31) - 1]]}
    parts = [{**part, "partition": (1 << 30) + number} for number in range(10_000)]
    query = "\U0001f600" * staged_writes.QUERY_ID_CHARS_MAX
    for value in ({"queryId": query, "batchId": 1 << 62, "partitions": parts}, {"queryId": query, "batchId": 0}):
        for body in (json.dumps(value), json.dumps(value, ensure_ascii=False), json_body.write_body(value).decode()):
            read = CommitRequest.decode(body.encode())
            assert (read.query_id, len(read.chunks)) == (query, len(value.get("partitions", ())))
    assert (
        len(CommitRequest.decode(json.dumps({**value, "partitions": parts[:4000]}, indent=4).encode()).chunks) == 4000
    )


def test_a_defect_of_the_decoder_costs_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(BOTH)
    harness.ask(COMMIT, BODY)
    monkeypatch.setattr(staged_writes, "_partitions", lambda value: 1 // 0)
    assert harness.slices()[0] is None
    assert [answer.code for answer in harness.replies()] == [ResponseCode.SYSTEM_ERROR]
    assert "ZeroDivisionError" in harness.lines[0] and harness.requests.is_idle


def test_commits_that_wait_too_long_are_told_to_come_again() -> None:
    harness = Harness(BOTH)
    harness.ask(COMMIT, BODY)
    harness.requests.refuse_late(NOW + ANSWER_WITHIN_MS, "the broker is still reading its log")
    assert not harness.replies()
    harness.requests.refuse_late(NOW + ANSWER_WITHIN_MS + 1, "the broker is still reading its log")
    ((code, remark),) = [(answer.code, answer.remark) for answer in harness.replies()]
    assert (code, remark) == (ResponseCode.SYSTEM_BUSY, "the broker is still reading its log: ask again")
    assert harness.requests.is_idle


def test_a_stop_answers_all_commits_also_the_one_that_is_decoded_in_part() -> None:
    harness = Harness(BOTH)
    harness.ask(COMMIT, large())
    harness.ask(COMMIT, BODY)
    assert harness.requests.next_commit() is None
    harness.requests.refuse_all(ResponseCode.SERVICE_NOT_AVAILABLE, "shutting down")
    assert [answer.code for answer in harness.replies()] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert harness.requests.is_idle


def test_a_broker_that_takes_no_messages_of_clients_takes_no_commits() -> None:
    harness = Harness(BOTH)
    harness.config = replace(harness.config, broker_permission=4)
    for fields in (COMMIT, DESCRIBE):
        answer = harness.ask(fields, BODY)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[10.0.0.1] sending message is forbidden",
        )
    harness.config = replace(harness.config, broker_permission=6)
    assert harness.ask(DESCRIBE).code == ResponseCode.SUCCESS


def test_the_first_requests_wait_until_control_has_made_the_topics_once() -> None:
    harness = Harness(set())
    assert isinstance(harness.ask(DESCRIBE), Wait) and isinstance(harness.ask(COMMIT, BODY), Wait)
    ((made, then),) = harness.maker.asked
    assert {topic.topic_name for topic in made} == BOTH
    assert not harness.requests.is_idle and harness.replies() == [] and not harness.requests.has_commits
    harness.topics.names |= BOTH
    then(None)
    (answer,) = harness.replies()
    assert json.loads(answer.body)["topic"] == STAGED_TOPIC
    asked, _ = harness.slices()
    assert asked is not None
    assert (asked.request.query_id, asked.at_ms) == ("q", NOW), "its time runs since it was asked"
    assert harness.ask(DESCRIBE).code == ResponseCode.SUCCESS and len(harness.maker.asked) == 1


def test_topics_that_cannot_be_made_refuse_what_waits_for_them() -> None:
    harness = Harness({STAGED_TOPIC})
    harness.ask(DESCRIBE)
    harness.ask(COMMIT, BODY)
    refusal = RequestError("topics: the table is full (4 entries)", field="", code=ResponseCode.SYSTEM_ERROR)
    harness.maker.asked[0][1](refusal)
    assert [(answer.code, answer.remark) for answer in harness.replies()] == [(1, str(refusal))] * 2
    assert harness.requests.is_idle
    assert isinstance(harness.ask(DESCRIBE), Wait), "the next request asks control again"
    assert len(harness.maker.asked) == 2


def test_an_operation_that_is_unknown_is_named() -> None:
    answer = Harness(BOTH).ask({"operation": "x" * 200})
    assert answer.code == ResponseCode.INVALID_PARAMETER and len(answer.remark) < 200


def test_requests_that_wait_are_bounded_and_hold_no_body() -> None:
    harness = Harness(set())
    waiting = [request_of(RequestCode.STAGED_WRITES, DESCRIBE, b"x" * 100) for _ in range(WAITING_MAX)]
    assert all(isinstance(harness.requests.on_request(request), Wait) for request in waiting)
    assert not any(request.command.body for request in waiting)
    answer = harness.ask(DESCRIBE)
    assert answer.code == ResponseCode.SYSTEM_BUSY and f"{WAITING_MAX} requests wait" in answer.remark
    harness.topics.names |= BOTH
    harness.maker.asked[0][1](None)
    assert len(harness.replies()) == WAITING_MAX
    commit = request_of(RequestCode.STAGED_WRITES, COMMIT, BODY)
    assert isinstance(harness.requests.on_request(commit), Wait) and commit.command.body == b""


def test_commits_whose_topic_goes_before_they_are_looked_at_are_told_to_come_again() -> None:
    harness = Harness(BOTH)
    assert isinstance(harness.ask(COMMIT, BODY), Wait)
    harness.topics.names.clear()
    assert not harness.requests.has_decisions
    harness.requests.refuse_without_topic()
    (answer,) = harness.replies()
    assert answer.code == ResponseCode.SYSTEM_BUSY and COMMITS_TOPIC in (answer.remark or "")
    assert harness.requests.is_idle


def test_an_open_commit_needs_the_topic_of_decisions_alone() -> None:
    assert Harness({COMMITS_TOPIC}).requests.has_decisions and not Harness({STAGED_TOPIC}).requests.has_decisions
