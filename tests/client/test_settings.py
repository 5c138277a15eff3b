"""ConnectionSettings: what is refused, and the hooks around requests, sends and consumption."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ringmq.client import (
    ClientClosedError,
    ConnectionSettings,
    Consumer,
    Interceptor,
    Message,
    Producer,
    SendError,
    SendResult,
    TlsSettings,
)
from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.retry import RetryPolicy
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue
from tests.client.fake_broker import FakeCluster, refuse


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(topics={"T": 4}) as running:
        yield running


@pytest.mark.parametrize("name", ["connect_timeout_ms", "request_timeout_ms"])
@pytest.mark.parametrize("value", [0, -1, 600_001])
def test_time_outs_have_limits(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be 1 to 600000, not {value}"):
        ConnectionSettings(**{name: value})


@pytest.mark.parametrize("value", [1.5, "3000", True])
def test_time_outs_are_whole_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="connect_timeout_ms must be a whole number of ms"):
        ConnectionSettings(connect_timeout_ms=value)


def test_tls_files_are_named_in_errors() -> None:
    with pytest.raises(ValueError, match=r"tls\.ca_file /nowhere cannot be read: No such file"):
        TlsSettings(ca_file="/nowhere").context()
    with pytest.raises(ValueError, match=r"tls\.certificate_file /nowhere cannot be read: No such file"):
        TlsSettings(certificate_file="/nowhere").context()
    with pytest.raises(ValueError, match=r"tls\.key_file needs"):
        TlsSettings(key_file="/nowhere")
    assert "secret" not in repr(TlsSettings(key_password="secret"))


async def test_hooks_see_every_request_and_may_add_fields(cluster: FakeCluster) -> None:
    seen: list[tuple[str, int]] = []

    def first(address: str, request: RemotingCommand) -> None:
        request.ext_fields["Signature"] = "one"

    def second(address: str, request: RemotingCommand) -> None:
        seen.append((address, request.code))
        request.ext_fields["Signature"] += " two"

    settings = ConnectionSettings(before_request=(first, second))
    async with Producer(cluster.namesrv, settings=settings) as producer:
        await producer.send(Message("T", b"slow way"))
        await producer.send(Message("T", b"quick way"))
        await producer.send_oneway(Message("T", b"no answer"))
        await producer.send_batch([Message("T", b"a"), Message("T", b"b")])
    asked = cluster.broker.requests
    sends = [r for r in asked if r.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)]
    assert len(sends) == 4
    assert [r.body for r in sends[:3]] == [b"slow way", b"quick way", b"no answer"]
    assert {r.ext_fields["Signature"] for r in asked} == {"one two"}
    assert {code for _, code in seen} >= {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT}
    assert {address for address, code in seen if code == RequestCode.SEND_MESSAGE_V2} == {cluster.broker.address}


class Recorder(Interceptor):
    """Keeps what it sees."""

    def __init__(self, name: str, log: list[Any]) -> None:
        self.name = name
        self.log = log

    def before_send(self, group: str, messages: Sequence[Message]) -> object:
        for message in messages:
            message.properties["by"] = self.name
        self.log.append((self.name, "before", len(messages)))
        return self.name

    def after_send(
        self, scope: object, messages: Sequence[Message], result: SendResult | None, error: BaseException | None
    ) -> None:
        self.log.append((scope, "after", None if result is None else result.status.name, type(error).__name__))

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        self.log.append((self.name, "take", [m.body for m in messages]))

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        assert error is None
        self.log.append((self.name, "ack", [m.body for m in messages]))
        raise RuntimeError("an interceptor's fault is no fault of the message")


async def test_interceptors_surround_every_send_once(cluster: FakeCluster) -> None:
    log: list[Any] = []
    settings = ConnectionSettings(interceptors=(Recorder("a", log), Recorder("b", log)))
    whole = [("a", "before", 1), ("b", "before", 1), ("b", "after", "OK", "NoneType"), ("a", "after", "OK", "NoneType")]
    retry = RetryPolicy(attempts=1)
    async with Producer(cluster.namesrv, retry=retry, settings=settings) as producer:
        for _ in range(2):  # by the slow way, by the quick way
            await producer.send(Message("T", b"x"))
            assert log == whole
            log.clear()
        await producer.send_all([Message("T", b"x") for _ in range(5)])
        assert sorted(log) == sorted(whole * 5)
        log.clear()
        await producer.send_oneway(Message("T", b"x"))
        assert log[2:] == [("b", "after", None, "NoneType"), ("a", "after", None, "NoneType")]
        log.clear()
        with pytest.raises(ValueError, match="topic"):
            await producer.send(Message("", b"x"))
        assert log[2:] == [("b", "after", None, "ValueError"), ("a", "after", None, "ValueError")]
        log.clear()
        text: Any = "x"
        for sending in (producer.send(Message("T", text)), producer.send_batch([Message("T", text)] * 2)):
            with pytest.raises(TypeError, match="bytes"):
                await sending
            assert log[2:] == [("b", "after", None, "TypeError"), ("a", "after", None, "TypeError")]
            log.clear()
        cluster.rules.append(lambda broker, request: refuse(request, 13, "no") if request.code == 310 else None)
        with pytest.raises(SendError):
            await producer.send(Message("T", b"x"))
        assert log[2:] == [("b", "after", None, "SendError"), ("a", "after", None, "SendError")]
        log.clear()
    with pytest.raises(ClientClosedError):
        await producer.send(Message("T", b"x"))
    assert log[2:] == [("b", "after", None, "ClientClosedError"), ("a", "after", None, "ClientClosedError")]
    kept = [m for messages in cluster.broker.queues.values() for m in messages]
    assert {m.properties["by"] for m in kept} == {"b"}


async def test_interceptors_see_what_is_taken_and_acknowledged(cluster: FakeCluster) -> None:
    log: list[Any] = []
    settings = ConnectionSettings(interceptors=(Recorder("a", log),))
    async with Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
    async with Consumer(
        "T", cluster.namesrv, "g", auto_ack=False, consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        messages = await consumer.poll(timeout_ms=5000)
        assert log == [("a", "take", [b"x"])]
        assert consumer.ack(messages) == 1
        assert consumer.ack(messages) == 0
    assert log[1:] == [("a", "ack", [b"x"])]


class FailingOnce(Interceptor):
    """Raises from the first `before_consume`."""

    def __init__(self) -> None:
        self.failures_left = 1

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise RuntimeError("not now")


async def test_what_an_interceptor_kept_back_comes_again(cluster: FakeCluster) -> None:
    settings = ConnectionSettings(interceptors=(FailingOnce(),))
    async with Producer(cluster.namesrv) as producer:
        one: MessageQueue = (await producer.queues("T"))[0]
        for body in (b"1", b"2", b"3"):
            await producer.send(Message("T", body), queue=one)
    async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, settings=settings) as consumer:
        with pytest.raises(RuntimeError, match="not now"):
            await consumer.poll(2, timeout_ms=5000)
        taken: list[bytes] = []
        while len(taken) < 3:
            taken += [message.body for message in await consumer.poll(2, timeout_ms=5000)]
    assert taken == [b"1", b"2", b"3"]
