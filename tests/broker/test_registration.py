"""Registration: when each name server is called and what it is told; the threads that call servers, over sockets."""

import contextlib
import queue
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.identity import Identity
from ringmq.broker.config.relations import changed
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.registrar import Registrar
from ringmq.broker.registration import (
    SINGLE_TOPICS_MAX,
    Call,
    Registration,
    register_command,
    register_topic_command,
    unregister_command,
)
from ringmq.broker.requests.turns import SLICE_MS, TurnClock
from ringmq.loadtest.stock import free_port
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.json_body import read_object
from ringmq.remoting.namesrv_headers import RegisterBrokerRequestHeader
from ringmq.remoting.register_body import body_crc32, encode_register_body
from ringmq.remoting.route import QueueData, TopicRouteData
from tests.broker.fakes import START_MS, make_harness
from tests.waiting import TIMEOUT_S, wait_until

CONFIG = changed(
    BrokerConfig(),
    {"brokerName": "b", "brokerClusterName": "c", "namesrvAddr": "a:1;b:2", "haListenPort": "10912"},
)
SLAVE = {"brokerId": "1", "brokerRole": "SLAVE"}
CALL_MS = int(TIMEOUT_S * 1000)
IDENTITY = Identity("10.0.0.1", 10911, "10.0.0.2", 0)


def test_every_name_server_is_called_at_once_and_then_every_30_s() -> None:
    registration = Registration.of(CONFIG)
    assert registration.due(0) == [Call("a:1", None), Call("b:2", None)]
    assert registration.due(0) == [], "busy"
    registration.finished("a:1", True, 10)
    registration.finished("b:2", True, 10)
    assert registration.due(30_009) == []
    assert registration.due(30_010) == [Call("a:1", None), Call("b:2", None)]


def test_a_change_is_told_soon_alone_and_after_a_call_under_way() -> None:
    registration = Registration.of(CONFIG)
    registration.due(0)
    news = registration.changed(["T"])
    assert registration.due(1) == []
    registration.finished("a:1", True, 2)
    assert not registration.is_registered(news)
    assert registration.due(2) == [Call("a:1", frozenset({"T"}))]
    registration.finished("b:2", True, 2)
    assert registration.due(2) == [Call("b:2", frozenset({"T"}))]
    registration.finished("a:1", True, 3)
    assert not registration.is_registered(news)
    registration.finished("b:2", True, 3)
    assert registration.is_registered(news)
    registration.changed()
    assert registration.due(4) == [Call("a:1", None), Call("b:2", None)]


def test_a_name_server_that_failed_is_told_everything_and_waited_for_by_nobody() -> None:
    registration = Registration.of(changed(CONFIG, {"namesrvAddr": "a:1"}))
    registration.due(0)
    registration.finished("a:1", True, 0)
    news = registration.changed(["T"])
    registration.due(1)
    registration.finished("a:1", False, 2)
    assert registration.is_registered(news)
    assert registration.due(502) == [Call("a:1", None)]


def single_server() -> Registration:
    """One name server that knows the broker, at time 0."""
    registration = Registration.of(changed(CONFIG, {"namesrvAddr": "a:1"}))
    registration.due(0)
    registration.finished("a:1", True, 0)
    return registration


def test_a_refused_single_topic_is_followed_by_the_whole_table_until_the_connection_ends() -> None:
    registration = single_server()
    news = registration.changed(["T"])
    assert registration.due(1) == [Call("a:1", frozenset({"T"}))]
    registration.refused("a:1")
    assert not registration.is_registered(news)
    assert registration.due(1) == [Call("a:1", None)]
    registration.finished("a:1", True, 2)
    assert registration.is_registered(news)
    registration.changed(["T"])
    assert registration.due(3) == [Call("a:1", None)]
    registration.finished("a:1", True, 4)
    registration.lost("a:1", 1000)
    assert registration.due(1000) == [Call("a:1", None)]
    registration.finished("a:1", True, 1000)
    registration.changed(["T"])
    assert registration.due(1001) == [Call("a:1", frozenset({"T"}))], "perhaps another name server by now"


def test_single_topics_that_get_no_answer_twice_are_not_tried_a_third_time() -> None:
    registration = single_server()
    kinds, now = [], 0
    for _ in range(4):
        registration.changed(["T"])
        (call,) = registration.due(now)
        kinds.append(call.topics is None)
        registration.finished("a:1", call.topics is None, now)
        if call.topics is not None:
            now += 500
            (whole,) = registration.due(now)
            assert whole.topics is None
            registration.finished("a:1", True, now)
    assert kinds == [False, False, True, True]


def test_single_topics_are_no_sign_of_life() -> None:
    registration = single_server()
    for now in range(1000, 30_000, 1000):
        registration.changed(["T"])
        assert registration.due(now) == [Call("a:1", frozenset({"T"}))]
        registration.finished("a:1", True, now)
    assert registration.due(30_000) == [Call("a:1", None)], "30 s after the whole table before"


@pytest.mark.parametrize("values", [{"enableSingleTopicRegister": "false"}, SLAVE])
def test_the_whole_table_announces_a_change_where_single_topics_are_off(values: dict[str, str]) -> None:
    registration = single_server()
    registration.apply_config(changed(CONFIG, values))
    registration.changed(["T"])
    assert registration.due(1) == [Call("a:1", None)]


def test_many_changes_go_in_one_table() -> None:
    registration = single_server()
    registration.changed(map(str, range(SINGLE_TOPICS_MAX)))
    assert registration.due(1)[0].topics is not None
    registration.changed(map(str, range(SINGLE_TOPICS_MAX + 1)))
    registration.finished("a:1", True, 2)
    assert registration.due(2) == [Call("a:1", None)]


def test_one_that_fails_is_tried_again_with_growing_pauses() -> None:
    registration = Registration.of(changed(CONFIG, {"namesrvAddr": "a:1"}))
    assert registration.due(0)
    now, pauses = 0, []
    for _ in range(9):
        registration.finished("a:1", False, now)
        registration.changed()
        assert registration.due(now) == [], "a change does not hurry a name server that is down"
        again = registration.next_ms()
        assert again is not None
        assert registration.due(again) == [Call("a:1", None)]
        pauses.append(again - now)
        now = again
    assert pauses == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]


def test_a_slave_that_looks_for_its_master_asks_sooner_whoever_answers() -> None:
    registration = Registration.of(CONFIG)
    registration.due(0)
    registration.finished("a:1", True, 0)
    registration.finished("b:2", False, 0)
    registration.expedite(100, 1000)
    registration.expedite(900, 1000)
    assert registration.due(1000) == [Call("b:2", None)], "its own pause"
    assert registration.due(1100) == [Call("a:1", None)]
    registration.finished("a:1", True, 1100)
    assert registration.due(31_099) == [], "asked once: nothing hurries any more"


def test_no_address_means_nothing_to_do() -> None:
    assert Registration.of(BrokerConfig()).due(10**9) == []


def test_what_is_told() -> None:
    harness = make_harness()
    harness.make_topic("T", 2)
    command = register_command(CONFIG, IDENTITY, harness.broker.topics)
    header = RegisterBrokerRequestHeader.decode(command.ext_fields)
    assert command.code == RequestCode.REGISTER_BROKER
    assert (header.broker_addr, header.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.2:10912")
    assert header.body_crc32 == body_crc32(command.body)
    recorded = {
        "brokerId", "bodyCrc32", "clusterName", "brokerAddr", "enableActingMaster", "haServerAddr", "compressed",
        "brokerName",
    }  # fmt: skip
    assert set(command.ext_fields) == recorded, "the fields of stock's recorded registration"
    assert command.body == encode_register_body(harness.broker.topics.body())
    body = read_object(command.body, "x")
    assert body["topicConfigSerializeWrapper"]["topicConfigTable"]["T"]["perm"] == 6
    assert unregister_command(CONFIG, IDENTITY).ext_fields["brokerAddr"] == "10.0.0.1:10911"


def test_a_large_table_is_written_in_slices_and_once_for_all_name_servers() -> None:
    harness = make_harness({"namesrvAddr": "a:1;b:2"})
    for number in range(1000):
        harness.make_topic(f"T{number}", 1)
    harness.broker.outbox.changed_topics.clear()
    calls: list[tuple[str, RemotingCommand]] = []
    name_servers: Any = SimpleNamespace(
        outcomes=list, lost=list, call=lambda address, command, _: calls.append((address, command)),
        call_if_connected=lambda *_: None,
    )  # fmt: skip
    looks = iter(range(1 << 30))
    clock = TurnClock(lambda: 1_000_000 * next(looks))  # 1 ms passes with each look
    registrar = Registrar(harness.broker, name_servers, clock)
    turns = 0
    while not turns or registrar.is_busy:
        before = next(looks)
        registrar.turn(START_MS)
        assert next(looks) - before <= 2 + SLICE_MS + 1
        turns += 1
    assert turns > 1000 // 64 // SLICE_MS
    assert [address for address, _ in calls] == ["a:1", "b:2"]
    table = read_object(calls[0][1].body, "x")["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert set(table) == set(harness.broker.topics.names())
    assert calls[0][1].body == calls[1][1].body


def test_a_broker_that_may_not_be_written_says_so_in_its_topics() -> None:
    harness = make_harness()
    harness.make_topic("T", 2)
    command = register_command(changed(CONFIG, {"brokerPermission": "4"}), IDENTITY, harness.broker.topics)
    body = read_object(command.body, "x")
    assert body["topicConfigSerializeWrapper"]["topicConfigTable"]["T"]["perm"] == 4
    assert harness.broker.topics.body().topics["T"].perm == 6


def test_what_is_told_of_one_topic() -> None:
    topic = TopicConfig("T", 2, 3, 6, topic_sys_flag=1)
    command = register_topic_command(CONFIG, topic)
    assert (command.code, command.ext_fields) == (RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"})
    assert TopicRouteData.decode(command.body).queue_datas == [QueueData("b", 2, 3, 6, 1)]
    limited = register_topic_command(changed(CONFIG, {"brokerPermission": "4"}), topic)
    assert TopicRouteData.decode(limited.body).queue_datas == [QueueData("b", 2, 3, 4, 1)]


def test_a_lost_connection_is_followed_by_everything_at_once_and_later_where_it_is_lost_again_and_again() -> None:
    registration = Registration.of(changed(CONFIG, {"namesrvAddr": "a:1"}))
    registration.due(0)
    registration.lost("a:1", 1)
    registration.finished("a:1", True, 2)
    now = 20_000
    registration.lost("a:1", now)
    assert registration.due(now) == [Call("a:1", None)]
    pauses = []
    for _ in range(8):
        registration.finished("a:1", True, now)
        registration.lost("a:1", now)
        again = registration.next_ms()
        assert again is not None
        assert registration.due(again - 1) == []
        assert registration.due(again) == [Call("a:1", None)]
        pauses.append(again - now)
        now = again
    assert pauses == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
    registration.finished("a:1", False, now)
    registration.lost("a:1", now)
    assert registration.due(now + 499) == [], "refused: its pause stands"


class NameServer:
    """Answers each request with the next of `codes`; None closes the connection instead."""

    def __init__(self, codes: list[int | None]) -> None:
        self.codes = codes
        self.seen: queue.SimpleQueue[RemotingCommand] = queue.SimpleQueue()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.connection: socket.socket | None = None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while self.codes:
            connection, _ = self.listener.accept()
            self.connection = connection
            with connection, contextlib.suppress(ConnectionResetError):  # whoever leaves something unread resets
                self.talk(connection)

    def talk(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        while self.codes:
            data = connection.recv(65536)
            if not data:
                return
            for command in decoder.feed(data):
                self.seen.put(command)
                code = self.codes.pop(0)
                if code is None:
                    return
                connection.sendall(encode_frame(RemotingCommand.response_to(command, code, "said so")))


def test_the_thread_calls_and_reports() -> None:
    server = NameServer([0, 1, None, 0])
    rung = threading.Event()
    calls = OutboundCalls(rung.set)
    outcomes = []
    for wanted in (1, 2, 3):
        calls.call(server.address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)

        def arrived(count: int = wanted) -> bool:
            outcomes.extend(calls.outcomes())
            return len(outcomes) >= count

        wait_until(arrived, f"outcome {wanted}")
    assert [outcome.error for outcome in outcomes] == [None, "answered 1: said so", None]
    assert server.seen.qsize() == 4, "a connection that was closed meanwhile is tried once more"
    assert rung.is_set()
    calls.close(TIMEOUT_S)


def test_a_connection_that_ends_between_two_calls_is_noticed() -> None:
    server = NameServer([0, 0])
    rung = threading.Event()
    calls = OutboundCalls(rung.set)
    calls.call(server.address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)
    wait_until(calls.outcomes, "the answer")
    assert calls.lost() == []
    assert server.connection is not None
    server.connection.sendall(b"unasked")
    rung.clear()
    server.connection.shutdown(socket.SHUT_RDWR)
    assert rung.wait(TIMEOUT_S)
    assert calls.lost() == [server.address]
    assert calls.lost() == []
    calls.call(server.address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)
    calls.close(TIMEOUT_S)
    assert [outcome.error for outcome in calls.outcomes()] == [None]


def test_nobody_listening_is_an_outcome() -> None:
    address = f"127.0.0.1:{free_port()}"
    calls = OutboundCalls(lambda: None)
    calls.call(address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)
    calls.close(TIMEOUT_S)
    (outcome,) = calls.outcomes()
    assert outcome.address == address
    assert outcome.error


@pytest.mark.parametrize("address", ["127.0.0.1:x", "127.0.0.1:", "127.0.0.1:99999", f"{'h' * 100}:1", "h\0:1", ""])
def test_an_address_that_is_none_is_an_outcome(address: str) -> None:
    calls = OutboundCalls(lambda: None)
    for _ in range(2):
        calls.call(address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)
    calls.close(TIMEOUT_S)
    assert [(outcome.address, bool(outcome.error)) for outcome in calls.outcomes()] == [(address, True)] * 2


def test_only_connections_that_are_kept_last() -> None:
    servers = [NameServer([0, 0]) for _ in range(2)]
    calls = OutboundCalls(lambda: None)
    outcomes: list[Outcome] = []
    for server in servers:
        calls.call(server.address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)

    def are_answered() -> bool:
        outcomes.extend(calls.outcomes())
        return len(outcomes) == len(servers)

    wait_until(are_answered, "both answer")
    kept, gone = servers
    calls.keep({kept.address})
    calls.call_if_connected(kept.address, [RemotingCommand.request(RequestCode.REGISTER_BROKER)], CALL_MS)
    calls.call_if_connected(gone.address, [RemotingCommand.request(RequestCode.REGISTER_BROKER)], CALL_MS)
    calls.close(TIMEOUT_S)
    found = {outcome.address: outcome.error for outcome in calls.outcomes()}
    assert found == {kept.address: None, gone.address: "the connection was lost"}


def test_a_part_is_told_only_over_the_connection_that_told_the_whole() -> None:
    server = NameServer([0, None, 0])
    calls = OutboundCalls(lambda: None)
    outcomes: list[Outcome] = []
    command = RemotingCommand.request(RequestCode.REGISTER_BROKER)
    for wanted, if_connected in enumerate((True, False, True, True, False), 1):
        if if_connected:
            calls.call_if_connected(server.address, [command], CALL_MS)
        else:
            calls.call(server.address, command, CALL_MS)

        def arrived(count: int = wanted) -> bool:
            outcomes.extend(calls.outcomes())
            return len(outcomes) >= count

        wait_until(arrived, f"outcome {wanted}")
    errors = [outcome.error for outcome in outcomes]
    assert errors[0] == errors[3] == "the connection was lost"
    assert errors[1] is None and errors[4] is None
    assert errors[2] and "closed the connection" in errors[2]
    calls.close(TIMEOUT_S)


def test_the_first_error_ends_a_call_of_several_requests() -> None:
    server = NameServer([0, 0, 3, 0])
    calls = OutboundCalls(lambda: None)
    calls.call(server.address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)
    single = [RemotingCommand.request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": name}) for name in "abc"]
    calls.call_if_connected(server.address, single, CALL_MS)
    calls.call(server.address, RemotingCommand.request(RequestCode.REGISTER_BROKER), CALL_MS)
    calls.close(TIMEOUT_S)
    outcomes = calls.outcomes()
    assert [outcome.error for outcome in outcomes] == [None, "answered 3: said so", None]
    assert [outcome.request_code for outcome in outcomes] == [103, 217, 103]
    assert [server.seen.get().ext_fields for _ in range(4)] == [{}, {"topic": "a"}, {"topic": "b"}, {}]


def test_the_state_version_of_a_registration_is_the_epoch() -> None:
    """At each change, too: name servers compare it with that of an older master."""
    harness = make_harness()
    broker = harness.broker
    broker.topics.begin_epoch(65537, START_MS)

    def state_version() -> object:
        body = read_object(register_command(broker.config, broker.identity, broker.topics).body, "RegisterBrokerBody")
        return body["topicConfigSerializeWrapper"]["dataVersion"]["stateVersion"]

    assert state_version() == 65537
    broker.topics.put(TopicConfig("T", 1, 1, 6), START_MS)
    assert state_version() == 65537
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    assert broker.config.broker_permission == 4 and state_version() == 65537
    before = broker.topics.data_version.copy()
    broker.topics.begin_epoch(65537, START_MS)
    assert broker.topics.data_version == before, "the next control of this master"
