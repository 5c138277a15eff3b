"""Programs in the way of the 5.x Python client's pages, with only the import changed, against both servers."""

import threading
import time
from typing import Any

import pytest

from ringmq.client import blocking
from ringmq.client.rocketmq5 import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    FilterType,
    LitePushConsumer,
    LiteSimpleConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    Transaction,
    TransactionChecker,
    TransactionResolution,
)
from ringmq.client.rocketmq5.exception import (
    BadRequestException,
    IllegalArgumentException,
    IllegalStateException,
    InternalErrorException,
    UnsupportedException,
)
from ringmq.remoting import message as wire
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt
from tests.client.fake_broker import FakeBroker, refuse
from tests.client.threaded_cluster import threaded_cluster
from tests.conformance.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


class Listener(MessageListener):
    """Fails on what it is told to fail on, once each."""

    def __init__(self, *fails: bytes) -> None:
        self.messages: list[Message] = []
        self._fails = set(fails)

    def consume(self, message: Message) -> ConsumeResult:
        self.messages.append(message)
        if message.body in self._fails:
            self._fails.discard(message.body or b"")
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS

    def bodies(self) -> list[bytes | None]:
        return [message.body for message in self.messages]


def composed(topic: str, body: bytes, tag: str = "rocketmq-send-message") -> Message:
    msg = Message()
    msg.topic = topic
    msg.body = body
    msg.tag = tag
    msg.keys = "send_sync"  # type: ignore[assignment]  # adds one, as there
    msg.add_property("send", "sync")
    return msg


def test_what_is_sent_is_consumed(server: Server, topic: str) -> None:
    config = ClientConfiguration(server.namesrv, Credentials())
    producer = Producer(config, (topic,))
    producer.startup()
    first = producer.send(composed(topic, b"hello, rocketmq."))
    assert (first.offset, str(first)) == (0, f"message_id:{first.message_id}")
    with blocking.Consumer(topic, server.namesrv, f"G_{topic}"):
        """The group has read, so a later member misses nothing."""
    listener = Listener()
    consumer = PushConsumer(config, f"G_{topic}", listener, {topic: FilterExpression("wanted")})
    consumer.startup()
    future = producer.send_async(composed(topic, b"async", "wanted"))
    receipt = future.result(30)
    producer.send(composed(topic, b"unwanted", "other"))
    wait_until(lambda: listener.messages, "it is consumed", 60)
    message = listener.messages[0]
    assert (message.topic, message.body, message.tag, message.keys) == (topic, b"async", "wanted", {"send_sync"})
    assert (message.message_id, message.properties, message.delivery_attempt) == (
        receipt.message_id, {"send": "sync"}, 1,
    )  # fmt: skip
    other = f"{topic}_2"
    producer.send(composed(other, b"x"))
    consumer.subscribe(other)
    producer.send(composed(other, b"from another topic"))
    wait_until(lambda: b"from another topic" in listener.bodies(), "the second topic is consumed", 60)
    consumer.unsubscribe(other)
    assert b"unwanted" not in listener.bodies()
    consumer.shutdown()
    producer.shutdown()
    for closed in (producer, consumer):
        with pytest.raises(IllegalStateException, match="can't startup again"):
            closed.startup()
    with pytest.raises(IllegalStateException, match="not running"):
        producer.send(composed(topic, b"x"))


def test_a_message_group_keeps_its_order_and_fails_in_place(server: Server, topic: str) -> None:
    config = ClientConfiguration(server.namesrv, Credentials(), request_timeout=5)
    with Producer(config) as producer:
        receipts = []
        for number in range(6):
            msg = composed(topic, b"%d" % number)
            msg.message_group = "fifo-group"
            receipts.append(producer.send(msg))
        assert len({receipt.message_queue for receipt in receipts}) == 1
        with blocking.Producer(server.namesrv) as plain:
            plain.queues(topic)
    listener = Listener(b"2")
    subscription = {topic: FilterExpression()}
    with PushConsumer(config, f"G_{topic}", listener, subscription, fifo=True):
        wait_until(lambda: len(listener.messages) == 7, "all are consumed, one twice", 60)
    assert listener.bodies() == [b"0", b"1", b"2", b"2", b"3", b"4", b"5"]
    assert {message.message_group for message in listener.messages} == {"fifo-group"}


def test_a_delayed_message(stock_server: Server, topic: str) -> None:
    """RingMQ's broker refuses delays by name; stock has timers."""
    config = ClientConfiguration(stock_server.namesrv, Credentials())
    listener = Listener()
    with Producer(config) as producer:
        producer.send(composed(topic, b"now"))
        with PushConsumer(config, f"G_{topic}", listener, {topic: FilterExpression()}):
            wait_until(lambda: listener.bodies() == [b"now"], "the first is consumed", 60)
            msg = composed(topic, b"later")
            msg.delivery_timestamp = int(time.time()) + 3
            producer.send(msg)
            wait_until(lambda: listener.bodies() == [b"now", b"later"], "the delayed one is consumed", 60)
            assert time.time() >= msg.delivery_timestamp


def refuse_expressions(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
    if request.code != RequestCode.CHECK_CLIENT_CONFIG:
        return None
    return refuse(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "a > does not parse")


def test_a_subscription_that_fails_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with threaded_cluster(topics={"T": 1, "U": 1}) as cluster:
        cluster.rules.append(refuse_expressions)
        config, listener = ClientConfiguration(cluster.namesrv, Credentials()), Listener()
        consumer = PushConsumer(config, "G", listener, {"T": FilterExpression()})
        with Producer(config) as producer, consumer:
            with pytest.raises(InternalErrorException, match="does not parse"):
                consumer.subscribe("U", FilterExpression("a >", FilterType.SQL))
            assert consumer.is_running
            producer.send(composed("T", b"goes on"))
            wait_until(lambda: listener.bodies() == [b"goes on"], "it is consumed", 60)

            def fail() -> None:
                raise InternalErrorException("the broker is away")

            with monkeypatch.context() as patched:
                patched.setattr(consumer, "_start", fail)
                with pytest.raises(InternalErrorException, match="away"):
                    consumer.subscribe("U")
            assert not consumer.is_running
            consumer.startup()
            producer.send(composed("T", b"once more"))
            wait_until(lambda: b"once more" in listener.bodies(), "it is consumed", 60)


class Checker(TransactionChecker):
    """Commits what it is asked for."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def check(self, message: Message) -> TransactionResolution:
        self.messages.append(message)
        return TransactionResolution.COMMIT


def test_transactions_and_recalls(stock_server: Server, topic: str) -> None:
    """RingMQ's broker refuses both by name."""
    config = ClientConfiguration(stock_server.namesrv, Credentials())
    checker, listener = Checker(), Listener()
    producer = Producer(config, (topic,), checker)
    producer.startup()
    producer.send(composed(topic, b"plain"))
    with PushConsumer(config, f"G_{topic}", listener, {topic: FilterExpression()}):
        for body in (b"open", b"rollback", b"commit"):
            transaction = producer.begin_transaction()
            with pytest.raises(IllegalArgumentException, match="must send half message"):
                transaction.commit()
            receipt = producer.send(composed(topic, body), transaction)
            assert transaction.message_id == receipt.message_id
            if body == b"open":  # before anything is committed: stock's check goes slowly behind that
                wait_until(lambda: b"open" in listener.bodies(), "the broker asks", 120)
            if body == b"commit":
                transaction.commit()
            if body == b"rollback":
                transaction.rollback()
                with pytest.raises(IllegalArgumentException, match="has ended"):
                    transaction.commit()
        wait_until(lambda: set(listener.bodies()) == {b"plain", b"commit", b"open"}, "they are published", 60)
        assert {message.body for message in checker.messages} == {b"open"}
        msg = composed(topic, b"recalled")
        msg.delivery_timestamp = int(time.time()) + 600
        receipt = producer.send(msg)
        assert receipt.recall_handle is not None
        assert producer.recall_message_async(topic, receipt.recall_handle).result(30) == receipt.message_id
        producer.shutdown()


def test_transactions_of_several_threads_are_all_known_to_the_end() -> None:
    looks = threading.Event()

    class Open(Transaction):
        """Takes its time to say so."""

        @property
        def has_ended(self) -> bool:
            looks.set()
            time.sleep(0.2)  # span: in which another thread looks, too
            return False

    class Sent(Transaction):
        def run(self, send: Any) -> str:
            return "id"

    producer = Producer(ClientConfiguration("127.0.0.1:1", Credentials()), ("T",), Checker())
    known = [Open(), Sent(), Sent()]
    producer._open_transactions.add(known[0])

    def send(transaction: Transaction) -> None:
        producer._send_half(composed("T", b"x"), wire.Message("T", b"x"), transaction)

    thread = threading.Thread(target=send, args=(known[1],))
    thread.start()
    assert looks.wait(10)
    send(known[2])
    thread.join()
    assert producer._open_transactions == set(known)


def test_what_is_not_there_is_refused_by_name(ringmq_server: Server, topic: str) -> None:
    config = ClientConfiguration("127.0.0.1:1", Credentials())
    for kind, hint in ((SimpleConsumer, "poll"), (LitePushConsumer, "PushConsumer"), (LiteSimpleConsumer, "POP")):
        with pytest.raises(UnsupportedException, match=hint) as caught:
            kind(config, "G", {})
        assert kind.__name__ in str(caught.value)
    with Producer(ClientConfiguration(ringmq_server.namesrv, Credentials())) as producer:
        msg = composed(topic, b"later")
        msg.delivery_timestamp = int(time.time()) + 3
        with pytest.raises(BadRequestException, match="TIMER_DELIVER_MS"):
            producer.send(msg)


def test_properties_are_the_application_s_alone() -> None:
    """As the 5.x client gets them: what brokers add to a message that comes again is none of its properties."""
    added = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "1", "REAL_TOPIC": "%RETRY%G", "DELAY": "3", "UNIQ_KEY": "2"}
    received = Message.received(MessageExt("T", b"x", {"send": "sync", "TAGS": "t", **added}))
    assert (received.properties, received.tag, received.message_id) == ({"send": "sync"}, "t", "2")


def test_what_cannot_be_meant_is_refused_at_once() -> None:
    message = Message()
    for name, value in (("topic", "a b"), ("topic", ""), ("body", b""), ("tag", "a|b"), ("tag", " "), ("keys", "")):
        with pytest.raises(IllegalArgumentException):
            setattr(message, name, value)
    message.message_group = "g"
    with pytest.raises(IllegalArgumentException, match="same time"):
        message.delivery_timestamp = 1
    assert Message.message_type_desc(message.message_type) == "FIFO"
    config = ClientConfiguration("127.0.0.1:1", Credentials(), namespace="ns", request_timeout=0.3)
    with pytest.raises(IllegalArgumentException, match="subscription"):
        PushConsumer(config, "G", Listener(), {})
    with pytest.raises(IllegalArgumentException, match="secret_key"):
        Producer(ClientConfiguration("127.0.0.1:1", Credentials("ak", "")))
    with Producer(config) as producer:
        with pytest.raises(IllegalArgumentException, match="topic has not been set"):
            producer.send(Message())
        with pytest.raises(InternalErrorException, match=r"127\.0\.0\.1:1"):
            producer.send(composed("T", b"x"))
