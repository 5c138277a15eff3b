"""Consumers that check the CRC of stored bodies."""

import pytest

from ringmq.client import BodyCrcError, ConsumeFrom, Consumer, MessageExt, PullOptions
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import encode_message
from tests.client.awaited import AwaitedConsumer, transports
from tests.client.consuming import fill, run_until, take
from tests.client.fake_broker import FakeBroker, FakeCluster, ok, pulled

transport = transports(AwaitedConsumer)
CHECKED = PullOptions(check_crc=True)


def with_damage_at(*damaged: int) -> FakeCluster:
    """A cluster that serves these offsets of T with another byte in the body, and takes messages back."""

    def spoil(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            return ok(request)
        if request.code != RequestCode.PULL_MESSAGE or request.ext_fields["topic"] != "T":
            return None
        offset = int(request.ext_fields["queueOffset"])
        found = [bytearray(encode_message(message)) for message in broker.queues["T", 0][offset:]]
        for at in damaged:
            if offset <= at < offset + len(found):
                found[at - offset][88] ^= 1
        return pulled(request, 0, offset + len(found), 9, b"".join(found)) if found else None

    cluster = FakeCluster(topics={"T": 1})
    cluster.rules.append(spoil)
    return cluster


def consumer_of(cluster: FakeCluster, **options: object) -> Consumer:
    return Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, **options)  # type: ignore[arg-type]


async def test_a_damaged_body_is_an_error_that_names_the_message() -> None:
    async with with_damage_at(0, 4) as cluster:
        fill(cluster, "T", 0, 9)
        async with consumer_of(cluster, options=CHECKED, auto_ack=False) as consumer:
            with pytest.raises(
                BodyCrcError, match=r"topic T, broker .*, queue 0, offset 0 \(log offset 0\).*CRC"
            ) as first:
                await take(consumer, 1)
            found = await take(consumer, 3)
            assert [message.queue_offset for message in found] == [1, 2, 3]
            with pytest.raises(BodyCrcError, match=r"offset 4 \(log offset 4\)") as error:
                await take(consumer, 5)
            found += await take(consumer, 4)
            assert [message.queue_offset for message in found] == [1, 2, 3, 5, 6, 7, 8]
            consumer.ack([*found, first.value.message])
            await consumer.commit()
            assert cluster.broker.committed["g", "T", 0] == 4, "the damaged message waits for a decision"
            assert consumer.ack(error.value.message) == 1
        assert cluster.broker.committed["g", "T", 0] == 9


async def test_a_loop_goes_on_after_the_error() -> None:
    async with with_damage_at(1) as cluster:
        fill(cluster, "T", 0, 3)
        async with consumer_of(cluster, options=CHECKED) as consumer:
            seen = []
            for _ in range(2):
                try:
                    async for message in consumer:
                        seen.append(message.queue_offset)
                        if message.queue_offset == 2:
                            break
                except BodyCrcError as error:
                    seen.append(-error.message.queue_offset)
        assert seen == [0, -1, 2]
        assert cluster.broker.committed["g", "T", 0] == 2


async def test_without_the_option_the_body_is_delivered() -> None:
    async with with_damage_at(1) as cluster:
        fill(cluster, "T", 0, 3)
        async with consumer_of(cluster) as consumer:
            assert [message.body for message in await take(consumer, 3)] == [b"0", b"0", b"2"]


async def test_a_handler_never_gets_it_and_the_message_goes_to_the_dead_letters() -> None:
    async with with_damage_at(1) as cluster:
        fill(cluster, "T", 0, 3)
        seen: list[int] = []

        async def handle(message: MessageExt) -> None:
            seen.append(message.queue_offset)

        def back() -> list[RemotingCommand]:
            return cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)

        async with consumer_of(cluster, options=CHECKED) as consumer:
            await run_until(consumer, lambda: len(seen) == 2 and back(), handle)
        assert sorted(seen) == [0, 2]
        assert [(sent.ext_fields["offset"], sent.ext_fields["delayLevel"]) for sent in back()] == [("1", "-1")]
        assert cluster.broker.committed["g", "T", 0] == 3
