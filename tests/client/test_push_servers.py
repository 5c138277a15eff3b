"""The push consumer by POP beside real servers, RingMQ and stock RocketMQ: the same tests for both, by both transports.

A stock broker gives messages again 2 to 4 s after their time.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ringmq.client import (
    ConsumeFrom,
    ConsumeRetry,
    MessageExt,
    PoppedMessage,
    Producer,
    PushConsumer,
    RejectMessage,
    RetryLater,
    compose_message,
)
from tests.client.awaited import ONLY_ASYNCIO, STOCK_BY_ASYNCIO, AwaitedPushConsumer, transports
from tests.client.test_consumer_servers import dead_letters
from tests.conformance.servers import Server
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)
transport = transports(AwaitedPushConsumer)
AGAIN_S = 5.0
"""In this time a stock broker gives a message again whose time is over."""


def consumer_of(server: Server, topic: str, **options: Any) -> PushConsumer:
    return PushConsumer(topic, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST, **options)


async def fill(server: Server, topic: str, count: int, first: int = 0, **options: Any) -> None:
    """Messages "0", "1", ... in all queues, or one after the other with a `sharding_key`."""
    async with Producer(server.namesrv) as producer:
        messages = [compose_message(topic, b"%d" % number) for number in range(first, first + count)]
        if options:
            for message in messages:
                await producer.send(message, **options)
        else:
            await producer.send_all(messages, pipeline=8)


async def run_until(consumer: PushConsumer, done: Callable[[], object], handler: Any, **options: Any) -> None:
    running = asyncio.create_task(consumer.run(handler, **options))
    await until(lambda: done() or running.done(), "the handlers have done their work", 120)
    async with asyncio.timeout(60):
        await consumer.close()
        await running
    assert done(), "the run has ended before"


async def none_is_left(server: Server, topic: str) -> None:
    """All messages of the group are acknowledged: another member gets none."""
    async with consumer_of(server, topic) as consumer:
        waiting = asyncio.create_task(anext(consumer, None))
        await asyncio.wait([waiting], timeout=AGAIN_S)
        assert not waiting.done(), waiting.result()
        await consumer.close()
        await waiting


async def test_each_message_is_handled_once(server: Server, topic: str) -> None:
    await fill(server, topic, 300)
    got: Counter[bytes] = Counter()

    async def handle(message: MessageExt) -> None:
        got[message.body] += 1

    async with consumer_of(server, topic, invisible_ms=4000) as consumer:
        await run_until(consumer, lambda: len(got) == 300, handle, concurrency=8)
    await none_is_left(server, topic)
    assert got == {b"%d" % number: 1 for number in range(300)}


@STOCK_BY_ASYNCIO
async def test_failed_messages_come_again_and_rejected_ones_are_dead_letters(server: Server, topic: str) -> None:
    await fill(server, topic, 6)
    attempts: dict[bytes, list[int]] = {}
    done: set[bytes] = set()

    async def handle(message: MessageExt) -> None:
        attempts.setdefault(message.body, []).append(message.reconsume_times)
        if message.body == b"0":
            raise RejectMessage
        if message.body == b"1" or (message.body == b"2" and message.reconsume_times < 2):
            raise RetryLater(1)
        assert message.topic == topic
        done.add(message.body)

    retry = ConsumeRetry(max_reconsume_times=2, local_first_ms=1000)
    async with consumer_of(server, topic) as consumer:
        running = asyncio.create_task(consumer.run(handle, retry=retry))
        await until(lambda: len(done) == 4 and len(attempts.get(b"1", ())) >= 3, "the others are handled", 120)
        dead = await dead_letters(server, f"g_{topic}", 2)  # meanwhile a broker that was busy is asked again
        await consumer.close()
        await running
    assert sorted(message.body for message in dead) == [b"0", b"1"]
    assert attempts[b"1"][:3] == attempts[b"2"] == [0, 1, 2]
    assert all(attempts[body] == [0] for body in (b"3", b"4", b"5"))
    await none_is_left(server, topic)


@STOCK_BY_ASYNCIO
async def test_a_slow_handler_s_message_is_renewed(server: Server, topic: str) -> None:
    """The renewal has three seconds: of a machine that stops so long, the message has left the member."""
    await fill(server, topic, 1)
    attempts: list[int] = []
    ended = False

    async def handle(message: MessageExt) -> None:
        nonlocal ended
        assert isinstance(message, PoppedMessage)
        attempts.append(message.attempt)
        first_end_ms, left_s = message.invisible_until_ms, message.seconds_left
        await until(lambda: message.invisible_until_ms > first_end_ms, "it is renewed")
        await asyncio.sleep(left_s + AGAIN_S)  # span: without the renewal it would come again in this time
        ended = True

    async with consumer_of(server, topic, invisible_ms=9000) as consumer:
        await run_until(consumer, lambda: ended, handle, concurrency=4)
    await none_is_left(server, topic)
    assert attempts == [1]


@STOCK_BY_ASYNCIO
async def test_a_stuck_handler_s_message_goes_to_another_call(server: Server, topic: str) -> None:
    """It is not renewed beyond a bound, and the result of the first call is void."""
    await fill(server, topic, 1)
    calls: list[int] = []
    free = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        calls.append(message.reconsume_times)
        if len(calls) == 1:
            await free.wait()

    async with consumer_of(server, topic, invisible_ms=2000, hold_max_ms=3000) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=2))
        await until(lambda: len(calls) == 2, "the message comes again", 60)
        free.set()
        await consumer.close()
        await running
    assert calls == [0, 1]
    await none_is_left(server, topic)


@ONLY_ASYNCIO
async def test_others_get_the_messages_of_a_member_that_is_killed(server: Server, topic: str) -> None:
    await fill(server, topic, 4)
    script = (
        "import asyncio, sys\n"
        "from ringmq.client import ConsumeFrom, PoppedMessage, PushConsumer\n"
        "async def handle(message):\n"
        "    print(message.body.decode(), flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "async def main():\n"
        "    consumer = PushConsumer(sys.argv[1], sys.argv[2], 'g_' + sys.argv[1], consume_from=ConsumeFrom.FIRST,\n"
        "                            invisible_ms=4000)\n"
        "    async with consumer:\n"
        "        await consumer.run(handle, concurrency=4)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, topic, server.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        try:
            lines = [await asyncio.to_thread(member.stdout.readline) for _ in range(4)]
        finally:
            os.kill(member.pid, signal.SIGKILL)
    assert sorted(line.strip() for line in lines) == ["0", "1", "2", "3"]
    attempts: dict[bytes, int] = {}

    async def handle(message: MessageExt) -> None:
        attempts[message.body] = message.reconsume_times

    async with consumer_of(server, topic) as consumer:
        await run_until(consumer, lambda: len(attempts) == 4, handle)
    assert set(attempts.values()) == {1}


@STOCK_BY_ASYNCIO
async def test_a_close_gives_back_what_it_does_not_finish(server: Server, topic: str) -> None:
    await fill(server, topic, 2)
    begun: list[bytes] = []
    free = asyncio.Event()

    async def hang(message: MessageExt) -> None:
        begun.append(message.body)
        await free.wait()

    first = consumer_of(server, topic, invisible_ms=600_000, drain_timeout_ms=200)
    async with first:
        running = asyncio.create_task(first.run(hang, concurrency=2))
        await until(lambda: len(begun) == 2, "both are handled")
        await first.close()
        free.set()
        await running
    got: set[bytes] = set()

    async def handle(message: MessageExt) -> None:
        got.add(message.body)

    async with consumer_of(server, topic) as second:
        await run_until(second, lambda: len(got) == 2, handle)
    assert got == {b"0", b"1"}


async def test_an_ordered_group_keeps_the_order_over_failures_and_members(server: Server, topic: str) -> None:
    await fill(server, topic, 1)  # makes the topic
    await fill(server, topic, 30, 1, sharding_key="one")
    order: list[int] = []
    failed = 0

    async def handle(message: MessageExt) -> None:
        nonlocal failed
        number = int(message.body)
        if number == 9 and failed < 2:
            failed += 1
            raise ValueError("not yet")
        if number:
            order.append(number)

    retry = ConsumeRetry(suspend_ms=50)
    async with consumer_of(server, topic, ordered=True, invisible_ms=4000) as consumer:
        await run_until(consumer, lambda: len(order) >= 15, handle, retry=retry, concurrency=4)
    async with consumer_of(server, topic, ordered=True, invisible_ms=4000) as consumer:
        await run_until(consumer, lambda: 30 in order, handle, retry=retry, concurrency=4)
    assert failed == 2
    assert list(dict.fromkeys(order)) == list(range(1, 31))  # a message of the close may come twice


@ONLY_ASYNCIO
async def test_fifty_members_share_four_queues(server: Server, topic: str) -> None:
    per_member: Counter[int] = Counter()
    members, messages = 50, 1500
    async with AsyncExitStack() as stack:
        runs = []
        for number in range(members):
            consumer = await stack.enter_async_context(consumer_of(server, topic))

            async def handle(message: MessageExt, number: int = number) -> None:
                per_member[number] += 1
                await asyncio.sleep(0.2)  # span: the work, long beside a pop of a busy machine

            runs.append((consumer, asyncio.create_task(consumer.run(handle, concurrency=1))))
        await fill(server, topic, messages)
        await until(lambda: per_member.total() >= messages, "all are handled", 120)
        for consumer, run in runs:
            await consumer.close()
            await run
    assert per_member.total() == messages
    spread = max(per_member.values()) / min(per_member[number] for number in range(members))
    assert spread <= 3, per_member  # 1.2 on a quiet machine; a busy one runs some members less than others
