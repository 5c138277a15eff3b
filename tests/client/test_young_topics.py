"""A young topic: its first message is still in memory. Brokers answer 0 to groups that have no offset in it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import ConnectionSettings, ConsumeFrom, Consumer, MessageQueue
from ringmq.client.consuming import offsets
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.client.awaited import AwaitedConsumer, transports
from tests.client.consuming import fill, take
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer

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


async def test_brokers_do_not_know_a_member_before_it_has_looked() -> None:
    """Or the others would leave it queues whose start is not committed yet."""
    async with FakeCluster(topics={"T": 4}) as cluster, Consumer("T", cluster.namesrv, "g"):
        codes = [request.code for request in cluster.broker.requests]
        before = codes[: codes.index(RequestCode.HEART_BEAT)]
        assert before.count(RequestCode.QUERY_CONSUMER_OFFSET) == 4


async def test_starts_that_another_member_commits_slowly_are_no_added_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "FIRST_COMMITS_PAUSE_S", 0.001)
    asked = dict.fromkeys(range(4), 0)

    def commit_one_queue_in_each_pause(broker: FakeBroker, request: RemotingCommand) -> None:
        if request.code == RequestCode.GET_MAX_OFFSET:
            queue_id = int(request.ext_fields["queueId"])
            asked[queue_id] += 1
            if asked[queue_id] > queue_id:
                broker.committed.setdefault(("g", "T", queue_id), 3)

    async with FakeCluster(topics={"T": 4}) as cluster:
        cluster.rules.append(commit_one_queue_in_each_pause)
        for queue_id in range(4):
            fill(cluster, "T", queue_id, 3)
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            for queue_id in range(4):
                fill(cluster, "T", queue_id, 1)
            assert await offsets_of(consumer, 4) == [(queue_id, 3) for queue_id in range(4)]


async def test_a_broker_that_does_not_answer_costs_a_start_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each of its queues, and no second one after the pause."""
    monkeypatch.setattr(offsets, "FIRST_COMMITS_PAUSE_S", 0.001)
    asked_before_joining: list[int] = []

    def silence(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if broker.name == "b" and request.code == RequestCode.HEART_BEAT:
            asked_before_joining.append(len(broker.asked(RequestCode.GET_MAX_OFFSET)))
        is_hung = broker.name == "b" and request.code == RequestCode.GET_MAX_OFFSET
        return NoAnswer.SILENCE if is_hung else None

    async with FakeCluster(("a", "b"), topics={"T": 3 * offsets.QUESTIONS_AT_ONCE}) as cluster:
        cluster.rules.append(silence)
        for queue_id in range(3 * offsets.QUESTIONS_AT_ONCE):
            cluster.broker.committed["g", "T", queue_id] = 0
        settings = ConnectionSettings(request_timeout_ms=500)
        async with Consumer("T", cluster.namesrv, "g", settings=settings):
            assert 0 < asked_before_joining[0] <= offsets.QUESTIONS_AT_ONCE


async def test_a_queue_whose_broker_answers_after_the_start_is_read_from_the_time_of_the_start() -> None:
    is_hung = True

    def hang(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        return NoAnswer.SILENCE if is_hung and request.code == RequestCode.GET_MAX_OFFSET else None

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(hang)
        fill(cluster, "T", 0, 6)
        for message in cluster.broker.queues["T", 0][:5]:
            message.store_timestamp_ms = 1
        settings = ConnectionSettings(request_timeout_ms=100)
        async with Consumer("T", cluster.namesrv, "g", settings=settings) as consumer:
            cluster.broker.queues["T", 0][5].store_timestamp_ms = time.time_ns() // 10**6  # sent after the start
            is_hung = False
            assert await offsets_of(consumer, 1) == [(0, 5)]


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
