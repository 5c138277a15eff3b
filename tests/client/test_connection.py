"""One connection: time-outs, a busy loop, early flushes, requests of the server, draining."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from ringmq.client.connections.connection import BrokerConnection, ResponseFuture, open_connection, split_address
from ringmq.client.errors import ConnectError, RequestTimeoutError
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.frame import FrameDecoder
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, ok
from tests.waiting import until

ECHO, NEVER, BIG = 9001, 9002, 9003


def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
    if request.code == ECHO:
        return ok(request, request.body)
    return NoAnswer.SILENCE if request.code == NEVER else None


def ask(
    connection: BrokerConnection, opaque: int, code: int = ECHO, timeout_ms: int = 5000, body: bytes = b""
) -> ResponseFuture:
    frame = encode_frame(RemotingCommand.request(code, {}, body, opaque=opaque))
    return connection.request(opaque, frame, timeout_ms)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.rules.append(rule)
        yield running


async def connect(cluster: FakeCluster, served: list[RemotingCommand] | None = None) -> BrokerConnection:
    def serve(connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand | None:
        (served if served is not None else []).append(request)
        return RemotingCommand.response_to(request, 0)

    return await open_connection(cluster.broker.address, serve, lambda connection: None, ConnectionSettings())


def json_frame(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


async def test_each_time_out_has_its_own_time(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    started = time.monotonic()
    slow, quick = ask(connection, 1, NEVER, 400), ask(connection, 2, NEVER, 100)
    with pytest.raises(RequestTimeoutError, match="100 ms"):
        await quick
    assert not slow.done() and time.monotonic() - started > 0.09
    with pytest.raises(RequestTimeoutError, match="400 ms"):
        await slow
    assert time.monotonic() - started > 0.39
    connection.close()


async def test_a_busy_loop_is_no_slow_server(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    answers = [ask(connection, opaque, ECHO, 200) for opaque in range(20)]
    await asyncio.sleep(0.06)  # span: of one sweep
    late = [ask(connection, 100 + opaque, ECHO, 200) for opaque in range(20)]
    time.sleep(0.6)  # span: in which the application keeps the loop
    assert len(await asyncio.gather(*answers, *late)) == 40
    with pytest.raises(RequestTimeoutError):
        await ask(connection, 500, NEVER, 100)
    connection.close()


async def test_large_amounts_leave_before_the_loop_comes_round(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    answers = [ask(connection, opaque, ECHO, 5000, bytes(100_000)) for opaque in range(10)]
    assert connection._outgoing_bytes < 300_000
    assert len(await asyncio.gather(*answers)) == 10
    connection.close()


async def test_requests_of_the_server_are_answered_unless_one_way(cluster: FakeCluster) -> None:
    served: list[RemotingCommand] = []
    connection = await connect(cluster, served)
    await ask(connection, 1)
    (peer,) = cluster.broker.peers
    answers: list[RemotingCommand] = []
    feed = peer.transport.get_protocol().decoder  # type: ignore[attr-defined]
    peer.transport.get_protocol().data_received = lambda data: answers.extend(feed.feed(data))  # type: ignore[method-assign, union-attr]
    for opaque, oneway in ((5, True), (6, False)):
        peer.transport.write(encode_frame(RemotingCommand.request(77, opaque=opaque, oneway=oneway)))
    await until(lambda: answers, "the answer")
    assert [request.opaque for request in served] == [5, 6]
    assert [answer.opaque for answer in answers] == [6]
    connection.close()


async def test_draining_waits_for_the_last_answer(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    answer = ask(connection, 1)
    connection.drain_and_close()
    assert not connection.is_open
    assert (await answer).code == 0
    with pytest.raises(ConnectError):
        ask(connection, 2)


async def test_what_waits_fails_when_the_connection_breaks(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    waiting = ask(connection, 1, NEVER)
    await until(lambda: cluster.broker.asked(NEVER), "the broker has the request")
    cluster.broker.close_connections()
    with pytest.raises(ConnectError) as caught:
        await waiting
    assert caught.value.sent


async def test_an_answer_that_cannot_be_read_fails_its_request_alone() -> None:
    received: list[tuple[int, int]] = []
    headers = [
        b'{"code":0,"flag":1,"opaque":1,"remark":"\\ud83d"}',
        b'{"code":0,"flag":1,"opaque":2,"remark":"\\q"}',
        b'{"code":0,"flag":1,"opaque":3}',
        b'{"code":307,"opaque":9,"remark":"\\q"}',
        b'{"code":40,"flag":2,"opaque":9}}',
    ]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder, asked = FrameDecoder(), 0
        while data := await reader.read(1 << 16):
            for command in decoder.feed(data):
                asked += not command.is_response
                if command.is_response:
                    received.append((command.opaque, command.code))
                elif asked == 3:
                    writer.write(b"".join(json_frame(header) for header in headers))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connection = await open_connection(address, lambda c, r: None, lambda c: None, ConnectionSettings())
        first, second, third = await asyncio.gather(*(ask(connection, opaque) for opaque in (1, 2, 3)))
        await until(lambda: received, "the server's request is answered")
        connection.close()
    assert (first.code, first.remark) == (0, "?")
    assert (second.code, (second.remark or "")[:26]) == (1, "the answer cannot be read:")
    assert third.code == 0
    assert received == [(9, 1)]


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1: Connection refused$") as caught:
        await open_connection("127.0.0.1:1", lambda c, r: None, lambda c: None, ConnectionSettings())
    assert not caught.value.sent


def test_addresses() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    with pytest.raises(ValueError, match="host:port"):
        split_address("here")
