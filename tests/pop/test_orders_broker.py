"""Orderly groups at a whole broker: blocks, counts and acknowledgements survive deaths of its processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.order_file import FILE
from ringmq.remoting.codes import RequestCode
from ringmq.store.config_files import load_config
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient, Taken, pop_fields
from tests.pop.test_pop_broker import committed, send
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("orders") / "store", SMALL) as broker:
        yield broker
        assert broker.stop() == 0


def pop(client: PopClient, attempt: str, count: int = 3, invisible_ms: int = HOUR_MS, **more: object) -> list[Taken]:
    return client.pop(count, invisible_ms, order="true", attemptId=attempt, **more)


def first_pop(client: PopClient, attempt: str, count: int = 3, invisible_ms: int = HOUR_MS) -> list[Taken]:
    """The first batch, once the messages are there."""
    found: list[Taken] = []

    def is_whole() -> bool:
        found[:] = pop(client, "look", count, 0)
        return len(found) == count

    wait_until(is_whole, "the messages are there")
    return pop(client, attempt, count, invisible_ms)


def counts(client: PopClient, attempt: str, count: int = 3, invisible_ms: int = HOUR_MS) -> str:
    answer = client.ask_pop(count, invisible_ms, order="true", attemptId=attempt)
    return answer.ext_fields["orderCountInfo"]


def test_a_queue_is_read_in_its_order(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_order", 1)
    bodies = [b"m%d" % number for number in range(20)]
    send(broker.address, "T_order", bodies, 1)
    client, seen = PopClient(broker.address, "G_order", "T_order"), list[bytes]()
    batch = first_pop(client, "a0")
    while batch:
        assert pop(client, "other") == [], "the queue is blocked"
        for one in reversed(batch):
            assert client.ack(one).code == 0
        seen += [one.body for one in batch]
        batch = pop(client, f"a{len(seen)}")
    assert seen == bodies
    wait_until(lambda: committed(broker.address, "G_order", "T_order", 0) == 20, "the offset is reported")


def test_a_poll_is_woken_by_the_last_acknowledgement_and_by_time(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_poll", 1)
    send(broker.address, "T_poll", [b"a", b"b", b"c", b"d"], 1)
    client, other = (PopClient(broker.address, "G_poll", "T_poll") for _ in range(2))
    batch = first_pop(client, "a1", 2)
    other.raw.send_request(RequestCode.POP_MESSAGE, poll_fields("G_poll", "T_poll", 700))
    for one in batch:
        assert client.ack(one).code == 0
    answer = other.raw.receive()
    assert answer is not None
    assert [one.body for one in other.taken(answer)] == [b"c", b"d"]
    answer = other.raw.ask(RequestCode.POP_MESSAGE, poll_fields("G_poll", "T_poll", 700))
    assert answer.ext_fields["orderCountInfo"] == "0 qo0%2 1;0 qo0%3 1;0 0 1"


def poll_fields(group: str, topic: str, invisible_ms: int) -> dict[str, object]:
    """Fields of an orderly pop that waits."""
    return {**pop_fields(group, topic, 2, invisible_ms, 0, order="true"), "pollTime": 60_000}


@pytest.mark.parametrize("end", ["stop", "kill-pop", "kill-all"])
def test_blocks_and_counts_outlive_the_processes(tmp_path: Path, end: str) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "T_kill", 1)
        send(broker.address, "T_kill", [b"m%d" % number for number in range(6)], 1)
        client = PopClient(broker.address, "G_kill", "T_kill")
        first_pop(client, "a0", invisible_ms=0)
        batch = pop(client, "a1")
        assert client.ack(batch[1]).code == 0
        if end == "kill-pop":
            os.kill(broker.worker_pids()["pop"], signal.SIGKILL)
            check_batch(broker.address, batch)
        elif end == "stop":
            assert broker.stop() == 0
            assert load_config(store, FILE)["table"]["T_kill@G_kill"][0]["cm"] == 2
        else:
            broker.kill_all()
    if end != "kill-pop":
        with RunningBroker(store, SMALL) as broker:
            check_batch(broker.address, batch)
            assert broker.stop() == 0


def check_batch(address: str, batch: list[Taken]) -> None:
    """It blocks, its attempt gets it again, its receipts are good."""
    client = PopClient(address, "G_kill", "T_kill")
    assert pop(client, "a2") == []
    assert client.ack(batch[0]).code == 0
    wait_until(lambda: committed(address, "G_kill", "T_kill", 0) == 2, "both acknowledgements count")
    assert pop(client, "a2") == []
    assert counts(client, "a1", 1) == "0 qo0%2 2;0 0 2", "the attempt has had it twice before"
    (last,) = pop(client, "a1", 1)
    assert client.ack(last).code == 0
    assert [one.body for one in pop(client, "a3")] == [b"m3", b"m4", b"m5"]
