"""Where a group begins to read, and that it stays there."""

import asyncio

import pytest

from ringmq.client import ConsumeFrom, Consumer, MessageQueue
from ringmq.client.consuming.offsets import (
    LATE_QUEUE_MARGIN_MS,
    FromMinimum,
    QueueFacts,
    SearchFrom,
    StartRule,
    choose_start,
)
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.client.consuming import Eventually, fill, take
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, refuse

QUEUE, RETRY = MessageQueue("T", "b", 0), MessageQueue("%RETRY%g", "b", 0)
STARTED_MS = 10_000_000


def rule(consume_from: ConsumeFrom) -> StartRule:
    return StartRule(consume_from, 77, STARTED_MS)


@pytest.mark.parametrize("consume_from", list(ConsumeFrom))
@pytest.mark.parametrize("late", [False, True])
def test_a_committed_offset_wins(consume_from: ConsumeFrom, late: bool) -> None:
    assert choose_start(QUEUE, QueueFacts(9, 4, late), rule(consume_from)) == 4


@pytest.mark.parametrize(
    ("consume_from", "late", "start"),
    [
        (ConsumeFrom.LAST, False, 9),
        (ConsumeFrom.LAST, True, SearchFrom(STARTED_MS - LATE_QUEUE_MARGIN_MS)),
        (ConsumeFrom.FIRST, False, FromMinimum.MINIMUM),
        (ConsumeFrom.TIMESTAMP, False, SearchFrom(77)),
    ],
)
def test_without_one_the_group_s_wish_holds(consume_from: ConsumeFrom, late: bool, start: object) -> None:
    assert choose_start(QUEUE, QueueFacts(9, None, late), rule(consume_from)) == start


@pytest.mark.parametrize("consume_from", list(ConsumeFrom))
def test_retry_topics_are_read_from_their_beginning(consume_from: ConsumeFrom) -> None:
    assert choose_start(RETRY, QueueFacts(9, None, True), rule(consume_from)) == 0


def asked_of(cluster: FakeCluster, code: RequestCode) -> list[RemotingCommand]:
    return [request for request in cluster.broker.asked(code) if request.ext_fields["topic"] == "T"]


@pytest.mark.parametrize("count", [0, 5])
async def test_a_start_that_was_computed_is_committed_before_anything_is_read(
    count: int, eventually: Eventually
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.young_queues = False
        fill(cluster, "T", 0, count)
        committed_at_pull: list[int | None] = []

        def note(broker: FakeBroker, request: RemotingCommand) -> None:
            if request.code == RequestCode.PULL_MESSAGE:
                committed_at_pull.append(broker.committed.get(("g", "T", 0)))

        cluster.rules.append(note)
        async with Consumer("T", cluster.namesrv, "g"):
            await eventually(lambda: committed_at_pull)
        assert committed_at_pull[0] == count
        assert len(asked_of(cluster, RequestCode.UPDATE_CONSUMER_OFFSET)) == 1, "it is not committed once more"


async def test_a_member_that_joins_a_new_group_begins_where_the_first_one_did(eventually: Eventually) -> None:
    """The first one has read and not handed out what came since, and has not said yet how far it is."""
    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.young_queues = False
        fill(cluster, "T", 0, 5)
        async with Consumer("T", cluster.namesrv, "g"):
            await eventually(lambda: cluster.broker.parked)
            fill(cluster, "T", 0, 3)
            async with Consumer(None, cluster.namesrv, "g") as second:
                await second.assign([QUEUE._replace(broker_name="a")])
                assert [message.queue_offset for message in await take(second, 3)] == [5, 6, 7]


async def test_starts_of_a_group_s_queues_are_committed_one_by_one(eventually: Eventually) -> None:
    """Stock 5.3 keeps only some of a group's very first offsets when they arrive in parallel."""
    under_way = most = 0

    def serve_late(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        nonlocal under_way, most
        if request.code != RequestCode.UPDATE_CONSUMER_OFFSET or request in late:
            return None
        late.append(request)
        under_way += 1
        most = max(most, under_way)

        def serve() -> None:
            nonlocal under_way
            under_way -= 1
            cluster.serve(broker, broker.peers[0], request)

        asyncio.get_running_loop().call_later(0.02, serve)
        return NoAnswer.SILENCE

    late: list[RemotingCommand] = []
    async with FakeCluster(topics={"T": 4}) as cluster:
        cluster.young_queues = False
        cluster.rules.append(serve_late)
        async with Consumer("T", cluster.namesrv, "g"):
            await eventually(lambda: len(cluster.broker.parked) == 4)
        assert cluster.broker.committed == {("g", "T", queue_id): 0 for queue_id in range(4)}
        assert most == 1


async def test_a_start_that_could_not_be_committed_is_gone_back_to(eventually: Eventually) -> None:
    def refuse_commits(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        return refuse(request, 1, "not now") if request.code == RequestCode.UPDATE_CONSUMER_OFFSET else None

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.young_queues = False
        cluster.rules.append(refuse_commits)
        fill(cluster, "T", 0, 5)
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            await eventually(lambda: cluster.broker.parked)
            fill(cluster, "T", 0, 2)
            await eventually(lambda: cluster.broker.parked)
            consumer._readers[QUEUE._replace(broker_name="a")].lose_lock()
            assert [message.queue_offset for message in await take(consumer, 2)] == [5, 6]
            cluster.rules.clear()
        assert cluster.broker.committed["g", "T", 0] == 5
