"""What a broker asks itself before it says that it is ready, and that it waits for the answer."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringmq.broker import self_probe, service_report
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.control_report import ControlReport, NameServerState, ReportWriter
from ringmq.broker.self_probe import TOPIC, ProbeOutcome, probe
from ringmq.broker.service_report import NAME_SERVERS_WAIT_MS, ServiceReport
from ringmq.ha.broker_client import BrokerClient
from ringmq.ipc.notify import ServiceManager
from ringmq.ipc.plane import Plane
from ringmq.loadtest.stock import free_port
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from tests.broker.exporter_kit import kit
from tests.client.scripted_broker import ScriptedBroker
from tests.fake_service_manager import FakeServiceManager
from tests.waiting import TIMEOUT_S, wait_until

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


def answering(codes: dict[int, int]) -> Callable[[RemotingCommand], bytes | None]:
    def script(request: RemotingCommand) -> bytes | None:
        return encode_frame(RemotingCommand.response_to(request, codes[request.code], "because"))

    return script


def test_a_send_that_waits_for_nobody_is_enough() -> None:
    with ScriptedBroker(answering({SEND: ResponseCode.SUCCESS})) as broker:
        outcome = probe(broker.address, may_send=True)
    (request,) = broker.requests
    assert (outcome.is_served, outcome.text) == (True, "")
    assert request.ext_fields["b"] == TOPIC and "WAIT\x01false\x02" in request.ext_fields["i"]


@pytest.mark.parametrize(
    ("code", "served"),
    [(ResponseCode.PULL_NOT_FOUND, True), (ResponseCode.NO_PERMISSION, True), (ResponseCode.SYSTEM_ERROR, False)],
)
def test_a_pull_is_asked_where_the_send_is_refused(code: int, served: bool) -> None:
    with ScriptedBroker(answering({SEND: ResponseCode.SERVICE_NOT_AVAILABLE, PULL: code})) as broker:
        outcome = probe(broker.address, may_send=True)
    assert [request.code for request in broker.requests] == [SEND, PULL]
    assert outcome.is_served == served
    assert outcome.text == ("a send is answered 14: because" if served else "a pull is answered 1: because")


def test_a_slave_is_asked_for_a_pull_alone() -> None:
    with ScriptedBroker(answering({PULL: ResponseCode.SUCCESS})) as broker:
        assert probe(broker.address, may_send=False).is_served
    assert [request.code for request in broker.requests] == [PULL]


def test_who_does_not_answer_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_probe, "TIMEOUT_MS", 200)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not probe(f"127.0.0.1:{silent.getsockname()[1]}", may_send=True).is_served
    address = f"127.0.0.1:{free_port()}"
    outcome = probe(address, may_send=True)
    assert not outcome.is_served and outcome.text.startswith(f"no answer on {address}: ")


def test_an_error_without_words_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(BrokerClient, "ask", ask)
    assert probe("a:1", may_send=True).text == "no answer on a:1: TimeoutError"


class Started:
    """A broker's report from the moment when all of its workers serve."""

    def __init__(self, report: ServiceReport, manager: FakeServiceManager, plane: Plane) -> None:
        self.manager, self.plane, self.writer = manager, plane, ReportWriter(plane.name)
        self._report = report

    def is_ready(self, now_ms: int) -> bool:
        self._report.tick(now_ms, serving=True, stopping=False)
        self.manager.receive()
        return any("READY" in message for message in self.manager.messages)


@pytest.fixture
def open_gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def started(tmp_path: Path, open_gate: threading.Event) -> Iterator[Started]:
    def script(request: RemotingCommand) -> bytes | None:
        open_gate.wait(TIMEOUT_S)
        return answering({SEND: ResponseCode.SUCCESS})(request)

    manager = FakeServiceManager(tmp_path)
    config = changed(BrokerConfig(), {"namesrvAddr": "a:1;b:2"})
    with kit(tmp_path) as made, ScriptedBroker(script) as broker:
        report = ServiceReport(ServiceManager(manager.environment), config, broker.address, "broker a")
        report.watch(made.plane)
        yield Started(report, manager, made.plane)
    manager.close()


def test_ready_comes_behind_the_first_registration_and_the_answer(started: Started, open_gate: threading.Event) -> None:
    open_gate.set()
    assert not started.is_ready(0)
    started.writer.publish(ControlReport(6, (NameServerState("a:1", True, 0), NameServerState("b:2", False, 0))), 0)
    assert not started.is_ready(100), "one name server was not asked yet"
    started.writer.publish(ControlReport(6, (NameServerState("a:1", True, 0), NameServerState("b:2", False, 1))), 2000)
    wait_until(lambda: started.is_ready(200), "both were asked, and it has answered itself")


def test_ready_waits_for_the_answer_and_not_for_ever_for_name_servers(
    started: Started, open_gate: threading.Event
) -> None:
    assert not started.is_ready(0)
    for number in range(20):
        assert not started.is_ready(NAME_SERVERS_WAIT_MS + number), "nobody has answered the question"
        threading.Event().wait(0.01)  # span: an answer would have time to come
    open_gate.set()
    wait_until(lambda: started.is_ready(NAME_SERVERS_WAIT_MS + 100), "it has answered itself")


def test_a_broker_full_of_clients_is_ready(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come back over the kept sockets before it has asked itself; ended for that, it would never be ready."""
    monkeypatch.setattr(service_report, "SelfProbe", Refused)
    started.plane.header.settings.connections_max = started.plane.header.settings.host_connections_max = 16
    reader = started.plane.role(lib.RMQ_ROLE_READ)
    reader.counters[lib.RMQ_READ_CONNECTIONS] = 15
    assert not any(started.is_ready(NAME_SERVERS_WAIT_MS * number) for number in range(4))
    reader.counters[lib.RMQ_READ_CONNECTIONS] = 16
    assert any(started.is_ready(NAME_SERVERS_WAIT_MS * number) for number in range(4, 8))


class Refused:
    """A question that nobody takes."""

    def __init__(self, *_: object, may_send: bool) -> None:
        self.outcome = ProbeOutcome(False, "closed")
