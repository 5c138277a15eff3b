"""A consumer that starts in the same instant as the first send misses nothing, unless it is to begin at the end.

Stock loses a message where a new group asks for its offset in an empty queue (not found), a message arrives, and the
client then begins at the queue's maximum. Here the first question is answered with 0.
"""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from ringmq.client import ConsumeFrom, Consumer, Message, Producer, PullOptions, blocking
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.message import decode_messages
from tests.raw_client import RawClient
from tests.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.timeout(180)
RACES = 200
SDK_RACES = 25
QUERY_OFFSET, MAX_OFFSET, UPDATE_TOPIC = 14, 30, 17
NOT_FOUND = 22
SETTINGS = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "maxMessageSize": 65_536,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("first") / "store", SETTINGS) as running:
        yield running
        assert running.stop() == 0


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.address) as connected:
        yield connected


def make_topic(client: RawClient, topic: str, queues: int = 1) -> None:
    made = client.ask(UPDATE_TOPIC, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    })  # fmt: skip
    assert made.code == 0


def first_offset(client: RawClient, topic: str, group: str) -> int:
    """Where a stock consumer (CONSUME_FROM_LAST_OFFSET) begins: its committed offset, else the maximum."""
    answer = client.ask(QUERY_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": 0})
    if answer.code == NOT_FOUND:
        answer = client.ask(MAX_OFFSET, {"topic": topic, "queueId": 0})
    assert answer.code == 0
    return int(answer.ext_fields["offset"])


@pytest.mark.parametrize(
    ("field", "code"), [({}, 0), ({"setZeroIfNotFound": "true"}, 0), ({"setZeroIfNotFound": "false"}, 22)]
)
def test_an_empty_queue_is_begun_at_zero_unless_the_client_forbids_it(
    client: RawClient, field: dict[str, str], code: int
) -> None:
    make_topic(client, "Empty")
    answer = client.ask(QUERY_OFFSET, {"consumerGroup": "new", "topic": "Empty", "queueId": 0, **field})
    assert answer.code == code
    assert answer.ext_fields.get("offset") == ("0" if code == 0 else None)


def test_a_group_that_has_committed_keeps_its_offset(client: RawClient) -> None:
    make_topic(client, "Known")
    assert client.send("Known", b"a").code == client.send("Known", b"b").code == 0
    client.pull("Known")  # makes the group
    committed = client.ask(15, {"consumerGroup": "raw_group", "topic": "Known", "queueId": 0, "commitOffset": 1})
    assert committed.code == 0
    assert first_offset(client, "Known", "raw_group") == 1


def test_raw_consumers_that_race_with_the_first_send_miss_nothing(broker: RunningBroker, client: RawClient) -> None:
    """The question and the send go off at once, in every order that the threads happen to take."""
    with RawClient(broker.address) as producer:
        for race in range(RACES):
            topic = f"Race{race}"
            make_topic(client, topic)
            gate = threading.Barrier(2)
            codes: list[int] = []

            def send(topic: str = topic, gate: threading.Barrier = gate, codes: list[int] = codes) -> None:
                gate.wait(TIMEOUT_S)
                codes.append(producer.send(topic, b"first").code)

            thread = threading.Thread(target=send)
            thread.start()
            gate.wait(TIMEOUT_S)
            offset = first_offset(client, topic, f"group{race}")
            thread.join(TIMEOUT_S)
            assert codes == [0]
            fields = {"sysFlag": 2 | 4, "suspendTimeoutMillis": 25_000}
            answer = client.pull(topic, 0, offset, consumerGroup=f"group{race}", **fields)
            assert answer.code == 0, f"race {race}: began at {offset}: {answer}"
            assert [bytes(message.body) for message in decode_messages(answer.body)] == [b"first"]


@pytest.mark.parametrize("consume_from", [ConsumeFrom.FIRST, ConsumeFrom.LAST])
def test_sdk_consumers_that_race_with_the_first_send_miss_nothing(
    broker: RunningBroker, client: RawClient, consume_from: ConsumeFrom
) -> None:
    """LAST begins at the end that its start finds, so the sends follow the start at once."""

    async def race(producer: Producer, number: int) -> None:
        topic = f"Sdk{consume_from.name}{number}"
        make_topic(client, topic, queues=2)
        options = PullOptions(suspend_ms=1000)
        consumer = Consumer(topic, broker.namesrv, f"sdk{number}", consume_from=consume_from, options=options)

        started = asyncio.Event()

        async def receive() -> list[bytes]:
            found: list[bytes] = []
            async with consumer:
                started.set()
                while len(found) < 2 and (messages := await consumer.poll(timeout_ms=60_000)):
                    found += [bytes(message.body) for message in messages]
            return found

        receiving = asyncio.create_task(receive())
        if consume_from is ConsumeFrom.LAST:
            await started.wait()
        else:
            await asyncio.sleep(number % 5 * 0.004)  # an observed span: at different moments of the consumer's start
        for queue in await producer.queues(topic):
            await producer.send(Message(topic, b"first in %d" % queue.queue_id), queue=queue)
        assert sorted(await receiving) == [b"first in 0", b"first in 1"], f"race {number}"

    async def races() -> None:
        async with Producer(broker.namesrv) as producer:
            for number in range(SDK_RACES):
                await race(producer, number)

    asyncio.run(races())


def test_a_consumer_of_a_topic_that_the_first_send_creates(broker: RunningBroker) -> None:
    """The consumer is there before the topic is."""
    options = PullOptions(suspend_ms=1000)
    with (
        blocking.Producer(broker.namesrv) as producer,
        blocking.Consumer("MadeLater", broker.namesrv, "early", options=options) as consumer,
    ):
        producer.send(Message("MadeLater", b"first"))
        messages = consumer.poll(timeout_ms=60_000)
        assert [bytes(message.body) for message in messages] == [b"first"]


def test_last_and_a_time_hold_for_a_young_topic(broker: RunningBroker, client: RawClient) -> None:
    """Its first message is in memory, so a stock client gets the offset 0 in place of "not found"."""
    make_topic(client, "Young")
    with blocking.Producer(broker.namesrv) as producer:
        for body in (b"old", b"older"):
            producer.send(Message("Young", body))
        assert first_offset(client, "Young", "stock") == 0
        soon_ms = time.time_ns() // 10**6 + 1
        wait_until(lambda: time.time_ns() // 10**6 > soon_ms, "the clock has gone on")
        timestamp = ConsumeFrom.TIMESTAMP
        with (
            blocking.Consumer("Young", broker.namesrv, "last") as last,
            blocking.Consumer("Young", broker.namesrv, "timed", consume_from=timestamp, timestamp_ms=soon_ms) as timed,
        ):
            producer.send(Message("Young", b"new"))
            for consumer in (last, timed):
                assert [bytes(message.body) for message in consumer.poll(timeout_ms=60_000)] == [b"new"]
