"""Thousands of polls at a whole broker: bounds, clients that misbehave, and deaths of the processes that serve them."""

import os
import signal
from collections.abc import Iterator

import pytest

from ringmq.loadtest.load.running import RunningBroker
from tests.broker.test_processes import SMALL
from tests.conformance.wire import send_fields, shortened
from tests.pop.poll_crowd import Crowd, Reply, waiting
from tests.pop.test_polls_broker import FULL, begin, messages, started
from tests.pop.test_pop_broker import found, send
from tests.raw_client import SEND_BATCH, RawClient
from tests.staging import batch_body, make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
POLL_MS = 150_000
"""Longer than a test may take: a poll that ends at its time is a fault."""
POLLS, POLLS_MAX = 10_000, 12_000
QUEUES, BATCH = 4, 100
SETTINGS = {**SMALL, "popPollingSize": 1_000_000, "maxPopPollingSize": POLLS_MAX}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("crowds") / "store", SETTINGS) as broker:
        yield broker
        assert broker.stop() == 0


def send_all(address: str, topic: str, bodies: list[bytes]) -> None:
    """Batches of messages, to the queues in turn."""
    with RawClient(address) as client:
        for number in range(0, len(bodies), BATCH):
            fields = shortened(send_fields(topic, number // BATCH % QUEUES, {}, batch="true"))
            assert client.ask(SEND_BATCH, fields, batch_body(bodies[number : number + BATCH])).code == 0


def bodies_of(replies: list[Reply]) -> list[bytes]:
    """All messages that polls got. Each poll has one answer, with one message."""
    assert {reply.code for reply in replies} == {0}
    assert len({reply.opaque for reply in replies}) == len(replies)
    return sorted(body for reply in replies for body in reply.bodies)


def numbered(count: int) -> list[bytes]:
    return sorted(b"m%d" % number for number in range(count))


def begin_all(crowd: Crowd, broker: RunningBroker, group: str, topic: str) -> None:
    """Begin so many polls, and wait until all of them wait."""
    crowd.begin(POLLS, POLL_MS)
    wait_until(lambda: waiting(broker.address, group, topic) == POLLS, "the polls wait")


@pytest.mark.parametrize("worker", ["pop", "dispatch", "control"])
def test_polls_outlive_a_process(broker: RunningBroker, worker: str) -> None:
    """Each gets one message, and no message is lost or comes twice."""
    topic, group = f"C_{worker}", f"G_{worker}"
    make_topic(broker.address, topic, QUEUES)
    started(broker.address, group, topic).close()
    with Crowd(broker.address, group, topic) as crowd:
        begin_all(crowd, broker, group, topic)
        pid = broker.worker_pids()[worker]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: broker.worker_pids().get(worker, pid) != pid, "there is another one")
        send_all(broker.address, topic, numbered(POLLS))
        assert bodies_of(crowd.replies(POLLS)) == numbered(POLLS)
    wait_until(lambda: waiting(broker.address, group, topic) == 0, "no poll waits")


def test_polls_of_a_read_worker_that_dies_take_no_message(broker: RunningBroker) -> None:
    topic, group = "C_read", "G_read"
    make_topic(broker.address, topic, QUEUES)
    started(broker.address, group, topic).close()
    with Crowd(broker.address, group, topic) as crowd:
        begin_all(crowd, broker, group, topic)
        os.kill(broker.worker_pids()["read-0"], signal.SIGKILL)
        assert crowd.replies(1) == [] and crowd.is_closed
    with Crowd(broker.address, group, topic) as crowd:
        begin_all(crowd, broker, group, topic)
        send_all(broker.address, topic, numbered(POLLS))
        assert bodies_of(crowd.replies(POLLS)) == numbered(POLLS)


def test_polls_of_a_connection_that_ends_take_no_message(broker: RunningBroker) -> None:
    topic, group = "C_gone", "G_gone"
    make_topic(broker.address, topic, QUEUES)
    client = started(broker.address, group, topic)
    with Crowd(broker.address, group, topic) as crowd:
        begin_all(crowd, broker, group, topic)
        opaque = begin(client)
    send(broker.address, topic, [b"left"])
    assert [one.body for one in messages(client, opaque)] == [b"left"]
    wait_until(lambda: waiting(broker.address, group, topic) == 0, "no poll waits")


def test_many_polls_of_one_connection_hold_up_nobody(broker: RunningBroker) -> None:
    """100,000: as many as may wait in all do, the others are answered at once. Other clients go on meanwhile."""
    count = 100_000
    make_topic(broker.address, "C_flood", QUEUES)
    make_topic(broker.address, "C_calm", 1)
    started(broker.address, "G_flood", "C_flood").close()
    calm = started(broker.address, "G_calm", "C_calm")
    with Crowd(broker.address, "G_flood", "C_flood") as crowd:
        crowd.begin(count, POLL_MS)
        refused = crowd.replies((count - POLLS_MAX) // 2)
        send(broker.address, "C_calm", [b"calm"], 1)
        taken = found(calm)
        assert taken.body == b"calm" and calm.ack(taken).code == 0
        refused += crowd.replies(count - POLLS_MAX - len(refused))
        assert {reply.code for reply in refused} == {FULL}
        assert waiting(broker.address, "G_flood", "C_flood") == POLLS_MAX
        assert calm.ask_pop(pollTime=POLL_MS).code == FULL, "all groups share the places"
        assert calm.pop() == []
    wait_until(lambda: waiting(broker.address, "G_flood", "C_flood") == 0, "there is room again")
    opaque = begin(calm)
    send(broker.address, "C_calm", [b"again"], 1)
    assert [one.body for one in messages(calm, opaque)] == [b"again"]


def test_a_frame_that_is_repeated_is_a_poll_each_time(broker: RunningBroker) -> None:
    count = 200
    make_topic(broker.address, "C_same", QUEUES)
    started(broker.address, "G_same", "C_same").close()
    with Crowd(broker.address, "G_same", "C_same") as crowd:
        crowd.begin(count, POLL_MS, is_same=True)
        wait_until(lambda: waiting(broker.address, "G_same", "C_same") == count, "the polls wait")
        send_all(broker.address, "C_same", numbered(count))
        replies = crowd.replies(count)
    assert len({reply.opaque for reply in replies}) == 1 and {reply.code for reply in replies} == {0}
    assert sorted(body for reply in replies for body in reply.bodies) == numbered(count)
