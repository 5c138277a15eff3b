"""Small bodies that stand for many bytes: what waits in a client is as small as it came."""

import asyncio
import os
import subprocess
import sys

import pytest

from ringmq.client import ConsumeFrom, Consumer, MessageExt, PullOptions
from ringmq.client.compression import compress_body
from ringmq.client.producing.request_reply import WaitingRequests
from ringmq.client.runtimes.waiting import PushedTasks
from ringmq.remoting.client_headers import ReplyMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import Compression
from ringmq.remoting.message import encode_message
from tests.client.awaited import ONLY_ASYNCIO, AwaitedConsumer, client_of, transports
from tests.client.consuming import FAST, run_until
from tests.client.fake_broker import FakeCluster
from tests.waiting import until

transport = transports(AwaitedConsumer)

COUNT = 40
PLAIN_BYTES = 100_000
LIMIT_BYTES = 250_000
SMALL = PullOptions(buffered_bytes_max=LIMIT_BYTES)


def fill_packed(cluster: FakeCluster, count: int, plain_bytes: int, algorithm: Compression) -> int:
    """Store messages of zeros, of which the first byte is a number. Return the bytes of their bodies as stored."""
    stored = 0
    for number in range(count):
        body, bits = compress_body(bytes([number]) + bytes(plain_bytes - 1), algorithm)
        cluster.broker.store(MessageExt("T", body, queue_id=0, commit_log_offset=number, sys_flag=bits))
        stored += len(body)
    return stored


def consumer_of(cluster: FakeCluster, options: PullOptions = SMALL) -> Consumer:
    return Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, options=options)


@pytest.mark.parametrize("algorithm", list(Compression))
async def test_a_poll_unpacks_up_to_the_bound_and_the_rest_waits_as_it_came(algorithm: Compression) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        stored = fill_packed(cluster, COUNT, PLAIN_BYTES, algorithm)
        async with consumer_of(cluster) as consumer:
            inbox = client_of(consumer)._inbox
            await until(lambda: inbox.count == COUNT, "all are pulled")
            assert inbox.bytes_held == stored
            seen = []
            async with asyncio.timeout(60):
                while len(seen) < COUNT:
                    messages = await consumer.poll(COUNT)
                    size = sum(len(message.body) for message in messages)
                    assert size <= LIMIT_BYTES + PLAIN_BYTES, "the last one may exceed the bound"
                    assert all(message.sys_flag & 1 == 0 for message in messages)
                    seen += [message.body[0] for message in messages]
                    assert inbox.bytes_held <= stored
            assert seen == list(range(COUNT))
        assert cluster.broker.committed["g", "T", 0] >= COUNT - 3


async def test_what_waits_for_another_try_is_packed_again() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        stored = fill_packed(cluster, COUNT, PLAIN_BYTES, Compression.ZLIB)
        async with consumer_of(cluster) as consumer:
            inbox = client_of(consumer)._inbox
            tries: list[tuple[int, int, int]] = []

            async def handle(message: MessageExt) -> None:
                assert inbox.bytes_held <= stored
                tries.append((message.body[0], len(message.body), message.reconsume_times))
                if message.reconsume_times == 0:
                    raise ValueError("not yet")

            await run_until(consumer, lambda: len(tries) == 2 * COUNT, handle, concurrency=4, retry=FAST)
        wanted = [(number, PLAIN_BYTES, again) for number in range(COUNT) for again in (0, 1)]
        assert sorted(tries) == wanted
        assert cluster.broker.committed["g", "T", 0] == COUNT


async def test_a_body_over_the_limit_ends_no_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ringmq.client.compression.DECOMPRESSED_BYTES_MAX", PLAIN_BYTES)
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill_packed(cluster, 1, PLAIN_BYTES + 1, Compression.ZSTD)
        fill_packed(cluster, 1, PLAIN_BYTES, Compression.ZSTD)
        async with consumer_of(cluster) as consumer:
            messages: list[MessageExt] = []
            while len(messages) < 2:
                messages += await consumer.poll(2)
        assert [message.sys_flag & 1 for message in messages] == [1, 0]
        assert len(messages[0].body) < 1000
        assert f"more than the limit of {PLAIN_BYTES} bytes" in caplog.text


PROGRAM = """
import sys
from ringmq.client.blocking import Consumer
from ringmq.client import ConsumeFrom
with Consumer("T", sys.argv[1], "g", consume_from=ConsumeFrom.FIRST) as consumer:
    seen = 0
    while seen < 14:
        seen += len(consumer.poll())
"""
ADDRESS_SPACE_BYTES = 384 << 20
HUGE_BYTES = 32 << 20


@ONLY_ASYNCIO
@pytest.mark.parametrize("program", [["-c", PROGRAM], ["-m", "ringmq.cli.main", "consume", "T", "--count", "14"]])
async def test_a_process_with_little_memory_reads_huge_messages(program: list[str]) -> None:
    """14 messages of 1 KB are 448 MiB when decompressed."""
    async with FakeCluster(topics={"T": 1}) as cluster:
        body, bits = compress_body(bytes(HUGE_BYTES), Compression.ZSTD)
        for _ in range(14):
            cluster.broker.store(MessageExt("T", body, queue_id=0, sys_flag=bits))
        is_command = "consume" in program
        places = ["--from", "first", "--namesrv", cluster.namesrv] if is_command else [cluster.namesrv]
        process = await asyncio.create_subprocess_exec(
            "prlimit", f"--as={ADDRESS_SPACE_BYTES}", sys.executable, *program, *places,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ | {"MALLOC_ARENA_MAX": "1"},
        )  # fmt: skip
        assert process.stderr is not None
        try:
            async with asyncio.timeout(60):
                assert (await process.stderr.readline(), await process.wait()) == (b"", 0)
        finally:
            if process.returncode is None:
                process.kill()


def test_a_late_reply_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(body: bytes, sys_flag: int) -> bytes:
        raise AssertionError("it is unpacked")

    monkeypatch.setattr("ringmq.client.producing.request_reply.decompress_body", fail)
    packed, bits = compress_body(bytes(PLAIN_BYTES), Compression.ZLIB)
    header = ReplyMessageRequestHeader(
        born_host="h", store_host="h", store_timestamp=1, producer_group="g", topic="T", default_topic="D",
        default_topic_queue_nums=1, queue_id=0, sys_flag=bits, born_timestamp=1, flag=0,
        properties="CORRELATION_ID\x01nobody-waits\x02",
    )  # fmt: skip
    push = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header.encode(), packed)
    outcomes = list[str]()
    assert WaitingRequests("a-client", outcomes.append).take(push).code == 0
    assert outcomes == ["late"]


async def test_pushed_messages_are_bounded_by_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait() -> None:
        await released.wait()

    released, tasks = asyncio.Event(), PushedTasks()
    monkeypatch.setattr(PushedTasks, "BYTES_MAX", 100)
    tasks.start(wait(), 99, "first")
    assert not tasks.full
    tasks.start(wait(), 1, "second")
    assert tasks.full and tasks.fill.startswith("2 messages of 100 bytes")
    released.set()
    await asyncio.gather(*map(asyncio.ensure_future, tasks.running()))  # type: ignore[arg-type]
    assert not tasks.full
    released.clear()
    for _ in range(PushedTasks.COUNT_MAX):
        assert not tasks.full
        tasks.start(wait(), 0, "empty")
    assert tasks.full
    released.set()


async def test_direct_messages_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushedTasks, "BYTES_MAX", PLAIN_BYTES)
    packed, bits = compress_body(bytes(PLAIN_BYTES), Compression.ZLIB)
    direct = encode_message(MessageExt("T", packed, queue_id=0, sys_flag=bits))
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        released, bodies = asyncio.Event(), list[int]()

        async def handle(message: MessageExt) -> None:
            bodies.append(len(message.body))
            await released.wait()

        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: client_of(consumer)._runner is not None, "the handler is known")
        await until(lambda: cluster.members(cluster.broker, "g"), "the broker knows the member")
        for _ in range(2):
            cluster.broker.ask("g", RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g"}, direct)
        await until(lambda: len(cluster.broker.answers) == 1, "one is refused")
        (refusal,) = cluster.broker.answers
        assert refusal.code == 1 and f"1 messages of {PLAIN_BYTES} bytes" in (refusal.remark or "")
        released.set()
        await until(lambda: len(cluster.broker.answers) == 2, "the other one is answered")
        assert bodies == [PLAIN_BYTES]
        await consumer.close()
        await running
