"""Programs as the pages of the 4.x Python clients show them, with only the import changed, against both servers."""

import ctypes
import functools
import gc
import queue
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ringmq.client import PullOptions, blocking, compose_message
from ringmq.client.errors import RingmqError
from ringmq.client.rocketmq4 import consumers
from ringmq.client.rocketmq4.client import (
    ConsumeStatus,
    Message,
    MessageModel,
    MessageProperty,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RecvMessage,
    SendStatus,
    TransactionMQProducer,
    TransactionStatus,
)
from ringmq.client.rocketmq4.exceptions import (
    ConsumerException,
    ProducerSendAsyncFailed,
    ProducerSendOrderlyFailed,
    ProducerSendSyncFailed,
    ProducerStartFailed,
    PullConsumerFetchMQFailed,
    PullConsumerStartFailed,
    PushConsumerStartFailed,
    RocketMQException,
)
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.message import MessageExt
from tests.client.threaded_cluster import threaded_cluster
from tests.conformance.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


class Taken:
    """A callback that keeps what it got."""

    def __init__(
        self, answer: Callable[[ReceivedMessage], Any] = lambda message: ConsumeStatus.CONSUME_SUCCESS
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        self._answer = answer

    def __call__(self, message: ReceivedMessage) -> Any:
        self.messages.append(message)
        return self._answer(message)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


@pytest.fixture
def own_topic() -> str:
    """One that no server knows yet."""
    return f"T_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(server: Server, own_topic: str) -> str:
    """It exists, so that a consumer that starts first reads it from its beginning."""
    with blocking.Producer(server.namesrv) as producer:
        producer.queues(own_topic)
    return own_topic


def created(topic: str, body: str | bytes = "XXXX") -> Message:
    message = Message(topic)
    message.set_keys("XXX")
    message.set_tags("XXX")
    message.set_property("property", "test")
    message.set_body(body)
    return message


def wait_for_messages(server: Server, topic: str, count: int) -> None:
    """Until the name server knows the topic and its queues hold so many: who pulls is told no more than that."""
    with blocking.Cluster(server.namesrv) as cluster:
        wait_until(
            lambda: sum(end - begin for begin, end in cluster.bounds([topic]).values()) == count,
            f"{topic} has {count} messages",
        )


def test_the_program_of_0_4(server: Server, topic: str) -> None:
    producer = Producer("PID-XXX")
    producer.set_namesrv_addr(server.namesrv)
    producer.start()
    ret = producer.send_sync(created(topic))
    assert (ret.status, ret.offset) == (SendStatus.OK, 0)
    producer.shutdown()
    wait_for_messages(server, topic, 1)

    consumer = PullConsumer("CID_XXX")
    consumer.set_namesrv_addr(server.namesrv)
    consumer.start()
    (message,) = list(consumer.pull(topic))
    assert isinstance(message, RecvMessage)
    assert (message.id, message.body) == (ret.msg_id, b"XXXX")
    assert (message.topic, message.tags, message.keys, message["property"]) == (topic, b"XXX", b"XXX", b"test")
    assert message.get_property(MessageProperty.TAGS) == b"XXX"
    assert (message["none"], message.delay_time_level, message.reconsume_times) == (b"", 0, 0)
    assert message.store_size > 91 and message.born_timestamp <= message.store_timestamp
    assert (str(message), bytes(message)) == ("XXXX", b"XXXX")
    assert repr(message).startswith(f"<ReceivedMessage topic='{topic}' id='{ret.msg_id}' body=b'XXXX'")
    assert list(consumer.pull(topic)) == []
    consumer.shutdown()


def test_the_program_of_2_0(server: Server, topic: str) -> None:
    producer = Producer("test", True)
    producer.set_name_server_address(server.namesrv)
    producer.start()
    results = [producer.send_orderly_with_sharding_key(created(topic, f"{i}"), "orderId") for i in range(10)]
    assert [result.offset for result in results] == list(range(10))
    assert len({result.msg_id for result in results}) == 10
    producer.shutdown()

    taken = Taken()
    consumer = PushConsumer(f"G_{topic}", orderly=True)
    consumer.set_name_server_address(server.namesrv)
    consumer.subscribe(topic, taken, "XXX || YYY")
    consumer.start()
    wait_until(lambda: len(taken.messages) == 10, "all ten are consumed", 60)
    consumer.shutdown()
    assert taken.bodies() == [b"%d" % i for i in range(10)]
    assert len({message.queue_id for message in taken.messages}) == 1


def test_every_way_to_send(server: Server, topic: str) -> None:
    outcomes: queue.Queue[Any] = queue.Queue()

    def second(mq_size: int, message: ReceivedMessage, arg: Any) -> int:
        assert (mq_size, message.topic) == (4, topic)
        return ctypes.cast(arg, ctypes.POINTER(ctypes.c_int)).contents.value + 1

    producer = Producer("all_ways", 5000, 6, 100_000)
    producer.set_namesrv_addr(server.namesrv)
    with producer:
        batch = producer.send_batch([created(topic, f"batch {i}") for i in range(3)])
        assert batch.status is SendStatus.OK
        producer.send_oneway(created(topic, "oneway"))
        producer.send_async(created(topic, "async"), outcomes.put, outcomes.put)
        assert outcomes.get(timeout=30).status is SendStatus.OK
        assert producer.send_orderly(created(topic, "orderly"), 7).status is SendStatus.OK
        assert producer.send_orderly(created(topic, "selected"), 0, 3, second).status is SendStatus.OK
        producer.send_oneway_orderly(created(topic, "oneway selected"), 1, second)
        with pytest.raises(ProducerSendOrderlyFailed, match="chose queue 9 of 4"):
            producer.send_orderly(created(topic), 0, queue_selector=lambda *_: 9)
        with pytest.raises(ProducerSendSyncFailed, match="body is empty"):
            producer.send_sync(Message(topic))
        with pytest.raises(ProducerSendSyncFailed, match="100000"):
            producer.send_sync(created(topic, b"x" * 100_001))
    with pytest.raises(ProducerSendSyncFailed, match="not started"):
        producer.send_sync(created(topic))
    wait_for_messages(server, topic, 8)
    consumer = PullConsumer("CID_all_ways")
    consumer.set_namesrv_addr(server.namesrv)
    with consumer:
        by_body = {str(message): message.queue_id for message in consumer.pull(topic, "XXX")}
        assert by_body.keys() == {
            "batch 0", "batch 1", "batch 2", "oneway", "async", "orderly", "selected", "oneway selected",
        }  # fmt: skip
        assert (by_body["orderly"], by_body["selected"], by_body["oneway selected"]) == (3, 1, 2)
        assert list(consumer.pull(topic, "another")) == []
        with pytest.raises(PullConsumerFetchMQFailed, match="no_such_topic"):
            list(consumer.pull("no_such_topic"))


def test_a_long_queue_is_read_to_its_end(ringmq_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many messages may be open at a time."""
    few = functools.partial(blocking.Consumer, options=PullOptions(batch_count=2, unacked_max=4))
    monkeypatch.setattr(consumers, "BlockingConsumer", few)
    monkeypatch.setattr(consumers, "PULL_TIMEOUT_MS", 3000)
    with blocking.Producer(ringmq_server.namesrv) as producer:
        producer.send_all([compose_message(topic, b"%d" % i) for i in range(60)])
    wait_for_messages(ringmq_server, topic, 60)
    consumer = PullConsumer(f"G_{topic}")
    consumer.set_namesrv_addr(ringmq_server.namesrv)
    with consumer:
        assert sorted(int(message.body) for message in consumer.pull(topic)) == list(range(60))


def test_a_failed_message_comes_again(server: Server, topic: str) -> None:
    def fail_once(message: ReceivedMessage) -> ConsumeStatus | None:
        if len(taken.messages) == 1:
            return ConsumeStatus.RECONSUME_LATER
        if len(taken.messages) == 2:
            raise ValueError("again")
        return None

    taken = Taken(fail_once)
    consumer = PushConsumer(f"G_{topic}", orderly=True)  # an ordered consumer tries again at once, at every server
    consumer.set_namesrv_addr(server.namesrv)
    consumer.subscribe(topic, taken)
    consumer.set_thread_count(2)
    consumer.set_message_batch_max_size(1)
    consumer.set_instance_name("one")
    producer = Producer("again")
    producer.set_namesrv_addr(server.namesrv)
    with producer:
        producer.send_sync(created(topic, "again"))
    with consumer:
        wait_until(lambda: len(taken.messages) >= 3, "it comes again", 60)
    assert taken.bodies() == [b"again"] * 3


def test_broadcasting_keeps_its_offsets_here(
    server: Server, topic: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    taken = Taken()
    consumer = PushConsumer(f"G_{topic}", message_model=MessageModel.BROADCASTING)
    consumer.set_namesrv_addr(server.namesrv)
    consumer.subscribe(topic, taken)
    consumer.start()
    producer = Producer("all")
    producer.set_namesrv_addr(server.namesrv)
    with producer:
        producer.send_sync(created(topic, "all"))
        wait_until(lambda: taken.bodies() == [b"all"], "the member has it", 60)
    consumer.shutdown()
    consumer.shutdown()
    offsets = list((tmp_path / ".rocketmq_offsets").rglob("offsets.json"))
    assert len(offsets) == 1 and topic in offsets[0].read_text()


def test_transactions_end_by_what_callbacks_say(stock_server: Server, own_topic: str) -> None:
    """RingMQ's broker refuses half messages by name; stock asks for what it was not told."""
    topic = own_topic
    asked, seen = Taken(lambda _: TransactionStatus.COMMIT), Taken()

    def local(message: ReceivedMessage, ids: list[str]) -> TransactionStatus:
        ids.append(message.id)
        return TransactionStatus[message.body.decode()]

    producer = TransactionMQProducer(f"P_{topic}", asked)
    producer.set_name_server_address(stock_server.namesrv)
    consumer = PullConsumer(f"G_{topic}")
    consumer.set_name_server_address(stock_server.namesrv)

    def published() -> list[bytes]:
        seen.messages += consumer.pull(topic)
        return seen.bodies()

    with producer, consumer:
        producer.send_sync(created(topic, "plain"))
        for body in ("UNKNOWN", "COMMIT", "ROLLBACK"):
            ids: list[str] = []
            result = producer.send_message_in_transaction(created(topic, body), local, ids)
            assert (result.status, ids) == (SendStatus.OK, [result.msg_id])
            if body == "UNKNOWN":  # before anything is committed: stock's check goes slowly behind that
                wait_until(lambda: b"UNKNOWN" in published(), "the broker asks", 120)
        wait_until(lambda: b"COMMIT" in published(), "what was committed is there", 60)
    assert sorted(seen.bodies()) == [b"COMMIT", b"UNKNOWN", b"plain"]
    assert set(asked.bodies()) == {b"UNKNOWN"}


def test_a_pull_consumer_that_cannot_start_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise RingmqError("nobody is there")

    monkeypatch.setattr(consumers.Cluster, "start", refused)
    before = threading.active_count()
    consumer = PullConsumer("g")
    consumer.set_namesrv_addr("127.0.0.1:1")
    with pytest.raises(PullConsumerStartFailed, match="nobody is there"):
        consumer.start()
    assert threading.active_count() == before
    consumer.shutdown()


def test_what_is_wrong_is_said_at_start() -> None:
    for client, error in ((Producer("g"), ProducerStartFailed), (PushConsumer("g"), PushConsumerStartFailed)):
        with pytest.raises(error, match=r"no name server address|at least one topic"):
            client.start()
    nowhere = Producer("g", timeout=300)
    nowhere.set_namesrv_addr("127.0.0.1:1")
    failures: queue.Queue[ProducerSendAsyncFailed] = queue.Queue()
    with nowhere:
        with pytest.raises(ProducerSendSyncFailed, match=r"127\.0\.0\.1:1"):
            nowhere.send_sync(created("Anywhere"))
        nowhere.send_async(created("Anywhere"), None, failures.put)
        failure = failures.get(timeout=30)
        assert (failure.error, failure.type) == (0, "SendError")
    with pytest.raises(ProducerStartFailed, match="illegal characters"):
        bad = Producer("g g")
        bad.set_namesrv_addr("127.0.0.1:1")
        bad.start()
    with pytest.raises(ProducerStartFailed, match="compression_level of ZLIB must be -1 to 9, not 10"):
        strong = Producer("g", compress_level=10)
        strong.set_namesrv_addr("127.0.0.1:1")
        strong.start()
    with pytest.raises(ConsumerException, match="thread_count"):
        PushConsumer("g").set_thread_count(0)
    with pytest.raises(RocketMQException, match="access_key is empty"):
        Producer("g").set_session_credentials("", "secret", "ALIYUN")


def test_a_number_is_no_status() -> None:
    """Callbacks of 0.4.4 return what they like."""
    consumer = PushConsumer("g")
    for answer in (1, True, 0, "1", None, ConsumeStatus.CONSUME_SUCCESS):
        consumer.subscribe("T", lambda message, answer=answer: answer)
        consumer._handle(MessageExt("T", b"x"))
    consumer.subscribe("T", lambda message: ConsumeStatus.RECONSUME_LATER)
    with pytest.raises(Exception, match="RECONSUME_LATER"):
        consumer._handle(MessageExt("T", b"x"))


@pytest.mark.parametrize("kind", [Producer, TransactionMQProducer, PullConsumer])
def test_who_drops_a_client_has_shut_it_down(kind: Any) -> None:
    with threaded_cluster(topics={"T": 1}) as cluster:
        before = threading.active_count()
        client = kind("g", lambda message: TransactionStatus.COMMIT) if kind is TransactionMQProducer else kind("g")
        client.set_namesrv_addr(cluster.namesrv)
        client.start()
        if kind is not PullConsumer:
            client.send_sync(created("T"))
        assert threading.active_count() > before
        del client
        gc.collect()
        wait_until(lambda: threading.active_count() <= before, "no thread is left", 20)  # one of another test may end
        assert kind is PullConsumer or cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)


def test_addresses_come_from_a_page(ringmq_server: Server) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{ringmq_server.namesrv}\n".encode())

        def log_message(self, *_: Any) -> None:
            """Quietly."""

    page = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    producer = Producer("by_page")
    producer.set_namesrv_domain(f"http://127.0.0.1:{page.server_port}/addresses")
    with producer:
        assert producer.send_sync(created("Paged")).status is SendStatus.OK
    page.shutdown()
    page.server_close()
    producer.set_name_server_domain("file:///etc/passwd")
    with pytest.raises(ProducerStartFailed, match="no http or https URL"):
        producer.start()
