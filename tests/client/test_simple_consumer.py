"""The consumer by POP beside a fake cluster, by both transports: waits, receipts, several masters, its end."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ClientClosedError,
    ClientMetrics,
    Compression,
    ConnectError,
    ConnectionSettings,
    ConsumeFrom,
    Interceptor,
    MessageExt,
    PoppedMessage,
    ReceiptExpiredError,
    SimpleConsumer,
    Sql92,
)
from ringmq.client.compression import compress_body
from ringmq.client.popping import pop_requests, receiving
from ringmq.client.popping.settling import joined
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import HeartbeatData
from tests.client.awaited import ONLY_ASYNCIO, ONLY_BLOCKING, AwaitedSimpleConsumer, client_of, transports
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, ok, refuse
from tests.client.fake_pops import POP_TIME_MS, REVIVE_QUEUE, FakePops
from tests.waiting import until

transport = transports(AwaitedSimpleConsumer)
POP, ACK, BATCH = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
BATCH_BYTES_MAX = 512 << 10
"""Of a batch of acknowledgements that RingMQ takes (RMQ_POP_BATCH_BYTES_MAX)."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(topics={"T": 2, "U": 1}) as made:
        yield made


@pytest.fixture
def pops(cluster: FakeCluster) -> FakePops:
    return FakePops(cluster)


@pytest.fixture
async def pair() -> AsyncIterator[FakePops]:
    """Two masters."""
    async with FakeCluster(("a", "b"), {"T": 1}) as made:
        yield FakePops(made)


def consumer_of(cluster: FakeCluster, topics: Any = "T", **options: Any) -> SimpleConsumer:
    return SimpleConsumer(topics, cluster.namesrv, "g", **options)


def bodies(messages: Sequence[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


# ---- receive ----


async def test_messages_carry_their_receipts(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(3):
        pops.store(b"%d" % number, queue_id=1)
    async with consumer_of(cluster, consume_from=ConsumeFrom.FIRST) as consumer:
        first = await consumer.receive(1)
        rest = await consumer.receive(invisible_ms=5000)
    assert bodies(first) == [b"0"]
    assert bodies(rest) == [b"1", b"2"]
    assert rest[1].receipt.text() == f"1 {POP_TIME_MS} 5000 {REVIVE_QUEUE} 0 a 1 2"
    assert rest[1].invisible_until_ms == POP_TIME_MS + 5000
    assert 0 < rest[1].seconds_left <= 5
    assert (rest[1].topic, rest[1].broker_name, rest[1].read_topic, rest[1].attempt) == ("T", "a", "", 1)
    asked = cluster.broker.asked(POP)[0].ext_fields
    assert asked == {
        "consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000",
        "pollTime": asked["pollTime"], "bornTime": "0", "initMode": "0", "expType": "TAG", "exp": "*",
    }  # fmt: skip
    assert 5000 < int(asked["pollTime"]) <= 15_000


async def test_members_say_that_they_pop(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster, {"T": "A || B"}) as consumer:
        await until(lambda: "g" in cluster.broker.peers[0].groups, "the member is known")
        (member,) = HeartbeatData.decode(cluster.broker.asked(RequestCode.HEART_BEAT)[0].body).consumers
        assert (member.consume_type, member.message_model) == ("CONSUME_POP", "CLUSTERING")
        assert [(s.topic, s.sub_string) for s in member.subscriptions] == [("T", "A || B")]
        assert consumer.group == "g"
    (left,) = cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
    assert left.ext_fields == {"clientID": consumer.client_id, "consumerGroup": "g"}


async def test_a_wait_ends_with_a_message(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        waiting = asyncio.create_task(consumer.receive())
        await until(lambda: pops.held, "the broker holds the pop")
        pops.store(b"late")
        assert bodies(await waiting) == [b"late"]
    assert len(cluster.broker.asked(POP)) == 1


async def test_a_wait_ends_at_its_time(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        began = time.monotonic()
        assert await consumer.receive(wait_ms=300) == []
        assert time.monotonic() - began >= 0.2
        assert await consumer.receive(wait_ms=0) == []


async def test_a_broker_that_holds_no_pop_is_not_asked_in_a_tight_loop(cluster: FakeCluster) -> None:
    asked_at: list[float] = []

    def full(_: object, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != POP:
            return None
        asked_at.append(time.monotonic())
        return refuse(request, ResponseCode.POLLING_FULL, "full")

    cluster.rules.append(full)
    async with consumer_of(cluster) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_ms=600_000))
        await until(lambda: len(asked_at) >= 5, "the broker is asked again and again")
        await consumer.close()
        assert await waiting == []
    assert asked_at[4] - asked_at[0] >= (50 + 100 + 200 + 400) / 2000, "pauses grow, each at least half of its length"


async def test_topics_are_asked_in_turn(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster, {"T": "*", "U": "t"}) as consumer:
        for topic in ("T", "U"):
            pops.store(topic.encode(), topic)
        got = {(await consumer.receive(1))[0].topic for _ in range(2)}
        waiting = asyncio.create_task(consumer.receive())
        for topic in ("T", "U"):
            await until(lambda: pops.held, "a pop waits")
            pops.store(b"late", topic)
            assert bodies(await waiting) == [b"late"]
            waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
    assert got == {"T", "U"}
    assert await waiting == []


async def test_a_message_waits_a_part_of_the_time_for_pops_elsewhere(pair: FakePops) -> None:
    async with consumer_of(pair.cluster) as consumer:
        for broker in ("a", "b"):
            waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
            await until(lambda: pair.held, "a pop waits")
            if pair.held[0][0].name == broker:
                await until(lambda: pair.held and pair.held[0][0].name != broker, "it waits elsewhere")  # noqa: B023
            pair.store(b"x", broker=broker)
            async with asyncio.timeout(30):
                (message,) = await waiting
            assert message.broker_name == broker
            await consumer.ack(message)


async def test_a_lost_master_delays_no_other(pair: FakePops) -> None:
    async with consumer_of(pair.cluster) as consumer:
        await pair.cluster.shut(pair.cluster.brokers["a"])
        for number in range(20):
            pair.store(b"%d" % number, broker="b")
        assert sorted([*(await consumer.receive(1)), *(await consumer.receive(1))], key=lambda m: m.body)
        await pair.cluster.open(pair.cluster.brokers["a"])
        pair.ready["b", "T"].clear()
        waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
        pair.store(b"back", broker="a")
        assert bodies(await waiting) == [b"back"]


async def test_no_broker_is_an_error_after_the_wait(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await cluster.shut(cluster.broker)
        began = time.monotonic()
        with pytest.raises(ConnectError):
            await consumer.receive(wait_ms=400)
        assert time.monotonic() - began >= 0.3
        await cluster.open(cluster.broker)
        pops.store(b"x")
        assert bodies(await consumer.receive()) == [b"x"]


@pytest.mark.parametrize("topics", ["Young", ("T", "Young")])
async def test_a_topic_that_does_not_exist_yet_is_waited_for(cluster: FakeCluster, pops: FakePops, topics: Any) -> None:
    async with consumer_of(cluster, topics) as consumer:
        assert await consumer.receive(wait_ms=100) == []
        waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
        cluster.topics["Young"] = 1
        pops.store(b"first", "Young")
        assert bodies(await waiting) == [b"first"]


async def test_a_refusal_is_told_at_once(cluster: FakeCluster) -> None:
    refusal = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    cluster.rules.append(lambda _, r: refuse(r, refusal, "bad expression") if r.code == POP else None)
    async with consumer_of(cluster) as consumer:
        with pytest.raises(BrokerError, match="bad expression") as caught:
            async with asyncio.timeout(60):
                await consumer.receive(wait_ms=600_000)
    assert caught.value.code == refusal


async def test_a_refused_condition_fails_the_start(cluster: FakeCluster) -> None:
    check = RequestCode.CHECK_CLIENT_CONFIG
    cluster.rules.append(lambda _, r: refuse(r, 1, "enablePropertyFilter is off") if r.code == check else None)
    with pytest.raises(BrokerError, match="enablePropertyFilter"):
        async with consumer_of(cluster, {"T": Sql92("a > 1")}):
            pass


@pytest.mark.parametrize("fields", [{"startOffsetInfo": "0 0"}, {"popTime": "soon"}, {"startOffsetInfo": "0 7 1"}])
async def test_an_answer_that_does_not_fit_together_is_an_error(cluster: FakeCluster, fields: dict[str, str]) -> None:
    pops = FakePops(cluster)
    pops.store(b"x")

    def spoilt(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        answer = pops(broker, request)
        if request.code == POP and isinstance(answer, RemotingCommand):
            answer.ext_fields |= fields
        return answer

    cluster.rules[:] = [spoilt]
    async with consumer_of(cluster) as consumer:
        with pytest.raises(BrokerError, match="answer to a pop of T"):
            await consumer.receive(wait_ms=0)


async def test_tags_are_compared_as_text(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(b"unwanted", tags="BB")  # the hash of "Aa"
    pops.store(b"wanted", tags="Aa")
    async with consumer_of(cluster, {"T": "Aa"}) as consumer:
        assert bodies(await consumer.receive()) == [b"wanted"]
    assert pops.acked == [("T", 0, 0)]  # the group does not want it, so it must not come again


async def test_bodies_are_decompressed_up_to_a_bound(
    cluster: FakeCluster, pops: FakePops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "UNPACKED_BYTES_MAX", 1000)
    for _ in range(3):
        body, flag = compress_body(b"x" * 600, Compression.ZLIB, 5)
        pops.put(cluster.broker.store(MessageExt("T", body, {}, sys_flag=flag)))
    async with consumer_of(cluster) as consumer:
        assert bodies(await consumer.receive()) == [b"x" * 600] * 2
        await until(lambda: pops.changed, "the last one is given back")
        assert bodies(await consumer.receive()) == [b"x" * 600]
    assert pops.changed == [(("T", 0, 2), 0)]


# ---- the end of a message ----


async def test_messages_are_acknowledged_together(pair: FakePops) -> None:
    for number in range(40):
        pair.store(b"%d" % number, broker="ab"[number % 2])
    async with consumer_of(pair.cluster) as consumer:
        messages = [message for _ in range(4) for message in await consumer.receive(10)]
        assert len(messages) == 40
        await consumer.ack(messages)
        await consumer.ack([])
    for broker in pair.cluster.brokers.values():
        assert len(broker.asked(BATCH)) == 1
        assert not broker.asked(ACK)
    assert sorted(pair.acked) == sorted([("T", 0, offset) for offset in range(20)] * 2)


async def test_one_message_has_a_request_of_its_own(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(b"x")
    async with consumer_of(cluster) as consumer:
        (message,) = await consumer.receive()
        await consumer.ack(message)
    (asked,) = cluster.broker.asked(ACK)
    assert asked.ext_fields == {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "offset": "0", "extraInfo": message.receipt.text(),
    }  # fmt: skip


async def test_a_broker_without_batches_gets_single_acknowledgements(cluster: FakeCluster, pops: FakePops) -> None:
    pops.serves_batches = False
    async with consumer_of(cluster) as consumer:
        for _ in range(2):
            for number in range(5):
                pops.store(b"%d" % number)
            await consumer.ack(await consumer.receive())
    assert pops.acked == [("T", 0, offset) for offset in range(10)]
    assert len(cluster.broker.asked(BATCH)) == 1  # asked once


async def test_a_message_far_behind_the_first_one_is_acknowledged_alone(
    cluster: FakeCluster, pops: FakePops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_requests, "BITS_MAX", 2)
    for number in range(4):
        pops.store(b"%d" % number)
    async with consumer_of(cluster) as consumer:
        await consumer.ack(await consumer.receive())
    assert sorted(pops.acked) == [("T", 0, offset) for offset in range(4)]
    assert len(cluster.broker.asked(ACK)) == 2


async def test_a_change_of_the_time_has_a_new_receipt(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(2):
        pops.store(b"%d" % number)
    async with consumer_of(cluster) as consumer:
        _, message = await consumer.receive(invisible_ms=1000)
        await consumer.change_invisible(message, 90_000)
        assert message.receipt.text() == f"1 {POP_TIME_MS + 5} 90000 {REVIVE_QUEUE + 1} 0 a 0 1"
        assert 89 < message.seconds_left <= 90
        await consumer.ack(message)
        assert cluster.broker.asked(ACK)[0].ext_fields["extraInfo"] == message.receipt.text()
    assert pops.changed == [(("T", 0, 1), 90_000)]


@pytest.mark.parametrize(("pops_of", "bits", "batches"), [(501, 1, 2), (400, 8192, 2), (300, 8192, 1)])
def test_no_batch_is_more_than_a_broker_takes(pops_of: int, bits: int, batches: int) -> None:
    """Bit maps make it long: a batch has a bound of bytes, too."""
    made = []
    for number in range(pops_of):
        message = PoppedMessage("T", b"x")
        place = {"start_offset": number * 10_000, "offset": number * 10_000 + bits - 1}
        message.receipt = message.receipt._replace(broker_name="a", **place)
        made.append(message)
    bodies = list(pop_requests.WireGroup("g", "").batch_bodies(made))
    assert len(bodies) == batches
    assert all(len(body) <= BATCH_BYTES_MAX for body, _ in bodies)
    assert [message for _, found in bodies for message in found] == made
    named = [ack["so"] for body, _ in bodies for ack in json.loads(body)["acks"]]
    assert named == [message.receipt.start_offset for message in made]
    assert {json.loads(body)["brokerName"] for body, _ in bodies} == {"a"}


async def test_a_changed_time_runs_from_the_request_on(cluster: FakeCluster, pops: FakePops) -> None:
    """The broker counts from the request. Its answer may take long."""
    held: list[tuple[FakeBroker, RemotingCommand]] = []

    def hold(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code != CHANGE or held:
            return None
        held.append((broker, request))
        return NoAnswer.SILENCE

    cluster.rules.insert(0, hold)
    pops.store(b"x")
    async with consumer_of(cluster) as consumer:
        (message,) = await consumer.receive()
        changing = asyncio.create_task(consumer.change_invisible(message, 90_000))
        await until(lambda: held, "the broker has the request")
        asked_before = time.monotonic()
        await asyncio.sleep(0.05)  # span: the time to the answer
        cluster.serve(held[0][0], held[0][0].peers[0], held[0][1])
        await changing
    assert message.expires_at <= asked_before + 90


async def test_a_nack_gives_the_message_back(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(b"x")
    async with consumer_of(cluster) as consumer:
        (message,) = await consumer.receive()
        await consumer.nack(message)
        (again,) = await consumer.receive()
        await consumer.nack(again, 2500)
    assert pops.changed == [(("T", 0, 0), 0), (("T", 0, 0), 2500)]


async def test_a_rejected_message_becomes_a_dead_letter(cluster: FakeCluster, pops: FakePops) -> None:
    sent: list[dict[str, str]] = []

    def send_back(_: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CONSUMER_SEND_MSG_BACK:
            return None
        sent.append(request.ext_fields)
        return ok(request) if len(sent) > 1 else refuse(request, 1, "no disk")

    cluster.rules.append(send_back)
    stored = pops.store(b"x")
    async with consumer_of(cluster) as consumer:
        (message,) = await consumer.receive()
        with pytest.raises(BrokerError, match="no disk"):
            await consumer.reject(message)
        assert pops.acked == []
        await consumer.reject(message)
    assert pops.acked == [("T", 0, 0)]
    assert sent[0]["delayLevel"] == "-1"
    assert (sent[0]["originTopic"], sent[0]["offset"]) == ("T", str(stored.commit_log_offset))


async def test_a_time_that_is_over_has_an_error_of_its_own(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(2):
        pops.store(b"%d" % number)
    async with consumer_of(cluster) as consumer:
        late, _ = messages = await consumer.receive(invisible_ms=20)
        await until(lambda: messages[1].seconds_left < 0, "the time is over")
        with pytest.raises(ReceiptExpiredError, match=r"message .* and of 1 more") as caught:
            await consumer.ack(messages)
        assert caught.value.messages == messages
        assert len(pops.acked) == 2  # it counts if no other consumer has had them
        with pytest.raises(ReceiptExpiredError, match="the invisible time is over"):
            await consumer.change_invisible(late, 1000)
        assert pops.changed == []  # the message may be another consumer's


@pytest.mark.parametrize("code", [ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL])
async def test_a_receipt_that_the_broker_does_not_know_is_void(cluster: FakeCluster, code: int) -> None:
    cluster.rules.append(lambda _, r: refuse(r, code, "no such offset") if r.code in (ACK, CHANGE) else None)
    pops = FakePops(cluster)
    pops.store(b"x")
    async with consumer_of(cluster) as consumer:
        (message,) = await consumer.receive()
        with pytest.raises(ReceiptExpiredError, match="no such offset") as caught:
            await consumer.ack(message)
        assert isinstance(caught.value.cause, BrokerError)
        with pytest.raises(ReceiptExpiredError):
            await consumer.change_invisible(message, 1000)


async def test_an_acknowledgement_survives_a_lost_connection(cluster: FakeCluster, pops: FakePops) -> None:
    lost: list[int] = []

    def lose_once(_: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code in (ACK, BATCH) and request.code not in lost:
            lost.append(request.code)
            return NoAnswer.CLOSE
        return None

    cluster.rules.insert(0, lose_once)
    for number in range(3):
        pops.store(b"%d" % number)
    async with consumer_of(cluster) as consumer:
        first, *rest = await consumer.receive()
        await consumer.ack(first)
        await consumer.ack(rest)
    assert pops.acked == [("T", 0, offset) for offset in range(3)]


async def test_the_others_are_acknowledged_if_one_broker_fails(pair: FakePops) -> None:
    pair.cluster.rules.insert(
        0, lambda b, r: refuse(r, 1, "no disk") if b.name == "a" and r.code in (ACK, BATCH) else None
    )
    for broker in "abab":
        pair.store(b"x", broker=broker)
    async with consumer_of(pair.cluster) as consumer:
        messages = [*await consumer.receive(), *await consumer.receive()]
        with pytest.raises(BrokerError, match="no disk"):
            await consumer.ack(messages)
    assert len(pair.acked) == 2


async def test_all_brokers_that_fail_are_told(pair: FakePops) -> None:
    def fail(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != BATCH:
            return None
        return refuse(request, *((1, "no disk") if broker.name == "b" else (ResponseCode.NO_MESSAGE, "gone")))

    pair.cluster.rules.insert(0, fail)
    for broker in "abab":
        pair.store(b"x", broker=broker)
    async with consumer_of(pair.cluster) as consumer:
        messages = [*await consumer.receive(), *await consumer.receive()]
        with pytest.raises(BrokerError, match="no disk") as failed:
            await consumer.ack(sorted(messages, key=lambda message: message.receipt.broker_name))
    (note,) = failed.value.__notes__
    assert "gone" in note


def test_errors_of_several_requests_are_one() -> None:
    def void(offset: int) -> ReceiptExpiredError:
        return ReceiptExpiredError([PoppedMessage("T", b"", queue_offset=offset)])

    named = joined([void(0), void(1), void(2)])
    assert isinstance(named, ReceiptExpiredError)
    assert [message.queue_offset for message in named.messages] == [0, 1, 2]
    many = joined([BrokerError("a", 1, str(number % 20)) for number in range(100)])
    assert "answered 1: 0" in str(many)
    assert len(many.__notes__) == 9
    assert many.__notes__[-1] == "and 12 errors more"
    noted = BrokerError("b", 1, "b")
    noted.add_note("beside it")
    assert joined([BrokerError("a", 1, "a"), noted]).__notes__ == ["b answered 1: b", "beside it"]


async def test_a_message_that_came_again_has_its_first_topic(cluster: FakeCluster, pops: FakePops) -> None:
    receipt = f"7 {POP_TIME_MS} 60000 2 1 a 0 9"
    again = MessageExt("T", b"x", {"POP_CK": receipt, "UNIQ_KEY": "id"}, queue_offset=9, reconsume_times=2)
    pops.ready["a", "T"].append(again)
    async with consumer_of(cluster) as consumer:
        (message,) = await consumer.receive()
        assert (message.topic, message.read_topic, message.queue_id, message.queue_offset) == ("T", "%RETRY%g_T", 0, 9)
        assert (message.attempt, message.receipt.text()) == (3, receipt)
        assert "POP_CK" not in message.properties
        await consumer.ack(message)
    assert pops.acked == [("%RETRY%g_T", 0, 9)]


async def test_names_have_their_namespace_on_the_wire(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.topics["ns%T"] = 1
    for number in range(2):
        pops.store(b"%d" % number, "ns%T")
    receipt = f"7 {POP_TIME_MS} 60000 2 2 a 0 9"
    pops.ready["a", "ns%T"].append(MessageExt("ns%T", b"x", {"POP_CK": receipt}, queue_offset=9))
    async with consumer_of(cluster, settings=ConnectionSettings(namespace="ns")) as consumer:
        *both, again = await consumer.receive()
        assert [m.topic for m in (*both, again)] == ["T"] * 3
        assert again.read_topic == "%RETRY%g+T"
        await consumer.ack(both)
        await consumer.ack(again)
    assert pops.acked == [("ns%T", 0, 0), ("ns%T", 0, 1), ("%RETRY%ns%g+ns%T", 0, 9)]
    assert b'"c":"ns%g"' in cluster.broker.asked(BATCH)[0].body
    assert cluster.broker.asked(ACK)[0].ext_fields["consumerGroup"] == "ns%g"


# ---- order ----


async def test_an_attempt_at_an_orderly_pop_is_repeated(cluster: FakeCluster, pops: FakePops) -> None:
    counts = "0 qo0%1 4;0 0 2"

    def orderly(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        if request.code != POP:
            return None
        if len(broker.asked(POP)) == 1:
            return NoAnswer.CLOSE
        answer = pops(broker, request)
        if isinstance(answer, RemotingCommand):
            answer.ext_fields["orderCountInfo"] = counts
        return answer

    cluster.rules.insert(0, orderly)
    for number in range(2):
        pops.store(b"%d" % number)
    async with consumer_of(cluster, ordered=True) as consumer:
        messages = await consumer.receive()
        await consumer.receive(wait_ms=0)
    first, again, other = (asked.ext_fields for asked in cluster.broker.asked(POP))
    assert first["order"] == "true"
    assert first["attemptId"] == again["attemptId"] != other["attemptId"]
    assert [message.reconsume_times for message in messages] == [2, 4]


# ---- the end of the consumer ----


@ONLY_ASYNCIO
async def test_a_cancelled_call_takes_no_message(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await consumer.receive()
        assert pops.held  # the broker does not know
        pops.store(b"x")
        await until(lambda: pops.changed, "the message is given back")
        assert bodies(await consumer.receive()) == [b"x"]


async def test_close_ends_the_waits(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        waiting = [asyncio.create_task(consumer.receive()) for _ in range(8)]
        await until(lambda: len(pops.held) == 8, "all wait")
        await consumer.close()
        async with asyncio.timeout(30):
            assert await asyncio.gather(*waiting) == [[]] * 8
        for call in (consumer.receive(), consumer.start()):
            with pytest.raises(ClientClosedError):
                await call
    assert client_of(consumer).closed


async def test_close_ends_a_wait_for_a_broker(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await cluster.shut(cluster.broker)
        waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
        await asyncio.sleep(0.1)  # span: a part of the wait
        await consumer.close()
        async with asyncio.timeout(30):
            assert await waiting == []


async def test_close_waits_for_acknowledgements(cluster: FakeCluster, pops: FakePops) -> None:
    unanswered: list[tuple[FakeBroker, RemotingCommand]] = []

    def slow(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code != ACK:
            return None
        unanswered.append((broker, request))
        return NoAnswer.SILENCE

    cluster.rules.insert(0, slow)
    pops.store(b"x")
    async with consumer_of(cluster) as consumer:
        (message,) = await consumer.receive()
        acking = asyncio.create_task(consumer.ack(message))
        await until(lambda: unanswered, "the broker has the acknowledgement")
        closing = asyncio.create_task(consumer.close())
        await until(lambda: client_of(consumer).closed, "the close has begun")
        ((broker, request),) = unanswered
        pops.held.append((broker, request))
        pops._end_poll(broker, request, ok(request))
        await acking
        await closing
    assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)


async def test_close_waits_no_longer_than_it_may(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.rules.insert(0, lambda _, r: NoAnswer.SILENCE if r.code == ACK else None)
    pops.store(b"x")
    async with consumer_of(cluster, drain_timeout_ms=200) as consumer:
        (message,) = await consumer.receive()
        acking = asyncio.create_task(consumer.ack(message))
        await until(lambda: cluster.broker.asked(ACK), "the broker has the acknowledgement")
        began = time.monotonic()
        await consumer.close()
        assert 0.15 < time.monotonic() - began < 15
        with pytest.raises((ConnectError, ClientClosedError)):
            await acking
        with pytest.raises(ClientClosedError):
            await consumer.ack(message)


@ONLY_BLOCKING
async def test_threads_share_a_consumer(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(64):
        pops.store(b"%d" % number)
    async with consumer_of(cluster) as consumer:

        async def work() -> list[bytes]:
            found: list[bytes] = []
            while messages := await consumer.receive(1, wait_ms=100):
                await consumer.ack(messages)
                found += bodies(messages)
            return found

        done = await asyncio.gather(*(work() for _ in range(8)))
    assert sorted(body for found in done for body in found) == sorted(b"%d" % number for number in range(64))
    assert len(pops.acked) == 64


# ---- observers ----


class Seen(Interceptor):
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.fails = False

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        if self.fails:
            raise OSError("an observer's fault")
        self.events.append(("before", bodies(messages)))

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        self.events.append(("after", bodies(messages), type(error).__name__))


async def test_observers_see_messages_and_their_ends(cluster: FakeCluster, pops: FakePops) -> None:
    seen, metrics = Seen(), ClientMetrics()
    settings = ConnectionSettings(metrics=metrics, interceptors=(seen,))
    async with consumer_of(cluster, settings=settings) as consumer:
        pops.store(b"x")
        pops.store(b"y")
        first, second = await consumer.receive()
        await consumer.ack(first)
        await consumer.nack(second)
        await consumer.receive(wait_ms=0)
        await consumer.receive(wait_ms=0)
    assert seen.events == [
        ("before", [b"x", b"y"]),
        ("after", [b"x"], "NoneType"),
        ("after", [b"y"], "NackedError"),
        ("before", [b"y"]),
    ]
    shown = metrics.snapshot()
    assert shown.counter("ringmq_client_pulls_total", "T", "found") == 2
    assert shown.counter("ringmq_client_pulls_total", "T", "empty") >= 1
    assert shown.counter("ringmq_client_consumed_messages_total", "T", "g", "ok") == 1
    assert shown.counter("ringmq_client_consumed_messages_total", "T", "g", "failed") == 1


async def test_messages_that_an_observer_refuses_come_again(cluster: FakeCluster, pops: FakePops) -> None:
    seen = Seen()
    seen.fails = True
    pops.store(b"x")
    async with consumer_of(cluster, settings=ConnectionSettings(interceptors=(seen,))) as consumer:
        with pytest.raises(OSError, match="an observer's fault"):
            await consumer.receive()
        seen.fails = False
        assert bodies(await consumer.receive()) == [b"x"]


async def test_operators_see_the_member(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await until(lambda: "g" in cluster.broker.peers[0].groups, "the member is known")
        fields = {"consumerGroup": "g", "clientId": consumer.client_id, "jstackEnable": "false"}
        cluster.broker.ask("g", RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        cluster.broker.notify("g")
        await until(lambda: cluster.broker.answers, "the consumer answers")
    assert b'"PROP_CONSUME_TYPE":"CONSUME_POP"' in cluster.broker.answers[0].body


# ---- arguments ----


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topics": None}, TypeError),
        ({"topics": ()}, ValueError),
        ({"consume_from": "first"}, TypeError),
        ({"consume_from": ConsumeFrom.TIMESTAMP}, ValueError),
        ({"ordered": "no"}, TypeError),
        ({"drain_timeout_ms": -1}, ValueError),
        ({"settings": 3}, TypeError),
        ({"group": "a b"}, ValueError),
    ],
)
def test_wrong_arguments_are_refused_at_once(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        SimpleConsumer(**({"topics": "T", "namesrv": "127.0.0.1:1", "group": "g"} | options))


async def test_wrong_numbers_are_refused_at_once(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        for options in ({"max_messages": 33}, {"max_messages": 0}, {"wait_ms": -1}, {"invisible_ms": 0}):
            with pytest.raises(ValueError, match=next(iter(options))):
                await consumer.receive(**options)
        with pytest.raises(TypeError, match="PoppedMessage"):
            await consumer.ack([MessageExt("T", b"")])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="invisible_ms"):
            await consumer.change_invisible(PoppedMessage("T", b""), -1)
