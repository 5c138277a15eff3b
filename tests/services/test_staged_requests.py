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


class Lab:
    """The requests of staged writes over a configuration that tests change."""

    def __init__(self, topics: set[str]) -> None:
        self.config = BrokerConfig(broker_name="b", broker_ip1="10.0.0.1")
        self.topics, self.maker, self.outbox = FoundTopics(set(topics)), Maker(), Outbox()
        overload = StagedCommits().overload
        self.requests = StagedRequests(
            lambda: self.config, cast(Any, self.topics), self.maker, self.outbox, overload
        )  # fmt: skip

    def ask(self, fields: dict[str, str], body: bytes = b"") -> Any:
        return self.requests.on_request(request_of(RequestCode.STAGED_WRITES, fields, body))

    def replies(self) -> list[RemotingCommand]:
        return [effect.command for effect in self.outbox.take() if isinstance(effect, Reply)]


def test_one_request_more_than_may_wait_is_refused_unread() -> None:
    lab, malformed = Lab(BOTH), b"not read"
    for _ in range(ASKED_MAX):
        assert isinstance(lab.ask(COMMIT, BODY), Wait)
    assert lab.ask(COMMIT, malformed).code == ResponseCode.SYSTEM_BUSY
    lab.requests.asked.clear()
    with pytest.raises(RequestError):
        lab.ask(COMMIT, malformed)


def test_a_broker_that_takes_no_messages_of_clients_takes_no_commits() -> None:
    lab = Lab(BOTH)
    lab.config = replace(lab.config, broker_permission=4)
    for fields in (COMMIT, DESCRIBE):
        answer = lab.ask(fields, BODY)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[10.0.0.1] sending message is forbidden",
        )
    lab.config = replace(lab.config, broker_permission=6)
    assert lab.ask(DESCRIBE).code == ResponseCode.SUCCESS


def test_the_first_requests_wait_until_control_has_made_the_topics_once() -> None:
    lab = Lab(set())
    assert isinstance(lab.ask(DESCRIBE), Wait) and isinstance(lab.ask(COMMIT, BODY), Wait)
    ((made, then),) = lab.maker.asked
    assert {topic.topic_name for topic in made} == BOTH
    assert not lab.requests.is_idle and lab.replies() == [] and not lab.requests.asked
    lab.topics.names |= BOTH
    then(None)
    (answer,) = lab.replies()
    assert json.loads(answer.body)["topic"] == STAGED_TOPIC
    (asked,) = lab.requests.asked
    assert (asked.request.query_id, asked.at_ms) == ("q", NOW), "its time runs since it was asked"
    assert lab.ask(DESCRIBE).code == ResponseCode.SUCCESS and len(lab.maker.asked) == 1


def test_topics_that_cannot_be_made_refuse_what_waits_for_them() -> None:
    lab = Lab({STAGED_TOPIC})
    lab.ask(DESCRIBE)
    lab.ask(COMMIT, BODY)
    refusal = RequestError("topics: the table is full (4 entries)", field="", code=ResponseCode.SYSTEM_ERROR)
    lab.maker.asked[0][1](refusal)
    assert [(answer.code, answer.remark) for answer in lab.replies()] == [(1, str(refusal))] * 2
    assert lab.requests.is_idle
    assert isinstance(lab.ask(DESCRIBE), Wait), "the next request asks control again"
    assert len(lab.maker.asked) == 2


def test_commits_that_wait_for_topics_count_as_commits_that_wait() -> None:
    lab = Lab(set())
    for _ in range(ASKED_MAX):
        assert isinstance(lab.ask(COMMIT, BODY), Wait)
    assert lab.ask(COMMIT, BODY).code == ResponseCode.SYSTEM_BUSY


def test_an_operation_that_is_unknown_is_named() -> None:
    answer = Lab(BOTH).ask({"operation": "x" * 200})
    assert answer.code == ResponseCode.INVALID_PARAMETER and len(answer.remark) < 200


def test_requests_that_wait_are_bounded_and_hold_no_body() -> None:
    lab = Lab(set())
    waiting = [request_of(RequestCode.STAGED_WRITES, DESCRIBE, b"x" * 100) for _ in range(WAITING_MAX)]
    assert all(isinstance(lab.requests.on_request(request), Wait) for request in waiting)
    assert not any(request.command.body for request in waiting)
    answer = lab.ask(DESCRIBE)
    assert answer.code == ResponseCode.SYSTEM_BUSY and f"{WAITING_MAX} requests wait" in answer.remark
    lab.topics.names |= BOTH
    lab.maker.asked[0][1](None)
    assert len(lab.replies()) == WAITING_MAX
    commit = request_of(RequestCode.STAGED_WRITES, COMMIT, BODY)
    assert isinstance(lab.requests.on_request(commit), Wait) and commit.command.body == b""


def test_commits_whose_topic_goes_before_they_are_looked_at_are_told_to_come_again() -> None:
    lab = Lab(BOTH)
    assert isinstance(lab.ask(COMMIT, BODY), Wait)
    lab.topics.names.clear()
    assert not lab.requests.has_decisions
    lab.requests.refuse_asked()
    (answer,) = lab.replies()
    assert answer.code == ResponseCode.SYSTEM_BUSY and COMMITS_TOPIC in (answer.remark or "")
    assert lab.requests.is_idle


def test_an_open_commit_needs_the_topic_of_decisions_alone() -> None:
    assert Lab({COMMITS_TOPIC}).requests.has_decisions and not Lab({STAGED_TOPIC}).requests.has_decisions
