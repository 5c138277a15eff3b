"""Pops that wait, at a whole broker: messages wake them, and deaths of the worker `pop` leave them waiting."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import NOTHING, PopClient, Taken, pop_fields
from tests.pop.test_pop_broker import found, send
from tests.raw_client import CLOSED, RawClient
from tests.staging import TOPIC_FIELDS, make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
POLL_MS = 25_000
"""Below the time that the client waits for an answer."""
FULL = 209


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("polls") / "store", {**SMALL, "popPollingSize": "40"}) as broker:
        yield broker
        assert broker.stop() == 0


def begin(client: PopClient, poll_ms: int = POLL_MS, count: int = 32, **more: object) -> int:
    """Poll, without waiting for the answer. Returns its opaque."""
    fields = pop_fields(client.group, client.topic, count, 60_000, -1, pollTime=poll_ms, **more)
    return client.raw.send_request(RequestCode.POP_MESSAGE, fields)


def answer(client: PopClient, opaque: int) -> RemotingCommand:
    received = client.raw.receive()
    assert received is not CLOSED and received.opaque == opaque
    return received


def messages(client: PopClient, opaque: int) -> list[Taken]:
    """The messages that a poll gets."""
    received = answer(client, opaque)
    assert received.code == 0, (received.code, received.remark)
    return list(client.taken(received))


def started(address: str, group: str, topic: str) -> PopClient:
    """A client whose group and worker are there."""
    client = PopClient(address, group, topic)
    assert client.pop() == []
    return client


def test_a_message_wakes_a_poll(broker: RunningBroker) -> None:
    make_topic(broker.address, "P_wake", 2)
    client = started(broker.address, "G_wake", "P_wake")
    for body in (b"first", b"second"):
        opaque = begin(client)
        before = time.monotonic()
        send(broker.address, "P_wake", [body])
        (taken,) = messages(client, opaque)
        assert taken.body == body and client.ack(taken).code == 0
        assert time.monotonic() - before < POLL_MS / 2000


def test_a_poll_without_a_message_ends_at_its_time(broker: RunningBroker) -> None:
    make_topic(broker.address, "P_end", 1)
    client = started(broker.address, "G_end", "P_end")
    before_ms = time.time_ns() // 1_000_000
    received = answer(client, begin(client, poll_ms=1200))
    assert (received.code, received.remark) == (NOTHING, "NO_MESSAGE_IN_QUEUE")
    assert time.time_ns() // 1_000_000 - before_ms >= 1100


def test_a_message_that_comes_again_wakes_a_poll(broker: RunningBroker) -> None:
    """Its topic of retries is made while the poll waits."""
    make_topic(broker.address, "P_again", 1)
    send(broker.address, "P_again", [b"again"], 1)
    client = PopClient(broker.address, "G_again", "P_again")
    first = found(client, invisible_ms=1000)
    (again,) = messages(client, begin(client))
    assert again.body == first.body and again.flag == 1
    assert client.ack(again).code == 0


def test_a_reset_wakes_a_poll(broker: RunningBroker) -> None:
    make_topic(broker.address, "P_reset", 1)
    send(broker.address, "P_reset", [b"reset"], 1)
    client = PopClient(broker.address, "G_reset", "P_reset")
    assert client.ack(found(client)).code == 0
    fields = {"consumerGroup": "G_reset", "topic": "P_reset", "queueId": 0}
    with PopClient(broker.address, "G_reset", "P_reset").raw as raw:

        def offset() -> int:
            asked = {**fields, "setZeroIfNotFound": "false"}
            return int(raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).ext_fields.get("offset", -1))

        wait_until(lambda: offset() == 1, "the offset follows")
        opaque = begin(client)
        assert raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 0}).code == 0
        assert [one.body for one in messages(client, opaque)] == [b"reset"]


def test_a_deletion_of_the_topic_ends_polls(broker: RunningBroker) -> None:
    make_topic(broker.address, "P_gone", 1)
    client = started(broker.address, "G_gone", "P_gone")
    opaque = begin(client)
    with RawClient(broker.address) as raw:
        assert raw.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "P_gone"}).code == 0
    assert answer(client, opaque).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_topic_that_is_made_anew_at_once_loses_no_message(broker: RunningBroker) -> None:
    """Polls that the worker has not looked at meanwhile go on with the new topic."""
    make_topic(broker.address, "P_anew", 1)
    client = started(broker.address, "G_anew", "P_anew")
    opaques = {begin(client, count=1) for _ in range(20)}
    with RawClient(broker.address) as raw:
        assert raw.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "P_anew"}).code == 0
        fields = {"topic": "P_anew", "readQueueNums": 1, "writeQueueNums": 1, **TOPIC_FIELDS}
        wait_until(lambda: raw.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0, "the deletion has ended")
    bodies = [b"m%d" % number for number in range(len(opaques))]
    send(broker.address, "P_anew", bodies, 1)
    got: list[bytes] = []
    while opaques:
        received = client.raw.receive()
        assert received is not CLOSED and received.code in (0, ResponseCode.TOPIC_NOT_EXIST)
        opaques.remove(received.opaque)
        got += [one.body for one in client.taken(received)] if received.code == 0 else []
    got += [one.body for one in client.pop_all()]
    assert sorted(got) == sorted(bodies)


def test_too_many_polls_of_a_key_are_full(broker: RunningBroker) -> None:
    make_topic(broker.address, "P_full", 1)
    client = started(broker.address, "G_full", "P_full")
    opaques = [begin(client, poll_ms=3000) for _ in range(43)]
    codes = {}
    for _ in opaques:
        received = client.raw.receive()
        assert received is not CLOSED
        codes[received.opaque] = received.code
    assert [codes[opaque] for opaque in opaques] == [NOTHING] * 41 + [FULL] * 2


def test_a_poll_of_a_closed_connection_takes_no_message(broker: RunningBroker) -> None:
    make_topic(broker.address, "P_closed", 1)
    client, other = (started(broker.address, "G_closed", "P_closed") for _ in range(2))
    begin(client)
    opaque = begin(other)
    client.raw.close()
    send(broker.address, "P_closed", [b"closed"], 1)
    assert [one.body for one in messages(other, opaque)] == [b"closed"]


def test_each_message_goes_to_one_of_many_polls(broker: RunningBroker) -> None:
    make_topic(broker.address, "P_many", 4)
    clients = [started(broker.address, "G_many", "P_many") for _ in range(8)]
    polls = [(client, begin(client, count=1)) for client in clients for _ in range(5)]
    bodies = [b"m%d" % number for number in range(len(polls))]
    send(broker.address, "P_many", bodies, 4)
    got: list[bytes] = []
    for client in clients:
        waiting = {opaque for polling, opaque in polls if polling is client}
        while waiting:
            received = client.raw.receive()
            assert received is not CLOSED and received.code == 0
            waiting.remove(received.opaque)
            got += [one.body for one in client.taken(received)]
    assert sorted(got) == sorted(bodies)


@pytest.mark.parametrize("when", ["before", "while-down"])
def test_polls_outlive_the_worker(broker: RunningBroker, when: str) -> None:
    """The read workers ask the next process for them."""
    topic, group = f"P_kill_{when}", f"G_kill_{when}"
    make_topic(broker.address, topic, 1)
    client = started(broker.address, group, topic)
    opaques = [begin(client, count=1) for _ in range(20)]
    held = started(broker.address, group, topic)
    pid = broker.worker_pids()["pop"]
    bodies = [b"m%d" % number for number in range(20)]
    if when == "while-down":
        os.kill(pid, signal.SIGSTOP)
        send(broker.address, topic, bodies, 1)
    os.kill(pid, signal.SIGKILL)
    if when == "before":
        wait_until(lambda: broker.worker_pids().get("pop", pid) != pid, "there is another worker")
        send(broker.address, topic, bodies, 1)
    got: list[bytes] = []
    for _ in opaques:
        received = client.raw.receive()
        assert received is not CLOSED and received.code == 0, received
        got += [one.body for one in client.taken(received)]
    assert sorted(got) == sorted(bodies)
    assert held.pop() == []


def test_a_stop_ends_polls_with_their_connections(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        make_topic(broker.address, "P_stop", 1)
        client = started(broker.address, "G_stop", "P_stop")
        begin(client)
        assert broker.stop() == 0
        assert client.raw.receive() is CLOSED
