"""Topics that control announces to name servers, and their answers."""

from collections.abc import Callable
from pathlib import Path

from ringmq.broker.config.relations import changed
from ringmq.broker.control import TICK_MS, ControlLoop
from ringmq.broker.control_report import read_report
from ringmq.broker.control_wiring import saved_by
from ringmq.broker.outbound_calls import Outcome
from ringmq.broker.tables.persistence import Persistence
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.json_body import read_object
from ringmq.remoting.route import BrokerData, TopicRouteData
from tests.broker.control_kit import Harness, ScriptedRegistrar, harness, now, with_name_server

__all__ = ["harness"]


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
    harness: Harness, log_text: Callable[[], str]
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
    assert log_text().count("refuses a single topic (request 217), answered 3: request type 217") == 1


def test_another_broker_of_the_same_name_is_told_and_reported(harness: Harness, log_text: Callable[[], str]) -> None:
    registrar = with_name_server(harness)
    assert [command.ext_fields["topic"] for _, command, _ in registrar.looks] == ["wire-a"]
    route = TopicRouteData(broker_datas=[BrokerData("DefaultCluster", "wire-a", {0: "10.0.0.2:10911"})])
    answer = RemotingCommand(0, body=route.encode(standard_json=True))
    registrar.ended.append(Outcome("ns:1", None, answer, RequestCode.GET_ROUTEINFO_BY_TOPIC))
    registrar.ended.append(Outcome("ns:1", None, RemotingCommand(0), RequestCode.REGISTER_BROKER))
    for ticks in (10, 100):
        harness.loop.turn(now() + ticks * TICK_MS)
    said = log_text()
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


def test_a_name_server_that_fails_again_is_told_again(harness: Harness, log_text: Callable[[], str]) -> None:
    registrar = with_name_server(harness)
    for error in ("refused", "refused", None, "refused"):
        registrar.ended.append(Outcome("ns:1", error))
        harness.loop.turn(now())
    said = log_text().splitlines()
    assert said == ["name server ns:1: refused", "name server ns:1 answers again", "name server ns:1: refused"]


def test_the_registration_period_is_live(harness: Harness) -> None:
    registrar = with_name_server(harness)
    harness.loop.broker.apply_config(changed(harness.loop.broker.config, {"registerNameServerPeriod": "10000"}))
    registrar.ended.append(Outcome("ns:1", None))
    began = now()
    harness.loop.turn(began)
    due = harness.loop._registrar._registration.servers["ns:1"].next_ms
    assert due == began + 10_000
