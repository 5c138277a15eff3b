"""Queues for consumers (400) and request modes (401, 402): recorded answers of a stock broker, errors and limits."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.assignment.topic_queues import TopicQueues
from ringmq.broker.requests.request import Reply, Request
from ringmq.ipc.audit import Kind
from ringmq.remoting.assignment_bodies import POP, PULL, RequestMode
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.json_body import write_body
from tests.broker.fakes import START_MS, Harness, make_harness, peer

QUERY, SET, ALL = (
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
)
RECORDING = Path(__file__).parents[1] / "golden" / "pop" / "assignments.jsonl"
RECORDED: list[dict[str, Any]] = [json.loads(line) for line in RECORDING.read_text().splitlines()]
ROUTES = {"GP": 4, "GPT": 1, "%RETRY%CGP": 1}
"""Topics of the recording's second part, in which the broker knows the routes -> their queues."""


def give_route(harness: Harness, topic: str, counts: dict[str, int]) -> None:
    """A name server has answered with this route."""
    routes = harness.broker.routes
    routes._servers = ["ns:1"]
    query = {"topic": topic, "consumerGroup": "G", "clientId": "c", "messageModel": "CLUSTERING", "strategyName": "AVG"}
    assert harness.ask(QUERY, body=write_body(query)) is None, "it waits for the route"
    ask = routes.due(harness.now_ms)
    assert ask is not None and ask.topic == topic
    routes.found(TopicQueues(topic, counts.items()), harness.now_ms)
    assert len(routes.take_settled(harness.now_ms)) == 1


def query(harness: Harness, topic: str = "T", **fields: Any) -> Any:
    """The answer to a request that may not wait for a route."""
    body = {
        "clientId": "c1", "consumerGroup": "G", "messageModel": "CLUSTERING", "strategyName": "AVG", "topic": topic,
    } | fields  # fmt: skip
    return again(harness, RemotingCommand.request(QUERY, None, write_body(body)))


def again(harness: Harness, command: RemotingCommand) -> RemotingCommand:
    """The answer to a request in its second run."""
    request = Request(command, peer(1), harness.now_ms, 7, len(command.body), is_again=True)
    reply = harness.handlers.handle(request)[-1]
    assert isinstance(reply, Reply)
    return reply.command


def assigned(answer: RemotingCommand) -> set[tuple[str, int, str]]:
    assert answer.code == 0, answer.remark
    entries = json.loads(answer.body)["messageQueueAssignments"]
    found = {(e["messageQueue"]["brokerName"], e["messageQueue"]["queueId"], e["mode"]) for e in entries}
    assert len(found) == len(entries)
    return found


def set_mode(harness: Harness, mode: str = POP, share: int = -1, topic: str = "T", group: str = "G") -> Any:
    body = {"consumerGroup": group, "mode": mode, "popShareQueueNum": share, "topic": topic}
    return harness.ask(SET, body=write_body(body))


@pytest.fixture
def harness() -> Harness:
    harness = make_harness()
    harness.make_topic("T")
    harness.broker.groups.put(SubscriptionGroupConfig("G"), START_MS)
    return harness


# ---- the recording ----


def comparable(text: str) -> Any:
    """A body, with the entries of an assignment in order: stock writes them in that of a hash table."""
    value = json.loads(text) if text else None
    if isinstance(value, dict) and "messageQueueAssignments" in value:
        value["messageQueueAssignments"].sort(key=json.dumps)
    return value


@pytest.mark.parametrize("part", [1, 2])
def test_a_stock_brokers_recorded_answers(part: int) -> None:
    harness = make_harness({"brokerName": "broker-p"})
    for topic in ("GP", "GPT"):
        harness.make_topic(topic, ROUTES[topic])
    joined = 0
    if part == 2:
        set_mode(harness, POP, 0, "GP", "CGP")
        for topic, queues in ROUTES.items():
            give_route(harness, topic, {"broker-p": queues})
    steps = [step for step in RECORDED if step["part"] == part]
    assert len(steps) >= 15
    for step in steps:
        for client in step["members"][joined:]:
            harness.join("CGP", {"GP": "*", "GPT": "*"}, connection=peer(int(client[-1])), client_id=client)
        joined = len(step["members"])
        wanted, body = step["answer"], write_body(step["request"]) if step["request"] else b""
        if step["scenario"] == "mode-pull":  # a stock broker lets a group leave POP
            harness.broker.modes.put(RequestMode("GP", "CGP", PULL, 0))
            continue
        answer = again(harness, RemotingCommand.request(step["code"], None, body))
        assert (answer.code, answer.remark) == (wanted["code"], wanted["remark"]), step["scenario"]
        assert comparable(answer.body.decode()) == comparable(wanted["body"]), step["scenario"]


# ---- queues for consumers ----


def test_a_consumer_gets_its_share_of_all_brokers(harness: Harness) -> None:
    give_route(harness, "T", {"b": 2, "a": 1})
    for number in (1, 2):
        harness.join("G", {"T": "*"}, connection=peer(number), client_id=f"c{number}")
    assert assigned(query(harness)) == {("a", 0, PULL), ("b", 0, PULL)}
    assert assigned(query(harness, clientId="c2")) == {("b", 1, PULL)}
    assert assigned(query(harness, clientId="c2", strategyName="AVG_BY_CIRCLE")) == {("b", 0, PULL)}
    harness.join("G", {"T": "*"}, connection=peer(3), client_id="c0")
    assert assigned(query(harness)) == {("b", 0, PULL)}, "the order of the members has changed"
    assert set_mode(harness, POP, 0).code == 0
    assert assigned(query(harness)) == {("a", -1, POP), ("b", -1, POP)}
    assert assigned(query(harness, messageModel="BROADCASTING")) == {("a", 0, POP), ("b", 0, POP), ("b", 1, POP)}


def test_members_that_leave_or_get_another_id_change_the_shares(harness: Harness) -> None:
    give_route(harness, "T", {"b": 2})
    for number in (1, 2):
        harness.join("G", {"T": "*"}, connection=peer(number), client_id=f"c{number}")
    assert assigned(query(harness)) == {("b", 0, PULL)}
    harness.join("G", {"T": "*"}, connection=peer(2), client_id="c0")
    assert assigned(query(harness)) == {("b", 1, PULL)}
    harness.broker.on_close(peer(2))
    assert assigned(query(harness)) == {("b", 0, PULL), ("b", 1, PULL)}
    harness.broker.on_close(peer(1))
    assert query(harness).body == b"{}", "a group without members"


def test_without_balancing_a_consumer_gets_all_queues(harness: Harness) -> None:
    give_route(harness, "T", {"b": 2})
    assert query(harness).body == b"{}"
    assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"serverLoadBalancerEnable=false").code == 0
    assert assigned(query(harness, consumerGroup="Unknown", strategyName="NOPE")) == {("b", 0, PULL), ("b", 1, PULL)}
    assert query(harness, "Unknown").body == b"{}"


def test_defaults_of_the_configuration() -> None:
    harness = make_harness({"defaultMessageRequestMode": "POP", "defaultPopShareQueueNum": "1"})
    harness.make_topic("T")
    give_route(harness, "T", {"b": 4})
    give_route(harness, "%RETRY%G", {"b": 1})
    for number in (1, 2, 3, 4):
        harness.join("G", {"T": "*"}, connection=peer(number), client_id=f"c{number}")
    assert assigned(query(harness)) == {("b", 0, POP), ("b", 1, POP)}
    assert assigned(query(harness, "%RETRY%G")) == {("b", 0, PULL)}, "retry topics are pulled"
    assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"defaultPopShareQueueNum=2").code == 0
    assert assigned(query(harness)) == {("b", 0, POP), ("b", 1, POP), ("b", 2, POP)}


def test_a_light_queue_needs_no_route(harness: Harness) -> None:
    harness.join("G", {"T": "*"})
    assert assigned(query(harness, "%LMQ%a")) == {(harness.broker.config.broker_name, 0, PULL)}
    assert query(harness, "%LMQ%a", messageModel="BROADCASTING").body == b"{}", "stock looks for its route here"


def test_a_large_topic_is_answered_in_steps(harness: Harness) -> None:
    give_route(harness, "T", {f"b{number}": 60_000 for number in range(2)})
    answer = query(harness, messageModel="BROADCASTING")
    assert len(assigned(answer)) == 120_000
    body = {"clientId": "c1", "consumerGroup": "G", "messageModel": "BROADCASTING", "strategyName": "", "topic": "T"}
    command = RemotingCommand.request(QUERY, None, write_body(body))
    slices = harness.handlers.begin(Request(command, peer(1), harness.now_ms, 7, len(command.body)))
    assert sum(1 for _ in slices.steps) > 1000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": None}, "field topic is missing"),
        ({"topic": ""}, "field topic is missing"),
        ({"consumerGroup": None}, "field consumerGroup is missing"),
        ({"messageModel": None}, "field messageModel is missing"),
        ({"messageModel": "ALL"}, "field messageModel = 'ALL' is not known"),
        ({"topic": "t" * 513}, "has 513 characters, at most 512 are taken"),
        ({"clientId": "c" * 1025}, "has 1025 characters, at most 1024 are taken"),
        ({"strategyName": ["AVG"]}, "field strategyName is a list"),
    ],
)
def test_a_query_that_names_too_little_or_too_much_is_an_error(
    harness: Harness, fields: dict[str, Any], words: str
) -> None:
    answer = query(harness, **fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert words in (answer.remark or "")


@pytest.mark.parametrize("code", [QUERY, SET])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null"])
def test_a_body_that_is_none_is_an_error(harness: Harness, code: int, body: bytes) -> None:
    assert harness.ask(code, body=body).code == ResponseCode.SYSTEM_ERROR


# ---- modes ----


def test_a_mode_is_set_and_shown(harness: Harness) -> None:
    assert harness.ask(ALL).body == b'{"messageRequestModeMap":{}}'
    assert set_mode(harness, POP, 3).code == 0
    bean = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 3, "topic": "T"}
    assert json.loads(harness.ask(ALL).body) == {"messageRequestModeMap": {"T": {"G": bean}}}
    assert set_mode(harness, "pop", 1).code == 0, "fastjson reads names of an enum in any case"
    assert list(harness.broker.modes) == [RequestMode("T", "G", POP, 1)]
    changes = [change for change in harness.broker.audit.changes if change.kind is Kind.MODE]
    assert [(change.name, change.after["popShareQueueNum"]) for change in changes] == [("T@G", 3), ("T@G", 1)]  # type: ignore[index]
    assert changes[0].actor.request == "SET_MESSAGE_REQUEST_MODE"
    assert set_mode(harness, POP, 1).code == 0
    assert len([change for change in harness.broker.audit.changes if change.kind is Kind.MODE]) == 2


def test_a_group_is_made_if_clients_may_make_it(harness: Harness) -> None:
    assert set_mode(harness, group="New").code == 0
    assert "New" in harness.broker.groups
    answer = set_mode(harness, group="a/b")
    assert (answer.code, answer.remark) == (26, "subscription group does not exist")
    closed = make_harness({"autoCreateSubscriptionGroup": "false"})
    closed.make_topic("T")
    assert set_mode(closed, group="New").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert not len(closed.broker.modes)


def test_a_group_leaves_pop_where_no_worker_holds_messages(harness: Harness) -> None:
    assert set_mode(harness, POP, 0).code == 0
    assert set_mode(harness, PULL, 0).code == 0
    assert harness.broker.modes.get("T", "G") == RequestMode("T", "G", PULL, 0)
    by_default = make_harness({"defaultMessageRequestMode": "POP"})
    by_default.make_topic("T")
    assert set_mode(by_default, PULL).code == 0 and "G" in by_default.broker.groups


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "%RETRY%G"}, 16, "retry topic is not allowed to set mode"),
        ({"topic": "Unknown"}, 17, "topic[Unknown] not exist"),
        ({"topic": None}, 1, "field topic is missing"),
        ({"consumerGroup": None}, 1, "field consumerGroup is missing"),
        ({"consumerGroup": "g" * 513}, 1, "at most 512 are taken"),
        ({"mode": "PUSH"}, 29, "field mode = 'PUSH' is not known, accepted: PULL or POP"),
        ({"popShareQueueNum": 1 << 31}, 29, "popShareQueueNum = 2147483648 is outside"),
        ({"popShareQueueNum": "many"}, 1, "popShareQueueNum"),
    ],
)
def test_a_mode_that_cannot_be_set_is_an_error(harness: Harness, fields: dict[str, Any], code: int, words: str) -> None:
    body = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": -1, "topic": "T"} | fields
    answer = harness.ask(SET, body=write_body(body))
    assert answer.code == code and words in answer.remark
    assert not len(harness.broker.modes)


def test_only_hosts_of_admin_addresses_set_modes_on_the_master() -> None:
    closed = make_harness({"adminAddresses": "10.0.0.7"})
    assert set_mode(closed).code == ResponseCode.NO_PERMISSION
    assert "adminAddresses does not name this host" in set_mode(closed).remark
    slave = make_harness({"brokerRole": "SLAVE", "brokerId": "1"})
    answer = set_mode(slave)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "from master broker" in answer.remark


def test_a_mode_outlives_its_topic_and_group_as_in_stock(harness: Harness) -> None:
    assert set_mode(harness).code == 0
    assert harness.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"}).code == 0
    assert harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    assert len(harness.broker.modes) == 1
    assert set_mode(harness, POP, 2).code == ResponseCode.TOPIC_NOT_EXIST
