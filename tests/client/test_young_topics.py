"""A young topic: its first message is still in memory. Brokers answer 0 to groups that have no offset in it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import ConsumeFrom, Consumer, MessageQueue
from ringmq.client.consuming import offsets
from ringmq.remoting.command import RemotingCommand
from tests.client.awaited import AwaitedConsumer, transports
from tests.client.consuming import fill, take
from tests.client.fake_broker import FakeBroker, FakeCluster

transport = transports(AwaitedConsumer)
BEGIN_MS = 1 << 40


async def offsets_of(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """(queue, offset) of the next messages, in order."""
    return sorted((message.queue_id, message.queue_offset) for message in await take(consumer, count))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"consume_from": ConsumeFrom.TIMESTAMP, "timestamp_ms": BEGIN_MS},
        {"ordered": True},
        {"broadcast": True},
    ],
    ids=["last", "timestamp", "ordered", "broadcast"],
)
async def test_a_new_group_reads_nothing_of_a_young_topic_that_came_before_it(
    options: dict[str, Any], tmp_path: Path
) -> None:
    if "broadcast" in options:
        options = options | {"offset_file": tmp_path / "offsets"}
    async with FakeCluster(topics={"T": 2}) as cluster:
        fill(cluster, "T", 0, 5)
        async with Consumer("T", cluster.namesrv, "g", **options) as consumer:
            fill(cluster, "T", 0, 2)  # at once behind the start, even if the queues are not read yet
            fill(cluster, "T", 1, 1)
            for message in (*cluster.broker.queues["T", 0][5:], *cluster.broker.queues["T", 1]):
                message.store_timestamp_ms = BEGIN_MS
            assert await offsets_of(consumer, 3) == [(0, 5), (0, 6), (1, 0)]


async def test_queues_assigned_by_hand_begin_at_the_end_of_a_young_topic() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster:
        fill(cluster, "T", 0, 5)
        fill(cluster, "T", 1, 3)
        async with Consumer(None, cluster.namesrv, "g") as consumer:
            for queue_id, end in ((0, 5), (1, 3)):  # the offset of one says nothing about the other
                queue = MessageQueue("T", "a", queue_id)
                assert await consumer.committed(queue) is None
                await consumer.assign([queue])
                fill(cluster, "T", queue_id, 1)
                assert await offsets_of(consumer, 1) == [(queue_id, end)]


async def test_a_queue_that_was_added_while_the_group_was_away_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "FIRST_COMMITS_PAUSE_S", 0.001)
    for broadcast in (False, True):
        options = {"broadcast": True, "offset_file": tmp_path / "offsets"} if broadcast else {}
        async with FakeCluster(topics={"T": 1}) as cluster:
            fill(cluster, "T", 0, 5)
            async with Consumer("T", cluster.namesrv, "g", **options) as consumer:
                fill(cluster, "T", 0, 1)
                await take(consumer, 1)
            cluster.topics["T"] = 2
            fill(cluster, "T", 1, 3)
            async with Consumer("T", cluster.namesrv, "g", **options) as consumer:
                assert await offsets_of(consumer, 4) == [(0, 5), (1, 0), (1, 1), (1, 2)]


async def test_no_member_of_a_new_group_takes_the_others_starts_for_the_offsets_of_an_old_one() -> None:
    """Each finds that the group is new before the others can see it and leave it a share of the queues."""
    async with FakeCluster(topics={"T": 4}) as cluster:
        for queue_id in range(4):
            fill(cluster, "T", queue_id, 3)
        members = [Consumer("T", cluster.namesrv, "g") for _ in range(3)]
        await asyncio.gather(*(member.start() for member in members))
        for queue_id in range(4):
            fill(cluster, "T", queue_id, 1)
        found: set[tuple[int, int]] = set()
        while len(found) < 4:
            for member in members:
                found |= {(message.queue_id, message.queue_offset) for message in await member.poll(timeout_ms=20)}
        assert found == {(queue_id, 3) for queue_id in range(4)}
        for member in members:
            await member.close()


async def test_a_broker_of_rocketmq_4_answers_as_it_always_did() -> None:
    """It does not know the field, and begins a young queue at 0."""

    def ignore_the_field(broker: FakeBroker, request: RemotingCommand) -> None:
        request.ext_fields.pop("setZeroIfNotFound", None)

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(ignore_the_field)
        fill(cluster, "T", 0, 2)
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            assert await offsets_of(consumer, 2) == [(0, 0), (0, 1)]


async def test_retries_that_waited_for_a_new_group_are_read() -> None:
    async with FakeCluster(topics={"T": 1, "%RETRY%g": 1}) as cluster:
        fill(cluster, "T", 0, 5)
        fill(cluster, "%RETRY%g", 0, 2)
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            assert [message.queue_offset for message in await take(consumer, 2)] == [0, 1]
        assert {message.topic for message in cluster.broker.queues["%RETRY%g", 0]} == {"%RETRY%g"}
