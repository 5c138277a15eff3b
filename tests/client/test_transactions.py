"""Transactional producers without a broker's help."""

import asyncio
import time

import pytest

from ringmq.client import Message, MessageExt, TransactionProducer, TransactionState
from ringmq.client.compression import compress_body
from ringmq.remoting import properties as names
from ringmq.remoting.client_headers import CheckTransactionStateRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.flags import Compression, MessageSysFlag
from ringmq.remoting.message import encode_message
from tests.client.awaited import ONLY_ASYNCIO, AwaitedTransactionProducer, transports
from tests.client.consuming import Eventually
from tests.client.fake_broker import FakeBroker, FakeCluster

transport = transports(AwaitedTransactionProducer)


def ask_for(broker: FakeBroker, half: MessageExt) -> None:
    """Ask whoever is connected how the transaction of a half ended; stock sends the half as it is stored."""
    header = CheckTransactionStateRequestHeader(tran_state_table_offset=0, commit_log_offset=0)
    code = RequestCode.CHECK_TRANSACTION_STATE
    request = RemotingCommand.request(code, header.encode(), encode_message(half), oneway=True)
    for peer in broker.peers:
        peer.transport.write(encode_frame(request))


@ONLY_ASYNCIO
async def test_a_check_that_hangs_does_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.client.producing.transactions.CHECKS_WAIT_S", 0.2)
    hanging = asyncio.Event()

    async def check(message: MessageExt) -> TransactionState:
        await hanging.wait()
        return TransactionState.COMMIT

    async with FakeCluster(topics={"T": 1}) as cluster:
        producer = TransactionProducer(cluster.namesrv, "g", check=check)
        producer.start()
        producer._checks.start(check(MessageExt("T", b"x")), 1, "check")  # type: ignore[arg-type]
        (task,) = producer._checks.running()
        began = time.monotonic()
        await asyncio.wait_for(producer.close(), 60)
        assert time.monotonic() - began >= 0.2
        assert isinstance(task, asyncio.Task) and (task.cancelling() or task.cancelled())
        monkeypatch.setattr("ringmq.client.producing.transactions.CHECKS_WAIT_S", 600)
        other = TransactionProducer(cluster.namesrv, "g", check=check)
        other.start()
        other._checks.start(check(MessageExt("T", b"x")), 1, "check")  # type: ignore[arg-type]
        closing = asyncio.create_task(other.close())
        await asyncio.sleep(0.01)  # span: the close waits for the check from its first turn on
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert other._client._closed, "who waits no longer has left all the same"


async def test_a_check_gets_the_body_that_was_sent_and_not_as_it_is_stored(eventually: Eventually) -> None:
    large = b"0123456789abcdef" * 300  # over what is compressed
    asked: list[tuple[bytes, int]] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append((message.body, message.sys_flag & MessageSysFlag.COMPRESSED))
        return TransactionState.COMMIT

    async with (
        FakeCluster(topics={"T": 1}) as cluster,
        TransactionProducer(cluster.namesrv, "g", check=check) as producer,
    ):
        message = Message("T", large)
        await producer.send_in_transaction(message, lambda message: TransactionState.UNKNOWN)
        (half,) = cluster.broker.queues["T", 0]
        assert half.sys_flag & MessageSysFlag.COMPRESSED and half.properties[names.TRAN_MSG] == "true"
        assert names.TRAN_MSG not in message.properties, "the application may send it again as a plain message"
        ask_for(cluster.broker, half)
        await eventually(lambda: cluster.broker.asked(RequestCode.END_TRANSACTION))
    assert asked == [(large, 0)]


async def test_a_check_whose_body_does_not_read_is_left_and_the_next_one_answered(eventually: Eventually) -> None:
    asked: list[bytes] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    async with (
        FakeCluster(topics={"T": 1}) as cluster,
        TransactionProducer(cluster.namesrv, "g", check=check) as producer,
    ):
        await producer.send(Message("T", b"first"))
        body, flag = compress_body(b"cut off", Compression.ZLIB)
        for stored in (MessageExt("T", body[:-4], {names.PGROUP: "g"}, sys_flag=flag),
                       MessageExt("T", b"whole", {names.PGROUP: "g"})):  # fmt: skip
            stored.store_host = stored.born_host = ("127.0.0.1", 10911)
            ask_for(cluster.broker, stored)
        await eventually(lambda: cluster.broker.asked(RequestCode.END_TRANSACTION))
    assert asked == [b"whole"]


async def test_stop_iteration_is_a_failure_as_any_other(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    def ends(message: Message) -> TransactionState:
        return next(iter(()))

    async with (
        FakeCluster(topics={"T": 1}) as cluster,
        TransactionProducer(cluster.namesrv, "g", check=ends) as producer,
    ):
        async with asyncio.timeout(60):
            result = await producer.send_in_transaction(Message("T", b"x"), ends)
        assert (result.state, type(result.error)) == (TransactionState.UNKNOWN, RuntimeError)
        ask_for(cluster.broker, cluster.broker.queues["T", 0][0])
        await eventually(lambda: "the broker asks again: " in caplog.text)
