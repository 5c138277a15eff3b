"""Commits when a broker does not answer: whom that keeps waiting, how long, and who is told."""

import asyncio
from typing import Any

import pytest

from ringmq.client import ConnectionSettings, ConsumeFrom, Consumer, MessageExt, MessageQueue, blocking
from ringmq.client.consuming.commits import Commits, commit_all
from ringmq.client.errors import BrokerError, ConnectError, RequestTimeoutError, RingmqError, RouteError
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.client.consuming import Eventually, fill, take
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer
from tests.client.threaded_cluster import threaded_cluster


class Reader:
    """In the place of a `QueueReader`: its commit ends with `error`, or never."""

    under_way: int
    most: int

    def __init__(self, queue_id: int, error: RingmqError | None = None) -> None:
        self.queue = MessageQueue("T", "a", queue_id)
        self.uncommitted_offset = None if queue_id == 0 else 7
        self.error = error

    async def commit(self) -> bool:
        """As `QueueReader.commit`."""
        Reader.under_way += 1
        Reader.most = max(Reader.most, Reader.under_way)
        try:
            if self.error is None:
                await asyncio.Event().wait()
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            Reader.under_way -= 1
        raise self.error  # type: ignore[misc]


@pytest.mark.parametrize(
    ("error", "most"),
    [
        (RequestTimeoutError("m:1", 3000), 7),
        (ConnectError("m:1", "down"), 7),
        (RouteError("not registered"), 7),
        (BrokerError("m:1", 1, "no"), 1),
    ],
)
async def test_after_a_commit_that_nobody_answered_the_others_go_together(error: RingmqError, most: int) -> None:
    Reader.under_way = Reader.most = 0
    readers: Any = [Reader(queue_id, error) for queue_id in range(8)]
    assert await commit_all(readers) == [error] * 8
    assert Reader.most == most


async def test_a_last_commit_that_takes_too_long_is_left_and_named(caplog: pytest.LogCaptureFixture) -> None:
    Reader.under_way = Reader.most = 0
    readers: Any = [Reader(queue_id) for queue_id in range(2)]
    async with asyncio.timeout(60):
        await Commits("g", None, last_timeout_s=0.05).last(readers)
    assert f"{readers[1].queue} up to 7" in caplog.text
    assert str(readers[0].queue) not in caplog.text, "the broker has that one's"


async def test_a_broker_that_does_not_answer_keeps_no_other_s_offsets_waiting(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("ringmq.client.consumer.COMMIT_INTERVAL_S", 0.02)
    silent: list[RemotingCommand] = []

    def rule(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if broker.name != "a" or request.code != RequestCode.UPDATE_CONSUMER_OFFSET:
            return None
        silent.append(request)
        return NoAnswer.SILENCE

    settings = ConnectionSettings(request_timeout_ms=600_000)
    async with FakeCluster(("a", "b"), {"T": 1}) as cluster:
        hanging, healthy = cluster.brokers.values()
        cluster.rules.append(rule)
        for broker in (hanging, healthy):
            broker.committed["g", "T", 0] = 0  # no start to commit
            broker.store(MessageExt("T", b""))
        async with Consumer(
            "T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False, settings=settings
        ) as consumer:
            consumer.ack(await take(consumer, 2))
            await eventually(lambda: silent)
            for broker in (hanging, healthy):
                broker.store(MessageExt("T", b""))
            consumer.ack(await take(consumer, 2))
            await eventually(lambda: healthy.committed.get(("g", "T", 0)) == 2)
            assert len(silent) == 1, "and is not asked again meanwhile"
            cluster.rules.clear()
            hanging.close_connections()
        assert hanging.committed["g", "T", 0] == 2


async def broken_off(consumer: Consumer) -> MessageExt:
    async for message in consumer:
        if message.body == b"2":
            return message
    raise AssertionError("the consumer is closed")


async def by_anext(consumer: Consumer) -> MessageExt:
    return [await anext(consumer) for _ in range(3)][-1]


async def by_poll(consumer: Consumer) -> MessageExt:
    return [(await consumer.poll(1))[0] for _ in range(3)][-1]


LOOPS = {"break": broken_off, "anext": by_anext, "poll": by_poll}


@pytest.mark.parametrize(("acks_last", "committed"), [(False, 2), (True, 3)])
@pytest.mark.parametrize("end", LOOPS)
async def test_a_clean_exit_commits_what_the_loop_has_moved_past(end: str, acks_last: bool, committed: int) -> None:
    """The message that was returned last needs an `ack`, however the loop ended."""
    async with FakeCluster(topics={"T": 1}) as cluster, asyncio.timeout(60):
        fill(cluster, "T", 0, 5)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            message = await LOOPS[end](consumer)
            if acks_last:
                assert consumer.ack(message) == 1
        assert cluster.broker.committed["g", "T", 0] == committed


BLOCKING_LOOPS = {
    "break": lambda consumer, offset: next(message for message in consumer if message.queue_offset == offset),
    "poll": lambda consumer, offset: next(m for [m] in iter(lambda: consumer.poll(1), []) if m.queue_offset == offset),
}


@pytest.mark.parametrize("end", BLOCKING_LOOPS)
def test_a_clean_exit_of_a_blocking_consumer_commits_what_the_loop_has_moved_past(end: str) -> None:
    with threaded_cluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 5)
        for committed in (2, 3):  # the second consumer gets the message again that the first one left
            with blocking.Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
                BLOCKING_LOOPS[end](consumer, committed)
            assert cluster.broker.committed["g", "T", 0] == committed
