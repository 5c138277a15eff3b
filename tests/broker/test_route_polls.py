"""Control asks name servers for routes, and answers the consumers that wait for them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.broker.assignment.routes import ASK_TIMEOUT_MS, WAIT_MAX_MS
from ringmq.broker.config.relations import changed
from ringmq.broker.control import ControlLoop
from ringmq.broker.control_wiring import saved_by
from ringmq.broker.core import Broker
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.tables.persistence import Persistence
from ringmq.ipc.plane_counts import PlaneCounts
from ringmq.native import lib
from ringmq.remoting.assignment_bodies import POP, RequestMode
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import CLUSTERING, CONSUME_PASSIVELY, ConsumerData, HeartbeatData
from ringmq.remoting.json_body import write_body
from ringmq.remoting.route import QueueData, TopicRouteData
from ringmq.remoting.subscription import build_subscription
from tests.broker.control_kit import Harness, ScriptedRegistrar, harness, now

__all__ = ["harness"]


class Asked:
    """A loop with two name servers. The test answers the requests for routes."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        made = harness.loop.broker
        config = changed(made.config, {"namesrvAddr": "ns:1;ns:2"})
        self.broker = Broker(config, made.identity, made.plane, made.store, PlaneCounts(made.plane))
        self.broker.modes.put(RequestMode("T", "G", POP, 0))
        self.calls = ScriptedRegistrar()
        persistence = Persistence(harness.root, saved_by(self.broker))
        registrar = ScriptedRegistrar()
        harness.loop = ControlLoop(harness.plane, self.broker, persistence, registrar, route_calls=self.calls)  # type: ignore[arg-type]
        subscription = build_subscription("T", "*", sub_version=1)
        consumer = ConsumerData("G", CONSUME_PASSIVELY, CLUSTERING, subscriptions=[subscription])
        harness.put(RemotingCommand.request(34, None, HeartbeatData("c1", consumers=[consumer]).encode()))
        assert harness.answers()[-1].code == 0, "behind the notice of its own membership"

    def query(self, opaque: int, topic: str = "T", connection: int = 3) -> None:
        body = {
            "clientId": "c1", "consumerGroup": "G", "messageModel": "CLUSTERING", "strategyName": "AVG", "topic": topic,
        }  # fmt: skip
        command = RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, None, write_body(body), opaque=opaque)
        self.harness.put(command, pending=opaque, connection=connection)

    def answer(self, code: int = 0, body: bytes = b"", error: str | None = None) -> None:
        """The end of the request in flight."""
        address, command, _ = self.calls.looks.pop() if self.calls.looks else self.calls.calls.pop()
        assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        reply = None if error else RemotingCommand.response_to(command, code, "said so" if code else None, None, body)
        text = error or (f"answered {code}: said so" if code else None)
        self.calls.ended.append(Outcome(address, text, reply, command.code))


@pytest.fixture
def asked(harness: Harness) -> Asked:
    return Asked(harness)


def route(queues: int = 4) -> bytes:
    return TopicRouteData([QueueData("b", queues, queues, 6)]).encode(standard_json=True)


def bodies(answers: list[RemotingCommand]) -> list[tuple[int, bytes]]:
    return [(answer.opaque, answer.body) for answer in answers]


ALL = b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":-1,"topic":"T"},"mode":"POP"}]}'


def test_a_consumer_is_answered_when_the_route_is_known(asked: Asked) -> None:
    asked.query(1)
    assert asked.harness.answers() == []
    assert [(address, command.ext_fields["topic"]) for address, command, _ in asked.calls.calls] == [("ns:1", "T")]
    asked.query(2, connection=4)
    assert asked.harness.answers() == [] and len(asked.calls.calls) == 1
    asked.answer(body=route())
    assert bodies(asked.harness.answers()) == [(1, ALL), (2, ALL)]
    asked.query(3)
    assert bodies(asked.harness.answers()) == [(3, ALL)], "at once"


def test_other_requests_of_the_connection_do_not_wait(asked: Asked) -> None:
    asked.query(1)
    assert asked.harness.answers() == []
    asked.harness.put(RemotingCommand.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, opaque=2), pending=2)
    (answer,) = asked.harness.answers()
    assert answer.opaque == 2 and json.loads(answer.body)["messageRequestModeMap"]["T"]


@pytest.mark.parametrize(
    ("code", "body", "line"),
    [
        (17, b"", ""),
        (1, b"", "ns:1: the route of topic 'T' is not used: answered 1: said so"),
        (0, b"<html>", "ns:1: the route of topic 'T' is not used: TopicRouteData: body does not parse"),
    ],
)
def test_without_a_route_a_consumer_keeps_what_it_has(
    asked: Asked, code: int, body: bytes, line: str, log_text: Callable[[], str]
) -> None:
    asked.query(1)
    asked.harness.loop.turn(now())
    asked.answer(code, body)
    assert bodies(asked.harness.answers()) == [(1, b"{}")]
    assert line in log_text()
    asked.query(2)
    assert bodies(asked.harness.answers()) == [(2, b"{}")]
    assert asked.calls.calls == [], "not asked for again so soon"


def test_the_second_name_server_is_asked(asked: Asked) -> None:
    asked.query(1)
    asked.harness.loop.turn(now())
    asked.answer(error="timed out")
    assert asked.harness.answers() == []
    assert [address for address, _, _ in asked.calls.calls] == ["ns:2"]
    asked.answer(error="refused")
    assert bodies(asked.harness.answers()) == [(1, b"{}")]


def test_a_consumer_waits_no_longer_than_its_client(asked: Asked) -> None:
    asked.query(1)
    since = now()
    asked.harness.loop.turn(since)
    asked.harness.loop.turn(since + WAIT_MAX_MS - 100)
    assert asked.harness.verdicts() == []
    asked.harness.loop.turn(since + WAIT_MAX_MS)
    assert [pending for _, _, pending, _, _ in asked.harness.verdicts()] == [1]
    assert 2 * ASK_TIMEOUT_MS < WAIT_MAX_MS < 3000


def test_a_consumer_that_has_gone_is_forgotten(asked: Asked) -> None:
    asked.query(1)
    assert asked.harness.answers() == []
    asked.harness.put(b"", kind=lib.RMQ_INBOX_CLOSED)
    asked.harness.loop.turn(now())
    assert asked.broker.routes.waiting == 0
    asked.answer(body=route())
    assert asked.harness.answers() == []


def test_a_stop_answers_the_waiting(asked: Asked) -> None:
    asked.query(1)
    assert asked.harness.answers() == []
    asked.harness.loop.close(now())
    assert [pending for _, _, pending, _, _ in asked.harness.verdicts()] == [1]


def test_routes_have_calls_of_their_own(harness: Harness, tmp_path: Path) -> None:
    """A registration may wait 24 s for a name server."""
    registrations = OutboundCalls(lambda: None)
    broker = harness.loop.broker
    loop = ControlLoop(harness.plane, broker, Persistence(tmp_path, saved_by(broker)), registrations)
    assert loop._route_polls._calls is not registrations
    loop.close(now())
