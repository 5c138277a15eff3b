"""Queues for consumers (400) and request modes (401, 402): both brokers get the same requests, and answer the same."""

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import DataVersion, TopicConfig, TopicConfigTable
from ringmq.remoting.heartbeat import CLUSTERING, CONSUME_PASSIVELY, ConsumerData, HeartbeatData
from ringmq.remoting.json_body import write_body
from ringmq.remoting.namesrv_headers import RegisterBrokerRequestHeader
from ringmq.remoting.register_body import body_crc32, encode_register_body
from ringmq.remoting.subscription import build_subscription
from tests.conformance.servers import BROKER_NAME, Server
from tests.raw_client import RawClient
from tests.server_pool import ServerPool
from tests.waiting import wait_until

KINDS = ("ringmq", "stock")
Outcome = tuple[int, str | None, Any]
"""Code, remark and body of an answer."""


class Script:
    """Requests to one server, with what it has answered. Topics and groups have names of this test."""

    def __init__(self, server: Server, name: str, stack: contextlib.ExitStack) -> None:
        self.server, self.name = server, name
        self._stack = stack
        self.broker = stack.enter_context(RawClient(server.broker))
        self._namesrv = stack.enter_context(RawClient(server.namesrv))
        self._clients: dict[str, RawClient] = {}
        self.outcomes: dict[str, Outcome] = {}

    def topic(self, topic: str, queues: int, perm: int = 6) -> None:
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
            "topicFilterType": "SINGLE_TAG", "order": False,
        }  # fmt: skip
        assert self.broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
        wait_until(lambda: self._has_route(topic), f"the name server knows {topic}")

    def _has_route(self, topic: str) -> bool:
        return self._namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0

    def other_broker(self, name: str, topic: str, queues: int) -> None:
        """Another broker registers the topic, too, for as long as the test runs. A name server accepts no first
        registration of one topic alone."""
        topics = {each: TopicConfig(each, queues, queues) for each in (topic, f"{topic}More")}
        body = encode_register_body(TopicConfigTable(topics, DataVersion(0, 0, 1)))
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_addr="127.0.0.1:1",
            cluster_name="DefaultCluster",
            ha_server_addr="127.0.0.1:2",
            broker_id=0,
            body_crc32=body_crc32(body),
            compressed=False,
        )
        assert self._namesrv.ask(RequestCode.REGISTER_BROKER, header.encode(), body).code == 0

    def join(self, client_id: str, group: str, *topics: str) -> None:
        """A client of its own connection sends a heartbeat."""
        if client_id not in self._clients:
            self._clients[client_id] = self._stack.enter_context(RawClient(self.server.broker))
        subscriptions = [build_subscription(topic, "*", sub_version=1) for topic in topics]
        consumer = ConsumerData(group, CONSUME_PASSIVELY, CLUSTERING, subscriptions=subscriptions)
        client = self._clients[client_id]
        client.send_request(RequestCode.HEART_BEAT, {}, HeartbeatData(client_id, consumers=[consumer]).encode())
        while (frame := client.receive()) is not None and not frame.is_response:
            pass  # notices of the group's other changes
        assert frame is not None and frame.code == 0, frame

    def leave(self, client_id: str, group: str) -> None:
        """A client of a group says goodbye."""
        client = self._clients.pop(client_id)
        client.send_request(RequestCode.UNREGISTER_CLIENT, {"clientID": client_id, "consumerGroup": group})
        while (frame := client.receive()) is not None and not frame.is_response:
            pass
        assert frame is not None and frame.code == 0

    def query(self, step: str, topic: str, group: str, client_id: str, /, **fields: Any) -> Any:
        """400. Returns the assignments."""
        body = {
            "clientId": client_id, "consumerGroup": group, "messageModel": CLUSTERING, "strategyName": "AVG",
            "topic": topic,
        } | fields  # fmt: skip
        return self._note(step, RequestCode.QUERY_ASSIGNMENT, body)

    def mode(self, step: str, topic: str, group: str, mode: str = "POP", share: int = -1, /, **fields: Any) -> None:
        """401."""
        body = {"consumerGroup": group, "mode": mode, "popShareQueueNum": share, "topic": topic} | fields
        self._note(step, RequestCode.SET_MESSAGE_REQUEST_MODE, body)

    def _note(self, step: str, code: int, body: Mapping[str, Any]) -> Any:
        sent = {name: value for name, value in body.items() if value is not None}
        answer = self.broker.ask(code, {}, write_body(sent))
        value = json.loads(answer.body) if answer.body else None
        if isinstance(value, dict) and "messageQueueAssignments" in value:
            value["messageQueueAssignments"].sort(key=json.dumps)  # stock writes them in the order of a hash table
        remark = answer.remark if answer.code != 1 else None  # for defects of a body, stock names its exception
        assert step not in self.outcomes
        self.outcomes[step] = answer.code, remark, value
        return value

    def modes(self, *topics: str) -> dict[str, Any]:
        """402: the modes of these topics."""
        answer = self.broker.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {})
        assert answer.code == 0
        return chosen(json.loads(answer.body), topics)

    def saved_modes(self, *topics: str) -> dict[str, Any]:
        """The modes of these topics on disk."""
        return chosen(json.loads((self.server.store / "config" / "messageRequestMode.json").read_text()), topics)

    def set_property(self, line: str) -> None:
        assert self.broker.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, line.encode()).code == 0


def chosen(value: Mapping[str, Any], topics: tuple[str, ...]) -> dict[str, Any]:
    return {topic: modes for topic, modes in value["messageRequestModeMap"].items() if topic in topics}


@pytest.fixture
def scripts(shared_servers: ServerPool) -> Iterator[tuple[Script, Script]]:
    """RingMQ's and stock's."""
    name = f"Assigned{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        ours, stocks = (Script(shared_servers(kind), name, stack) for kind in KINDS)
        yield ours, stocks


def same(scripts: tuple[Script, Script], at_least: int) -> dict[str, Outcome]:
    """The outcomes, which are equal."""
    ours, stocks = scripts
    assert ours.outcomes.keys() == stocks.outcomes.keys() and len(ours.outcomes) >= at_least
    for step, wanted in stocks.outcomes.items():
        assert ours.outcomes[step] == wanted, step
    return ours.outcomes


def run_shares(script: Script) -> None:
    """All modes, share numbers and strategies, with one to six members on four queues of one broker."""
    topic, group = f"{script.name}T", f"{script.name}G"
    script.topic(topic, 4)
    script.query("nobody is there", topic, group, "c1")
    for members in range(1, 7):
        script.join(f"c{members}", group, topic)
        if members in (1, 2, 4, 6):
            asked = sorted({1, 2, members})
            for client in asked:
                for strategy in ("AVG", "AVG_BY_CIRCLE"):
                    step = f"PULL of {client} of {members}, {strategy}"
                    script.query(step, topic, group, f"c{client}", strategyName=strategy)
            for share in (-1, 0, 1, 2, 3, 5):
                popped = f"{group}Pop"
                for number in range(1, members + 1):
                    script.join(f"c{number}", popped, topic)
                script.mode(f"POP by {share}, {members} members", topic, popped, "POP", share)
                for client in asked:
                    for strategy in ("AVG", "AVG_BY_CIRCLE"):
                        step = f"POP of {client} of {members} by {share}, {strategy}"
                        script.query(step, topic, popped, f"c{client}", strategyName=strategy)
    script.leave("c6", group)
    script.query("one has left", topic, group, "c5")
    script.query("who has left", topic, group, "c6")


def test_members_get_the_same_shares(scripts: tuple[Script, Script]) -> None:
    for script in scripts:
        run_shares(script)
    outcomes = same(scripts, 100)
    bodies = [body for _, _, body in outcomes.values()]
    assert {} in bodies and {"messageQueueAssignments": []} in bodies


def test_queues_of_other_brokers_count(scripts: tuple[Script, Script]) -> None:
    for script in scripts:
        topic, group = f"{script.name}Wide", f"{script.name}WideG"
        script.topic(topic, 3)
        script.other_broker("another", topic, 2)
        for number in (1, 2, 3):
            script.join(f"c{number}", group, topic)
        for number in (1, 2, 3):
            script.query(f"PULL {number}", topic, group, f"c{number}")
        script.query("broadcasting", topic, group, "c1", messageModel="BROADCASTING")
        for share in (0, 1):
            script.mode(f"by {share}", topic, group, "POP", share)
            script.query(f"POP by {share}", topic, group, "c2")
        script.query("broadcasting POP", topic, group, "c1", messageModel="BROADCASTING")
    outcomes = same(scripts, 8)
    every = outcomes["broadcasting"][2]["messageQueueAssignments"]
    names = [entry["messageQueue"]["brokerName"] for entry in every]
    assert sorted(names) == ["another"] * 2 + [BROKER_NAME] * 3


def test_odd_queries_are_answered_alike(scripts: tuple[Script, Script]) -> None:
    for script in scripts:
        topic, group = f"{script.name}Odd", f"{script.name}OddG"
        script.topic(topic, 2)
        script.topic(f"{script.name}WriteOnly", 2, perm=2)
        script.join("c1", group, topic, f"{script.name}WriteOnly")
        script.query("unknown strategy", topic, group, "c1", strategyName="NOPE")
        script.query("no strategy", topic, group, "c1", strategyName=None)
        script.query("unknown topic", f"{script.name}None", group, "c1")
        script.query("unknown group", topic, f"{group}None", "c1")
        script.query("unknown client", topic, group, "stranger")
        script.query("no client", topic, group, "c1", clientId=None)
        script.query("blank client", topic, group, " ")
        script.query("retry topic", f"%RETRY%{group}", group, "c1")
        script.query("light queue", "%LMQ%light", group, "c1")
        script.query("light queue, broadcasting", "%LMQ%light", group, "c1", messageModel="BROADCASTING")
        script.query("not readable", f"{script.name}WriteOnly", group, "c1")
        script.query("not readable, broadcasting", f"{script.name}WriteOnly", group, "c1", messageModel="BROADCASTING")
        script.query("no topic", topic, group, "c1", topic=None)
        script.query("no model", topic, group, "c1", messageModel=None)
        script.query("unknown model", topic, group, "c1", messageModel="ALL")
        script.mode("POP", topic, group, "POP", 0)
        script.query("POP, unknown client", topic, group, "stranger")
        script.query("POP, no client", topic, group, "c1", clientId=None)
        script.query("POP, unknown strategy", topic, group, "c1", strategyName="NOPE")
        script.set_property("serverLoadBalancerEnable=false")
        try:
            script.query("without balancing", topic, group, "stranger", strategyName="NOPE")
            script.query("without balancing, unknown topic", f"{script.name}None", group, "c1")
        finally:
            script.set_property("serverLoadBalancerEnable=true")
    outcomes = same(scripts, 20)
    assert len({json.dumps(body) for _, _, body in outcomes.values()}) > 5


def test_modes_are_set_shown_and_saved_alike(scripts: tuple[Script, Script]) -> None:
    tables, on_disk = [], []
    for script in scripts:
        topic, group = f"{script.name}Mode", f"{script.name}ModeG"
        script.topic(topic, 2)
        script.mode("PULL where nothing was POP", topic, f"{group}Pull", "PULL", 0)
        script.mode("POP, a new group", topic, group)
        script.mode("POP again", topic, group, "POP", 3)
        script.mode("lower case", topic, f"{group}Lower", "pop", 1)
        script.mode("no mode", topic, f"{group}None", mode=None)
        script.mode("no share number", topic, f"{group}Share", popShareQueueNum=None)
        script.mode("a number as text", topic, f"{group}Text", popShareQueueNum="7")
        script.mode("retry topic", f"%RETRY%{group}", group)
        script.mode("unknown topic", f"{script.name}Unknown", group)
        script.mode("a group that cannot be", topic, "a/b")
        script.mode("no topic", topic, group, topic=None)
        script.mode("no group", topic, group, consumerGroup=None)
        tables.append(script.modes(topic))
        on_disk.append(script.saved_modes(topic))
        removed = {"groupName": group, "cleanOffset": "true"}
        assert script.broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, removed).code == 0
        assert script.broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
        tables.append(script.modes(topic))
        script.mode("a deleted topic", topic, group)
    same(scripts, 13)
    ours, ours_later, stocks, stocks_later = tables
    (groups,) = stocks.values()
    assert len(groups) == 6
    assert ours == stocks == ours_later == stocks_later, "a mode outlives its topic and group"
    assert on_disk[0] == on_disk[1] == ours
