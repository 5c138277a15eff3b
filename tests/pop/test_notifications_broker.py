"""Notifications that wait, at a whole broker: messages wake them, and deaths of the worker `pop` leave them waiting."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.role_words import Counter
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient
from tests.pop.pop_words import word
from tests.pop.test_pop_broker import found, send
from tests.raw_client import CLOSED, RawClient
from tests.services.late_start import ask_started
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
POLL_MS = 25_000
"""Below the time that the client waits for an answer."""
HOUR_MS = 3_600_000
TRUE = {"hasMsg": "true", "pollingFull": "false"}
FALSE = {"hasMsg": "false", "pollingFull": "false"}
FULL = {"hasMsg": "false", "pollingFull": "true"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    store = tmp_path_factory.mktemp("notifications") / "store"
    with RunningBroker(store, {**SMALL, "popPollingSize": "40"}) as broker:
        yield broker
        assert broker.stop() == 0


def asked(client: PopClient, poll_ms: int, **more: object) -> dict[str, object]:
    return {
        "consumerGroup": client.group, "topic": client.topic, "queueId": -1, "pollTime": poll_ms,
        "bornTime": time.time_ns() // 1_000_000, **more,
    }  # fmt: skip


def begin(client: PopClient, poll_ms: int = POLL_MS, **more: object) -> int:
    """Ask to be told of a message, without waiting for the answer. Returns its opaque."""
    return client.raw.send_request(RequestCode.NOTIFICATION, asked(client, poll_ms, **more))


def told(client: PopClient, opaque: int) -> dict[str, str]:
    """The fields of an answer."""
    received = client.raw.receive()
    assert received is not CLOSED and received.opaque == opaque
    assert received.code == 0, (received.code, received.remark)
    return received.ext_fields


def look(client: PopClient, **more: object) -> dict[str, str]:
    """The answer to a notification that does not wait."""
    return ask_started(client.raw, RequestCode.NOTIFICATION, asked(client, 0, **more)).ext_fields


def started(broker: RunningBroker, name: str, queues: int = 1) -> PopClient:
    """A client whose topic, group and worker are there."""
    make_topic(broker.address, f"N_{name}", queues)
    client = PopClient(broker.address, f"G_{name}", f"N_{name}")
    assert look(client) == FALSE
    return client


def test_a_message_is_told_and_not_taken(broker: RunningBroker) -> None:
    client = started(broker, "wake", 2)
    for body in (b"first", b"second"):
        opaque, before = begin(client), time.monotonic()
        send(broker.address, client.topic, [body])
        assert told(client, opaque) == TRUE
        assert time.monotonic() - before < POLL_MS / 2000
        assert look(client) == TRUE
        (taken,) = client.pop()
        assert taken.body == body and client.ack(taken).code == 0
        assert look(client) == FALSE


def test_a_notification_without_a_message_ends_at_its_time(broker: RunningBroker) -> None:
    client, before_ms = started(broker, "end"), time.time_ns() // 1_000_000
    assert told(client, begin(client, poll_ms=1200)) == FALSE
    assert time.time_ns() // 1_000_000 - before_ms >= 1100


def test_a_message_that_comes_again_is_told(broker: RunningBroker) -> None:
    """Its topic of retries is made while the notification waits."""
    client = started(broker, "again")
    send(broker.address, client.topic, [b"again"], 1)
    found(client, invisible_ms=1000)
    assert told(client, begin(client)) == TRUE
    (again,) = client.pop()
    assert again.flag == 1


def test_a_reset_is_told(broker: RunningBroker) -> None:
    client = started(broker, "reset")
    send(broker.address, client.topic, [b"reset"], 1)
    assert client.ack(found(client)).code == 0
    fields = {"consumerGroup": client.group, "topic": client.topic, "queueId": 0}
    with RawClient(broker.address) as raw:

        def offset() -> int:
            query = {**fields, "setZeroIfNotFound": "false"}
            return int(raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, query).ext_fields.get("offset", -1))

        wait_until(lambda: offset() == 1, "the offset follows")
        opaque = begin(client)
        assert raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 0}).code == 0
        assert told(client, opaque) == TRUE


def test_a_deletion_of_the_topic_ends_notifications(broker: RunningBroker) -> None:
    client = started(broker, "gone")
    opaque = begin(client)
    with RawClient(broker.address) as raw:
        assert raw.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": client.topic}).code == 0
    received = client.raw.receive()
    assert received is not CLOSED and received.opaque == opaque
    assert (received.code, received.ext_fields) == (ResponseCode.TOPIC_NOT_EXIST, FALSE)


def test_too_many_notifications_of_a_key_are_full(broker: RunningBroker) -> None:
    client = started(broker, "full")
    opaques = [begin(client, poll_ms=3000) for _ in range(43)]
    answers: dict[int, dict[str, str]] = {}
    for _ in opaques:
        received = client.raw.receive()
        assert received is not CLOSED and received.code == 0
        answers[received.opaque] = received.ext_fields
    assert [answers[opaque] for opaque in opaques] == [FALSE] * 41 + [FULL] * 2


def test_a_closed_connection_makes_room(broker: RunningBroker) -> None:
    client, other = started(broker, "closed"), PopClient(broker.address, "G_closed", "N_closed")
    opaques = [begin(client) for _ in range(42)]
    assert told(client, opaques[-1]) == FULL
    assert told(other, begin(other, poll_ms=100)) == FULL
    client.raw.close()
    wait_until(lambda: told(other, begin(other, poll_ms=100)) == FALSE, "there is room")
    opaque = begin(other)
    send(broker.address, other.topic, [b"closed"], 1)
    assert told(other, opaque) == TRUE


def test_each_message_is_told_to_one_of_many_notifications(broker: RunningBroker) -> None:
    """Each takes one message."""
    client = started(broker, "many", 4)
    taker = PopClient(broker.address, client.group, client.topic)
    opaques = {begin(client) for _ in range(20)}
    assert look(client) == FALSE, "all before it wait"
    bodies = [b"m%d" % number for number in range(12)]
    send(broker.address, client.topic, bodies, 4)
    got: list[bytes] = []
    while len(got) < len(bodies):
        received = client.raw.receive()
        assert received is not CLOSED and received.ext_fields == TRUE
        opaques.remove(received.opaque)
        got += [one.body for one in taker.pop(count=1, invisible_ms=HOUR_MS)]
    assert sorted(got) == sorted(bodies)
    client.raw.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):  # the others wait
        client.raw.receive()


@pytest.mark.parametrize("when", ["before", "while-down"])
def test_notifications_outlive_the_worker(broker: RunningBroker, when: str) -> None:
    """The read workers ask the next process for them."""
    client = started(broker, f"kill_{when}")
    opaques = {begin(client) for _ in range(20)}
    assert look(client) == FALSE
    pid = broker.worker_pids()["pop"]
    bodies = [b"m%d" % number for number in range(20)]
    if when == "while-down":
        os.kill(pid, signal.SIGSTOP)
        send(broker.address, client.topic, bodies, 1)
    os.kill(pid, signal.SIGKILL)
    if when == "before":
        wait_until(lambda: broker.worker_pids().get("pop", pid) != pid, "there is another worker")
        send(broker.address, client.topic, bodies, 1)
    while opaques:
        received = client.raw.receive()
        assert received is not CLOSED and received.ext_fields == TRUE, received
        opaques.remove(received.opaque)
    assert len(client.pop()) == 20


def test_answers_are_counted(broker: RunningBroker) -> None:
    client = started(broker, "count")
    before = word(broker, Counter.NOTIFIED), word(broker, Counter.NOT_NOTIFIED)
    opaque = begin(client)
    send(broker.address, client.topic, [b"count"], 1)
    assert told(client, opaque) == TRUE
    assert look(client) == TRUE and client.pop() and look(client) == FALSE
    after = word(broker, Counter.NOTIFIED), word(broker, Counter.NOT_NOTIFIED)
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)
