"""POP at a whole broker: messages are taken, acknowledged, come again, and survive deaths of its processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient, Taken
from tests.raw_client import RawClient
from tests.services.test_send_back_processes import make_group
from tests.staging import make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.timeout(180)
QUEUES = 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("pop") / "store", SMALL) as broker:
        yield broker
        assert broker.stop() == 0


def send(address: str, topic: str, bodies: list[bytes], queues: int = QUEUES) -> None:
    with RawClient(address) as client:
        for number, body in enumerate(bodies):
            assert client.send(topic, body, number % queues).code == 0


def committed(address: str, group: str, topic: str, queue_id: int) -> int:
    """The consumer offset, -1 without one."""
    with RawClient(address) as client:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "false"}
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return int(answer.ext_fields["offset"]) if answer.code == 0 else -1


def test_messages_are_taken_once_and_acknowledged(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_take", QUEUES)
    bodies = [b"m%d" % number for number in range(50)]
    send(broker.address, "T_take", bodies)
    client = PopClient(broker.address, "G_take2", "T_take")
    taken = [found(client), *client.pop_all(count=7)]
    assert sorted(one.body for one in taken) == sorted(bodies)
    assert client.pop() == []
    assert committed(broker.address, "G_take2", "T_take", 0) <= 0, "nothing is acknowledged"
    for one in taken:
        assert client.ack(one).code == 0
    wait_until(lambda: committed(broker.address, "G_take2", "T_take", 0) == 25, "offsets follow")
    assert committed(broker.address, "G_take2", "T_take", 1) == 25
    assert client.pop() == []


def test_a_message_comes_again_with_its_id_until_it_is_acknowledged(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_again", 1)
    send(broker.address, "T_again", [b"again"], 1)
    client = PopClient(broker.address, "G_again", "T_again")
    first = found(client, invisible_ms=300)
    again = found(client, invisible_ms=300)
    assert again.body == b"again" and again.flag == 1
    assert again.message.msg_id == first.message.msg_id and again.message.reconsume_times == 1
    assert again.message.properties["1ST_POP_TIME"] == first.receipt.split()[1]
    third = found(client)
    assert third.message.reconsume_times == 2
    assert third.message.properties["1ST_POP_TIME"] == first.receipt.split()[1]
    assert client.ack(third).code == 0
    wait_until(lambda: committed(broker.address, "G_again", "T_again", 0) == 1, "the source is done")
    retry = client.real_topic(third)
    wait_until(lambda: committed(broker.address, "G_again", retry, 0) == 2, "the copies are done")
    assert client.pop() == []


def found(client: PopClient, **more: int) -> Taken:
    """The next message, once there is one."""
    taken: list[Taken] = []

    def is_there() -> bool:
        taken.extend(client.pop(count=1, **more))
        return bool(taken)

    wait_until(is_there, "a pop finds a message")
    return taken[0]


def test_a_look_shows_what_pops_give(broker: RunningBroker) -> None:
    """Its group is made by the first look."""
    make_topic(broker.address, "T_look", QUEUES)
    bodies = [b"m%d" % number for number in range(12)]
    send(broker.address, "T_look", bodies)
    client = PopClient(broker.address, "G_look", "T_look")
    wait_until(lambda: sorted(client.peek()) == sorted(bodies), "a look shows all messages")
    assert sorted(client.peek()) == sorted(bodies)
    taken = client.pop(count=5)
    assert sorted([*client.peek(), *(one.body for one in taken)]) == sorted(bodies)
    assert len(client.pop_all()) == 7
    assert client.peek() == []
    fields = {"consumerGroup": "G_look", "topic": "T_look", "queueId": 0}
    assert client.raw.ask(RequestCode.POLLING_INFO, fields).ext_fields == {"pollingNum": "0"}


def test_a_late_acknowledgement_withdraws_the_copy(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_late", 1)
    send(broker.address, "T_late", [b"late"], 1)
    client = PopClient(broker.address, "G_late", "T_late")
    first = found(client, invisible_ms=1)
    retry = client.real_topic(first._replace(receipt=first.receipt.replace(" 0 broker-a", " 1 broker-a")))
    wait_until(lambda: len(messages_of(broker.address, retry, 1)) == 1, "the copy is there")
    assert client.ack(first).code == 0
    assert [client.pop() for _ in range(3)] == [[], [], []]


def test_a_deadly_message_becomes_a_dead_letter(tmp_path: Path) -> None:
    settings = {**SMALL, "ringmqPopDeadLetter": "true"}
    with RunningBroker(tmp_path / "store", settings) as broker:
        make_topic(broker.address, "T_dead", 1)
        send(broker.address, "T_dead", [b"dead"], 1)
        with RawClient(broker.address) as raw:
            make_group(raw, "G_dead", times=1)
        client = PopClient(broker.address, "G_dead", "T_dead")
        assert [found(client, invisible_ms=1).message.reconsume_times for _ in range(2)] == [0, 1]
        wait_until(lambda: len(messages_of(broker.address, "%DLQ%G_dead", 1)) == 1, "it is a dead letter")
        (letter,) = messages_of(broker.address, "%DLQ%G_dead", 1)
        assert letter.body == b"dead" and letter.properties["RETRY_TOPIC"] == "T_dead"
        assert client.pop() == []
        assert broker.stop() == 0


@pytest.mark.parametrize("end", ["stop", "kill-pop", "kill-all"])
def test_open_messages_outlive_the_processes(tmp_path: Path, end: str) -> None:
    """Acknowledged messages never come again, and receipts of before are good. Nothing is lost."""
    store, bodies = tmp_path / "store", [b"m%d" % number for number in range(200)]
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "T_kill", QUEUES)
        send(broker.address, "T_kill", bodies)
        wait_dispatched(broker.store)
        client = PopClient(broker.address, "G_kill", "T_kill")
        held = [found(client), *client.pop_all(count=9)]
        acked, kept = held[:80], held[80:]
        assert all(client.ack(one).code == 0 for one in acked)
        if end == "kill-pop":
            os.kill(broker.worker_pids()["pop"], signal.SIGKILL)
            check_rest(broker.address, acked, kept, bodies)
        elif end == "stop":
            assert broker.stop() == 0
        else:
            broker.kill_all()
    if end != "kill-pop":
        with RunningBroker(store, SMALL) as broker:
            assert "pop" in broker.worker_pids(), "it starts at once, because messages are open"
            check_rest(broker.address, acked, kept, bodies)
            assert broker.stop() == 0


def check_rest(address: str, acked: list[Taken], kept: list[Taken], bodies: list[bytes]) -> None:
    client = PopClient(address, "G_kill", "T_kill")
    taken = {one.body for one in client.pop_all(count=32)}
    assert not taken & {one.body for one in acked}, "an acknowledged message came again"
    assert not taken & {one.body for one in kept}, "a message is held by two consumers"
    for one in kept[:50]:
        assert client.change(one, 1).code == 0
    for one in kept[50:]:
        assert client.ack(one).code == 0
    came: set[bytes] = set()

    def is_back() -> bool:
        came.update(one.body for one in client.pop_all(count=32))
        return {one.body for one in kept[:50]} <= came

    wait_until(is_back, "messages with a short time come again")
    assert not came & {one.body for one in (*acked, *kept[50:])}
    assert not taken and len(acked) + len(kept) == len(bodies)


def test_an_offset_that_an_operator_sets_moves_the_group(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_set", 1)
    send(broker.address, "T_set", [b"a", b"b", b"c", b"d"], 1)
    client = PopClient(broker.address, "G_set", "T_set")
    assert client.ack(found(client)).code == 0
    wait_until(lambda: committed(broker.address, "G_set", "T_set", 0) == 1, "the offset is reported")
    with RawClient(broker.address) as raw:
        fields = {"consumerGroup": "G_set", "topic": "T_set", "queueId": 0, "commitOffset": 3}
        assert raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
        taken: list[bytes] = []

        def is_moved() -> bool:
            taken.extend(one.body for one in client.pop(1, 60_000))
            return b"d" in taken

        wait_until(is_moved, "the group goes on at the larger offset")
        fields["commitOffset"] = 0
        assert raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    taken.clear()

    def is_back() -> bool:
        taken.extend(one.body for one in client.pop_all(count=32))
        return {b"a", b"b", b"c", b"d"} <= set(taken)

    wait_until(is_back, "a new window begins at the smaller offset")
