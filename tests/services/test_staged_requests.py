"""What a client is told before a commit is looked at: limits, permissions, topics that control has to make first."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Outbox, Reply, Wait
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError
from ringmq.remoting.staged_writes import COMMITS_TOPIC, STAGED_TOPIC, CommitRequest
from ringmq.services.staged.commits import ASKED_MAX, StagedCommits
from ringmq.services.staged.requests import WAITING_MAX, StagedRequests
from tests.services.kit import NOW, FoundTopics, Maker, request_of

BOTH = {STAGED_TOPIC, COMMITS_TOPIC}
COMMIT, DESCRIBE = {"operation": "commit"}, {"operation": "describe"}
BODY = CommitRequest("q", 0, ()).encode()


class Harness:
    """The requests of staged writes over a configuration that tests change."""

    def __init__(self, topics: set[str]) -> None:
        self.config = BrokerConfig(broker_name="b", broker_ip1="10.0.0.1")
        self.topics, self.maker, self.outbox = FoundTopics(set(topics)), Maker(), Outbox()
        overload = StagedCommits().overload
        self.requests = StagedRequests(
            lambda: self.config, cast(Any, self.topics), self.maker, self.outbox, overload, lambda: NOW
        )  # fmt: skip

    def ask(self, fields: dict[str, str], body: bytes = b"") -> Any:
        return self.requests.on_request(request_of(RequestCode.STAGED_WRITES, fields, body))

    def replies(self) -> list[RemotingCommand]:
        return [effect.command for effect in self.outbox.take() if isinstance(effect, Reply)]


def test_one_request_more_than_may_wait_is_refused_unread() -> None:
    harness, malformed = Harness(BOTH), b"not read"
    for _ in range(ASKED_MAX):
        assert isinstance(harness.ask(COMMIT, BODY), Wait)
    assert harness.ask(COMMIT, malformed).code == ResponseCode.SYSTEM_BUSY
    harness.requests.asked.clear()
    with pytest.raises(RequestError):
        harness.ask(COMMIT, malformed)


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
    assert not harness.requests.is_idle and harness.replies() == [] and not harness.requests.asked
    harness.topics.names |= BOTH
    then(None)
    (answer,) = harness.replies()
    assert json.loads(answer.body)["topic"] == STAGED_TOPIC
    (asked,) = harness.requests.asked
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


def test_commits_that_wait_for_topics_count_as_commits_that_wait() -> None:
    harness = Harness(set())
    for _ in range(ASKED_MAX):
        assert isinstance(harness.ask(COMMIT, BODY), Wait)
    assert harness.ask(COMMIT, BODY).code == ResponseCode.SYSTEM_BUSY


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
    harness.requests.refuse_asked()
    (answer,) = harness.replies()
    assert answer.code == ResponseCode.SYSTEM_BUSY and COMMITS_TOPIC in (answer.remark or "")
    assert harness.requests.is_idle


def test_an_open_commit_needs_the_topic_of_decisions_alone() -> None:
    assert Harness({COMMITS_TOPIC}).requests.has_decisions and not Harness({STAGED_TOPIC}).requests.has_decisions
