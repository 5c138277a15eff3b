"""Where a message goes, when, and with whom: selectors, sharding keys, delays, recall handles, lingering batches."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from ringmq.client import (
    ClientMetrics,
    ConnectionSettings,
    Interceptor,
    Message,
    MessageQueue,
    Producer,
    ReplyTimeoutError,
    RetryPolicy,
    SendError,
    compose_message,
    compose_reply,
)
from ringmq.client.connections.routes import queue_of_key
from ringmq.client.producing.accumulator import Accumulator, own_result
from ringmq.client.producing.recall import recall_fields
from ringmq.client.producing.send_request import BodyRules, delayed_message, prepare_message
from ringmq.client.producing.send_result import SendResult, SendStatus
from ringmq.remoting.client_headers import ReplyMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.flags import MessageSysFlag
from ringmq.remoting.properties import MAX_PROPERTIES_BYTES, encode_properties
from ringmq.remoting.recall_handle import decode_handle
from ringmq.remoting.route import BrokerData, QueueData, TopicRouteData
from tests.client.awaited import AwaitedProducer, client_of, transports
from tests.client.consuming import Eventually
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, ok, refuse
from tests.waiting import until

QUEUES = tuple(MessageQueue("T", "a", number) for number in range(8))
transport = transports(AwaitedProducer)


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        ("abc", 96354),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_sharding_keys_hash_as_in_java(key: str, java_hash: int) -> None:
    for count in (1, 3, 8):
        assert queue_of_key(QUEUES[:count], key).queue_id == abs(java_hash) % count


async def test_messages_go_where_they_are_sent() -> None:
    async with FakeCluster(topics={"T": 8}) as cluster, Producer(cluster.namesrv) as producer:
        for key in ("abc", "Aa", "BB"):
            result = await producer.send(Message("T", b"x"), sharding_key=key)
            assert result.queue == queue_of_key(QUEUES, key)
        assert cluster.broker.queues["T", 2112 % 8][0].properties["__SHARDINGKEY"] == "Aa"
        chosen = await producer.send(Message("T", b"5"), selector=lambda queues, m: queues[int(m.body)])
        assert chosen.queue == QUEUES[5]
        for wrong in (
            {"queue": QUEUES[0], "sharding_key": "k"},
            {"selector": lambda queues, m: queues[0], "sharding_key": "k"},
            {"queue": QUEUES[0], "selector": lambda queues, m: queues[0]},
        ):
            with pytest.raises(ValueError, match="one of queue, selector and sharding_key"):
                await producer.send(Message("T", b"x"), **wrong)
        with pytest.raises(ValueError, match="must not be empty"):
            await producer.send(Message("T", b"x"), sharding_key="")


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ({"delay_level": 3}, {"DELAY": "3"}),
        ({"delay_ms": 1500}, {"TIMER_DELAY_MS": "1500"}),
        ({"deliver_at_ms": 1_800_000_000_000}, {"TIMER_DELIVER_MS": "1800000000000"}),
        ({}, {}),
    ],
)
def test_delays_are_properties(options: dict[str, Any], properties: dict[str, str]) -> None:
    assert compose_message("T", b"", **options).properties == properties


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay_level": 0}, "delay_level must be 1 to 1000, not 0"),
        ({"delay_ms": -1}, "delay_ms must be 1 to"),
        ({"deliver_at_ms": 1.5}, "deliver_at_ms must be 1 to"),
        ({"delay_level": 1, "delay_ms": 1}, "one of delay_level, delay_ms"),
    ],
)
def test_wrong_delays_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compose_message("T", b"", **options)


def test_requests_say_what_they_are() -> None:
    def prepared(message: Message) -> Any:
        return prepare_message(message, lambda _: "KEY", 0, BodyRules())

    half = prepared(Message("T", b"x", {"TRAN_MSG": "true"}))
    assert half.sys_flag == MessageSysFlag.TRANSACTION_PREPARED
    asked = Message("T", b"", {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c", "CLUSTER": "C", "TTL": "9"})
    reply = compose_reply(asked, b"body", {"own": "1"})
    assert reply.topic == "C_REPLY_TOPIC"
    assert reply.properties == {
        "own": "1", "MSG_TYPE": "reply", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c", "TTL": "9",
    }  # fmt: skip
    assert prepared(reply).code == RequestCode.SEND_REPLY_MESSAGE_V2


TOKYO = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ({"delay": timedelta(seconds=90)}, {"TIMER_DELAY_MS": "90000"}),
        ({"delay": timedelta(microseconds=1)}, {"TIMER_DELAY_MS": "1"}),
        ({"deliver_at": datetime(2026, 12, 1, 9, tzinfo=UTC)}, {"TIMER_DELIVER_MS": "1796115600000"}),
        ({"deliver_at": datetime(2026, 12, 1, 18, 0, 0, 1, TOKYO)}, {"TIMER_DELIVER_MS": "1796115600001"}),
        ({}, {}),
    ],
)
def test_a_send_names_a_delay_or_a_time(options: dict[str, Any], properties: dict[str, str]) -> None:
    message = Message("T", b"x", {"KEYS": "k"})
    found = delayed_message(message, options.get("delay"), options.get("deliver_at"))
    assert found.properties == {"KEYS": "k", **properties} and message.properties == {"KEYS": "k"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": timedelta(0)}, "delay must be 1 to 34560000000 ms, not 0"),
        ({"delay": timedelta(days=401)}, "delay must be 1 to"),
        ({"deliver_at": datetime(1969, 1, 1, tzinfo=UTC)}, "deliver_at must be 1 to"),
        ({"deliver_at": datetime(2026, 12, 1)}, "deliver_at = 2026-12-01T00:00:00 has no time zone"),
        ({"delay": timedelta(1), "deliver_at": datetime(2026, 12, 1, tzinfo=UTC)}, "one of delay, deliver_at"),
    ],
)
def test_wrong_times_of_a_send_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        delayed_message(Message("T", b"x"), options.get("delay"), options.get("deliver_at"))
    with pytest.raises(ValueError, match="has DELAY already"):
        delayed_message(Message("T", b"x", {"DELAY": "1"}), timedelta(1), None)


@pytest.mark.parametrize("handle", ["", "?", "djIgYSBiIGMgZA==", "djEgYQ==", "x" * 5000, "ü"])
def test_handles_that_are_none_are_refused(handle: str) -> None:
    with pytest.raises(ValueError, match="recall handle"):
        decode_handle(handle)


def test_a_handle_names_its_broker() -> None:
    text = "djEgVG9waWMgYnJva2VyLWEgMTcwMDAwMDAwMDAwMCBLRVk="
    fields = recall_fields("G", decode_handle(text), text)
    assert fields == {"producerGroup": "G", "topic": "Topic", "recallHandle": text, "bname": "broker-a"}


# ---- lingering ----


def sends(cluster: FakeCluster) -> list[Any]:
    return [r for r in cluster.broker.requests if r.code in (310, 320)]


LONG_LINGER_MS = 30_000


async def send_together(producer: Any, messages: Sequence[Message]) -> list[Any]:
    """Results or errors of messages that have waited for one another until the close, which sends what waits."""
    tasks = [asyncio.create_task(producer.send(message)) for message in messages]
    waiting = client_of(producer)._accumulator._open
    await until(lambda: sum(len(one.messages) for one in list(waiting.values())) == len(messages), "all messages wait")
    await producer.close()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_messages_that_linger_travel_together() -> None:
    async with FakeCluster(topics={"T": 1, "U": 1}) as cluster:
        async with Producer(cluster.namesrv, linger_ms=LONG_LINGER_MS) as producer:
            messages = [Message("T" if number % 2 else "U", b"%d" % number) for number in range(20)]
            results = await send_together(producer, messages)
        assert [r.code for r in sends(cluster)] == [320, 320]
        assert len({r.message_id for r in results}) == 20
        for message, result in zip(messages, results, strict=True):
            stored = cluster.broker.queues[message.topic, 0][result.queue_offset]
            assert (stored.body, stored.uniq_key) == (message.body, result.message_id)
            assert len(result.offset_message_ids) == 1


async def test_a_full_batch_does_not_linger() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        async with Producer(cluster.namesrv, linger_ms=LONG_LINGER_MS, batch_bytes_max=10_000) as producer:
            waiting = [asyncio.create_task(producer.send(Message("T", bytes(2000)))) for _ in range(9)]
            large = await producer.send(Message("T", bytes(20_000)))  # goes alone
            assert large.status is SendStatus.OK
            await until(lambda: sum(task.done() for task in waiting) >= 8, "two full batches are sent")
            assert sum(task.done() for task in waiting) == 8, "the ninth message lingers still"
        await asyncio.gather(*waiting)  # closing sends what is left
        assert len(cluster.broker.queues["T", 0]) == 10
        assert sorted(r.code for r in sends(cluster)) == [310, 310, 320, 320]


async def test_what_may_not_join_others_goes_alone() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        async with Producer(cluster.namesrv, linger_ms=50) as producer:
            await asyncio.gather(
                producer.send(compose_message("T", b"1", delay_level=1)),
                producer.send(compose_message("T", b"2", delay_ms=1)),
                producer.send(Message("T", b"3")),
                producer.send(Message("T", b"4"), queue=MessageQueue("T", "a", 0)),
                producer.send(Message("T", b"5", {"WAIT": "false"})),
            )
            with pytest.raises(ValueError, match="topic"):
                await producer.send(Message("no topic", b"6"))
        assert [r.code for r in sends(cluster)] == [310] * 5


async def test_a_batch_that_fails_fails_for_each() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(lambda broker, request: refuse(request, 13, "no") if request.code == 320 else None)
        async with Producer(cluster.namesrv, linger_ms=LONG_LINGER_MS) as producer:
            results = await send_together(producer, [Message("T", b"x") for _ in range(5)])
    assert [type(result) for result in results] == [SendError] * 5


async def test_a_batch_stays_within_the_limit_of_bodies() -> None:
    rules = BodyRules(body_bytes_max=4000)
    async with FakeCluster(topics={"T": 1}) as cluster:
        options = {"linger_ms": LONG_LINGER_MS, "batch_bytes_max": 100_000, "body_rules": rules}
        async with Producer(cluster.namesrv, **options) as producer:
            tasks = [asyncio.create_task(producer.send(Message("T", bytes(900)))) for _ in range(9)]
            await until(lambda: sum(task.done() for task in tasks) == 6, "two full batches are sent")
        assert [result.status for result in await asyncio.gather(*tasks)] == [SendStatus.OK] * 9
        requests = sends(cluster)
        assert [request.code for request in requests] == [320] * 3
        assert max(len(request.body) for request in requests) <= 4000


async def test_a_message_that_cannot_travel_fails_alone() -> None:
    class Veto(Interceptor):
        def before_send(self, group: str, messages: Sequence[Message]) -> object:
            if any(message.body == b"vetoed" for message in messages):
                raise PermissionError("not this one")
            return None

    settings = ConnectionSettings(interceptors=(Veto(),))
    full = {"name": "v" * (MAX_PROPERTIES_BYTES - 10)}  # sound, but UNIQ_KEY and WAIT do not fit into it any more
    async with FakeCluster(topics={"T": 1}) as cluster:
        async with Producer(cluster.namesrv, linger_ms=100, settings=settings) as producer:
            await producer.send(Message("T", b"first"))
            messages = [Message("T", b"1"), Message("T", b"2", full), Message("T", b"vetoed"), Message("T", b"4")]
            results = await asyncio.gather(*(producer.send(m) for m in messages), return_exceptions=True)
        assert [type(result) for result in results] == [SendResult, ValueError, PermissionError, SendResult]
        assert sorted(m.body for m in cluster.broker.queues["T", 0]) == [b"1", b"4", b"first"]


def test_lingering_has_limits() -> None:
    for options, words in (({"linger_ms": 30_001}, "linger_ms must be 0"), ({"linger_ms": -1}, "linger_ms must be 0")):
        with pytest.raises(ValueError, match=words):
            Producer("127.0.0.1:1", **options)
    with pytest.raises(ValueError, match="batch_bytes_max must be positive"):
        Accumulator(1, 0, lambda messages, queue: None)  # type: ignore[arg-type, return-value]


def test_each_message_of_a_batch_has_its_own_result() -> None:
    together = SendResult(SendStatus.OK, QUEUES[0], 100, ("A", "B"), ("X", "Y"))
    assert own_result(together, 1) == SendResult(SendStatus.OK, QUEUES[0], 101, ("B",), ("Y",))


async def test_a_request_without_a_reply_ends_in_time() -> None:
    async with (
        FakeCluster(topics={"T": 1}) as cluster,
        Producer(cluster.namesrv, retry=RetryPolicy(attempts=1)) as producer,
    ):
        await producer.send(Message("T", b"first"))
        with pytest.raises(ReplyTimeoutError, match="topic T replied within 2000 ms"):
            await producer.request(Message("T", b"x"), 2000)
        (_, stored) = cluster.broker.queues["T", 0]
        assert {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"} <= stored.properties.keys()
        assert len(cluster.broker.asked(RequestCode.HEART_BEAT)) >= 1
        cluster.rules.append(lambda broker, request: NoAnswer.CLOSE if request.code == 310 else None)
        with pytest.raises(SendError):
            await producer.request(Message("T", b"x"), 60_000)
        with pytest.raises(ValueError, match="timeout_ms must be 1 to 600000"):
            await producer.request(Message("T", b"x"), 0)


def only_a_has_t(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
    if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or request.ext_fields["topic"] != "T":
        return None
    address = broker.cluster.brokers["a"].address
    route = TopicRouteData([QueueData("a", 1, 1, 6)], [BrokerData("c", "a", {0: address})])
    return ok(request, route.encode(standard_json=True))


def push_reply(broker: FakeBroker, asked: dict[str, str], body: bytes) -> None:
    """Hand a reply to whoever this broker knows."""
    header = ReplyMessageRequestHeader(
        producer_group="repliers", topic="c_REPLY_TOPIC", default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=0, flag=0, properties=encode_properties(asked),
        born_host="127.0.0.1:1", store_host="127.0.0.1:2", store_timestamp=0,
    )  # fmt: skip
    request = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header.encode(), body)
    for peer in broker.peers:
        if peer.client_id:
            peer.transport.write(encode_frame(request))


async def test_a_reply_comes_by_a_broker_that_does_not_have_the_topic(eventually: Eventually) -> None:
    """Repliers send to any that has the cluster's reply topic."""
    async with FakeCluster(("a", "b"), {"c_REPLY_TOPIC": 1}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(only_a_has_t)
        asking = asyncio.create_task(producer.request(Message("T", b"x"), 60_000))
        await eventually(lambda: cluster.broker.queues["T", 0])
        push_reply(cluster.brokers["b"], cluster.broker.queues["T", 0][0].properties, b"here")
        assert (await asking).body == b"here"


async def test_a_reply_that_comes_twice_or_late_is_dropped_and_counted(eventually: Eventually) -> None:
    settings = ConnectionSettings(metrics=(metrics := ClientMetrics()))

    def count(outcome: str) -> int:
        return metrics.snapshot().counter("ringmq_client_replies_total", outcome)

    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv, settings=settings) as producer:
        asking = asyncio.create_task(producer.request(Message("T", b"x"), 60_000))
        await eventually(lambda: cluster.broker.queues["T", 0])
        asked = cluster.broker.queues["T", 0][0].properties
        for body in (b"first", b"again"):
            push_reply(cluster.broker, asked, body)
        assert (await asking).body == b"first"
        await eventually(lambda: count("late") == 1)
        with pytest.raises(ReplyTimeoutError):
            await producer.request(Message("T", b"y"), 2000)
        push_reply(cluster.broker, cluster.broker.queues["T", 0][1].properties, b"late")
        await eventually(lambda: count("late") == 2)
        assert (count("taken"), count("failed")) == (1, 0)


async def test_a_broker_that_is_silent_keeps_no_question(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("ringmq.client.producing.reply_routes.HEARTBEAT_WAIT_S", 0.1)
    async with FakeCluster(("a", "b"), {"c_REPLY_TOPIC": 1}) as cluster, Producer(cluster.namesrv) as producer:
        silence = {RequestCode.HEART_BEAT}
        cluster.rules += [
            only_a_has_t,
            lambda broker, request: NoAnswer.SILENCE if broker.name == "b" and request.code in silence else None,
        ]
        await producer.send(Message("T", b"first"))
        for _ in range(2):
            with pytest.raises(ReplyTimeoutError):  # and no SendError: it was stored
                await producer.request(Message("T", b"x"), 1500)
        assert len(cluster.broker.queues["T", 0]) == 3
