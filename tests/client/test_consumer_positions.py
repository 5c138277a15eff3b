"""Positions of a consumer: seeks, resets, topics that are made again, and bounds of what waits."""

import asyncio
import time
from collections.abc import Callable

import pytest

from ringmq.client import (
    ConsumeFrom,
    Consumer,
    MessageExt,
    MessageQueue,
    PullOptions,
)
from ringmq.client.consuming.pull_core import HELD_AT_LEAST_S
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import encode_message
from tests.client.awaited import AwaitedConsumer, transports
from tests.client.consuming import Eventually, fill, take
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, pulled, refuse

transport = transports(AwaitedConsumer)


def pulls_of(cluster: FakeCluster, topic: str) -> list[RemotingCommand]:
    return [pull for pull in cluster.broker.asked(RequestCode.PULL_MESSAGE) if pull.ext_fields["topic"] == topic]


def last_pulled(cluster: FakeCluster) -> int:
    """The offset of the last pull of T, -1 before the first."""
    return next((int(pull.ext_fields["queueOffset"]) for pull in reversed(pulls_of(cluster, "T"))), -1)


def pulls_of_an_unknown_topic(
    refused: list[RemotingCommand], times: int = 1 << 30
) -> Callable[[FakeBroker, RemotingCommand], RemotingCommand | None]:
    """A rule: the first `times` pulls of T are refused, and noted."""

    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.PULL_MESSAGE or request.ext_fields["topic"] != "T" or len(refused) >= times:
            return None
        refused.append(request)
        return refuse(request, ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist")

    return rule


async def test_seek_goes_back_and_forth_and_old_acknowledgements_do_not_count() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 100)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            queue = next(q for q in consumer.assignment() if q.topic == "T")
            old = await take(consumer, 10)
            await consumer.seek(queue, 90)
            assert [m.queue_offset for m in await take(consumer, 3)] == [90, 91, 92]
            assert consumer.ack(old) == 0
            await consumer.seek_to_beginning(queue)
            assert (await take(consumer, 1))[0].queue_offset == 0
            await consumer.seek_to_end(queue)
            fill(cluster, "T", 0, 1)
            assert (await take(consumer, 1))[0].queue_offset == 100
            with pytest.raises(KeyError):
                await consumer.seek(MessageQueue("T", "nobody", 0), 0)


async def test_an_acknowledgement_said_twice_is_none_of_another_topic() -> None:
    async with FakeCluster(topics={"T": 1, "%RETRY%g": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        cluster.broker.store(MessageExt("%RETRY%g", b"", {"RETRY_TOPIC": "T"}, reconsume_times=1))
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            both = {message.reconsume_times: message for message in await take(consumer, 2)}
            assert both[0].queue_offset == both[1].queue_offset == 0
            assert [consumer.ack(both[0]), consumer.ack(both[0])] == [1, 0]
            await consumer.commit()
            assert cluster.broker.committed.get(("g", "%RETRY%g", 0), 0) == 0
            assert consumer.ack(both[1]) == 1


async def test_what_was_handed_over_before_a_topic_was_made_again_acknowledges_nothing_of_it(
    eventually: Eventually,
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 5)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            assert len(await consumer.poll()) == 5
            cluster.broker.queues["T", 0].clear()
            cluster.broker.close_connections()  # the pull that is held says where it was
            await eventually(lambda: last_pulled(cluster) == 0 and cluster.broker.parked)
            fill(cluster, "T", 0, 5)
            await eventually(lambda: last_pulled(cluster) == 5)
            assert await consumer.poll()
            await consumer.commit()
            assert cluster.broker.committed.get(("g", "T", 0), 0) == 0, "none of the new messages was left behind"


@pytest.mark.parametrize("offsets_stay", [False, True])
async def test_a_topic_that_was_deleted_and_made_again_is_read_from_its_first_message(
    offsets_stay: bool, eventually: Eventually
) -> None:
    """Brokers delete a topic's offsets with it; stock 4 did not."""
    refused: list[RemotingCommand] = []
    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.young_queues = False
        fill(cluster, "T", 0, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            consumer.ack(await take(consumer, 10))
            await consumer.commit()
            cluster.rules.append(pulls_of_an_unknown_topic(refused))
            cluster.broker.queues["T", 0].clear()
            if not offsets_stay:
                cluster.broker.committed.clear()
            cluster.broker.close_connections()  # the pull that is held is asked again
            await eventually(lambda: len(refused) > 1)
            cluster.rules.clear()
            fill(cluster, "T", 0, 5)
            assert [message.queue_offset for message in await take(consumer, 5)] == list(range(5))


async def test_a_topic_that_is_back_before_the_held_pull_is_answered_is_read_from_its_first_message(
    eventually: Eventually,
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            consumer.ack(await take(consumer, 10))
            await consumer.commit()
            await eventually(lambda: cluster.broker.parked)
            cluster.broker.queues["T", 0].clear()
            cluster.broker.committed.clear()
            fill(cluster, "T", 0, 5)
            assert [message.queue_offset for message in await take(consumer, 5)] == list(range(5))


async def test_a_broker_that_does_not_know_its_topic_for_a_moment_costs_no_message(eventually: Eventually) -> None:
    refused: list[RemotingCommand] = []
    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.young_queues = False
        fill(cluster, "T", 0, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            consumer.ack((await take(consumer, 10))[:7])
            await consumer.commit()
            cluster.rules.append(pulls_of_an_unknown_topic(refused, times=1))
            fill(cluster, "T", 0, 2)
            await eventually(lambda: refused)
            assert {message.queue_offset for message in await take(consumer, 5)} >= {7, 8, 9, 10, 11}


async def test_an_offset_that_does_not_exist_is_left_behind(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 5)
        cluster.broker.committed["g", "T", 0] = 50
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            await eventually(lambda: cluster.broker.parked)
            fill(cluster, "T", 0, 1)
            assert (await take(consumer, 1))[0].queue_offset == 5


async def test_an_operators_reset_makes_void_what_is_open(eventually: Eventually) -> None:
    resets = [3]

    def reset(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.PULL_MESSAGE or request.ext_fields["queueOffset"] != "10" or not resets:
            return None
        answer = pulled(request, ResponseCode.PULL_OFFSET_MOVED, resets.pop(), 15)
        answer.remark = "OFFSET_RESET"
        return answer

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 15)
        cluster.rules.append(reset)
        options = PullOptions(batch_count=10)
        async with Consumer(
            "T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False, options=options
        ) as consumer:
            await eventually(lambda: "3" in [pull.ext_fields["queueOffset"] for pull in pulls_of(cluster, "T")])
            messages = await take(consumer, 12)
            assert [m.queue_offset for m in messages] == list(range(3, 15))
            consumer.ack(messages)
        assert cluster.broker.committed["g", "T", 0] == 15


async def test_what_the_broker_has_deleted_unread_takes_nothing_with_it_that_was_read(
    eventually: Eventually,
) -> None:
    def moved(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.PULL_MESSAGE or request.ext_fields["queueOffset"] != "10":
            return None
        return pulled(request, ResponseCode.PULL_OFFSET_MOVED, 15, 15)

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 15)
        cluster.rules.append(moved)
        options = PullOptions(batch_count=10)
        async with Consumer(
            "T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False, options=options
        ) as consumer:
            await eventually(lambda: last_pulled(cluster) == 15)
            messages = await consumer.poll(timeout_ms=60_000)
            assert [m.queue_offset for m in messages] == list(range(10))
            consumer.ack(messages[:4])
            await consumer.commit()
            assert cluster.broker.committed["g", "T", 0] == 4
            consumer.ack(messages)
        assert cluster.broker.committed["g", "T", 0] == 15


async def test_what_comes_behind_a_record_that_cannot_be_read_is_asked_for_again() -> None:
    def spoil(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.PULL_MESSAGE or request.ext_fields["topic"] != "T":
            return None
        offset = int(request.ext_fields["queueOffset"])
        found = [encode_message(message) for message in broker.queues["T", 0][offset:]]
        if offset <= 3 < offset + len(found):
            found[3 - offset] = bytes(91)
        return pulled(request, 0, offset + len(found), 9, b"".join(found)) if found else None

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 9)
        cluster.rules.append(spoil)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            messages = await take(consumer, 8)
            assert [message.queue_offset for message in messages] == [0, 1, 2, 4, 5, 6, 7, 8]
            consumer.ack(messages)
        assert cluster.broker.committed["g", "T", 0] == 9


async def test_a_broker_that_has_lost_its_end_gives_what_was_not_acknowledged_again(
    eventually: Eventually,
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            consumer.ack(await take(consumer, 3))
            await eventually(lambda: last_pulled(cluster) == 10)
            del cluster.broker.queues["T", 0][8:]
            cluster.broker.close_connections()
            await eventually(lambda: last_pulled(cluster) == 8)
            assert [m.queue_offset for m in await take(consumer, 5)] == list(range(3, 8))
            await consumer.commit()
            assert cluster.broker.committed["g", "T", 0] == 3


async def test_filtered_pulls_move_on_and_flow_control_is_survived() -> None:
    answers = [ResponseCode.FLOW_CONTROL, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.SYSTEM_ERROR]

    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.PULL_MESSAGE or request.ext_fields["topic"] != "T" or not answers:
            return None
        code = answers.pop(0)
        return pulled(request, code, 3, 5)

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 5)
        cluster.rules.append(rule)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            assert [m.queue_offset for m in await take(consumer, 2)] == [3, 4]


async def test_a_server_that_never_holds_is_not_asked_in_a_tight_loop() -> None:
    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        return pulled(request, 19, 0, 0) if request.code == RequestCode.PULL_MESSAGE else None

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(rule)
        began_s = time.monotonic()
        async with Consumer("T", cluster.namesrv, "g"):
            await asyncio.sleep(0.3)  # span: the pulls are counted against the time that it really took
        # What a slow machine answers late counts as held, and no pause follows. A loop without pauses makes 800 turns.
        turns_max = (time.monotonic() - began_s) / HELD_AT_LEAST_S + 1
        assert 1 <= len(cluster.broker.asked(RequestCode.PULL_MESSAGE)) <= turns_max


async def test_no_more_is_read_than_the_buffer_may_hold(eventually: Eventually) -> None:
    options = PullOptions(batch_count=10, buffered_max=30)
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 500)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, options=options) as consumer:
            pulls = lambda: len(cluster.broker.asked(RequestCode.PULL_MESSAGE))  # noqa: E731
            await eventually(lambda: pulls() == 3)
            await asyncio.sleep(0.05)  # span: in which a fourth could come
            assert pulls() == 3
            assert len(await take(consumer, 500)) == 500


async def test_no_more_is_delivered_than_may_be_unacknowledged(caplog: pytest.LogCaptureFixture) -> None:
    options = PullOptions(batch_count=10, unacked_max=20)
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 100)
        async with Consumer(
            "T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, options=options, auto_ack=False
        ) as consumer:
            messages = await take(consumer, 20)
            while more := await consumer.poll(timeout_ms=50):
                messages += more
            assert 20 <= len(messages) <= 29
            consumer.ack(messages)
            assert len(await take(consumer, 20)) == 20
        assert "not acknowledged" in caplog.text


async def test_silent_pulls_time_out_and_are_repeated() -> None:
    silent = [True]

    def rule(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code == RequestCode.PULL_MESSAGE and request.ext_fields["topic"] == "T" and silent.pop(0):
            silent.append(False)
            return NoAnswer.SILENCE
        silent.append(False)
        return None

    options = PullOptions(timeout_ms=100)
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        cluster.rules.append(rule)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, options=options) as consumer:
            assert len(await take(consumer, 1)) == 1
