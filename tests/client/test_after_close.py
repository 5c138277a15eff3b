"""Calls of a client that is closed, or not started: each raises `ClientClosedError`, on both transports.

`run` and loops over a consumer end instead, as they do when the close comes while they wait.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.client import (
    ClientClosedError,
    ConsumeFrom,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    SendError,
    TransactionProducer,
    TransactionState,
    blocking,
)
from ringmq.client.cluster import Cluster
from ringmq.client.producing.send_request import BodyRules, prepare_message
from tests.client.consuming import consumer_of, fill
from tests.client.fake_broker import FakeCluster
from tests.client.threaded_cluster import threaded_cluster
from tests.waiting import wait_until

QUEUE = MessageQueue("T", "a", 0)
RECEIVED = MessageExt("T", b"x", read_topic="T", broker_name="a")
MASTER = "127.0.0.1:1"

CONSUMER_CALLS: dict[str, tuple[Any, ...]] = {
    "poll": (),
    "ack": (RECEIVED,),
    "reject": (RECEIVED,),
    "commit": (),
    "queues": ("T",),
    "assign": ([QUEUE],),
    "assignment": (),
    "pause": ([QUEUE],),
    "resume": ([],),
    "paused": (),
    "committed": (QUEUE,),
    "seek": (QUEUE, 0),
    "seek_to_beginning": (QUEUE,),
    "seek_to_end": (QUEUE,),
    "seek_to_timestamp": (QUEUE, 1),
}
ENDING = {"run", "batches"}  # loops, which end
OUTSIDE = {"start", "close", "closed", "group", "client_id"}
INSIDE = {"new_runner", "drop_runner", "next_messages", "drain_timeout_ms", "prepare"}  # of the blocking twin

PRODUCER_CALLS: dict[str, tuple[Any, ...]] = {
    "send": (Message("T", b"x"),),
    "send_request": (prepare_message(Message("T", b"x"), str, 0, BodyRules()),),
    "prepare": (Message("T", b"x"),),
    "send_batch": ([Message("T", b"x")],),
    "send_all": ([],),
    "send_oneway": (Message("T", b"x"),),
    "request": (Message("T", b"x"),),
    "recall": ("handle",),
    "queues": ("T",),
}
BEGUN: dict[str, tuple[Any, ...]] = {
    "begin_send": PRODUCER_CALLS["send"],
    "begin_request": PRODUCER_CALLS["send_request"],
}
CLUSTER_CALLS: dict[str, tuple[Any, ...]] = {
    "brokers": (),
    "topics": (),
    "system_topics": (MASTER,),
    "queues": ("T",),
    "bounds": ("T",),
    "offset_at": (QUEUE, 1),
    "store_folder": (MASTER,),
}
BLOCKING_CLUSTER_CALLS: dict[str, tuple[Any, ...]] = {
    **{name: args for name, args in CLUSTER_CALLS.items() if name != "offset_at"},
    "queues": (["T"],),
    "bounds": (["T"],),
    "offsets_at": ([QUEUE], 1),
}
TRANSACTION_CALLS: dict[str, tuple[Any, ...]] = {
    "send_in_transaction": (Message("T", b"x"), lambda message: TransactionState.COMMIT)
}


def check(message: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


CLIENTS: dict[str, tuple[Callable[[str], Any], dict[str, tuple[Any, ...]]]] = {
    "Consumer": (lambda namesrv: Consumer("T", namesrv, "g"), CONSUMER_CALLS),
    "Producer": (Producer, PRODUCER_CALLS),
    "lingering Producer": (lambda namesrv: Producer(namesrv, linger_ms=5), PRODUCER_CALLS),
    "TransactionProducer": (
        lambda namesrv: TransactionProducer(namesrv, check=check),
        PRODUCER_CALLS | TRANSACTION_CALLS,
    ),
    "Cluster": (Cluster, CLUSTER_CALLS),
}
_BLOCKING_SENDS = {
    name: args for name, args in PRODUCER_CALLS.items() if name not in ("send_request", "prepare")
} | BEGUN
BLOCKING_CLIENTS: dict[str, tuple[Callable[[str], Any], dict[str, tuple[Any, ...]]]] = {
    "Consumer": (lambda namesrv: blocking.Consumer("T", namesrv, "g"), CONSUMER_CALLS),
    "Producer": (blocking.Producer, _BLOCKING_SENDS),
    "TransactionProducer": (
        lambda namesrv: blocking.TransactionProducer(namesrv, check=check),
        _BLOCKING_SENDS | TRANSACTION_CALLS,
    ),
    "Cluster": (blocking.Cluster, BLOCKING_CLUSTER_CALLS),
}


async def outcome_of(call: Callable[..., Any], *args: Any) -> str:
    try:
        made = call(*args)
        if inspect.isawaitable(made):
            made = await asyncio.wait_for(made, 60)
    except Exception as error:
        return type(error).__name__
    return f"returned {made!r}"


def refused(calls: dict[str, tuple[Any, ...]]) -> dict[str, str]:
    return dict.fromkeys(calls, "ClientClosedError")


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("name", CLIENTS)
async def test_each_call_is_refused_on_asyncio(name: str, started: bool) -> None:
    make, calls = CLIENTS[name]
    async with FakeCluster(topics={"T": 1}) as cluster:
        client = make(cluster.namesrv)
        if started:
            async with client:
                pass
        found = {call: await outcome_of(getattr(client, call), *args) for call, args in calls.items()}
    assert found == refused(calls)


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("name", BLOCKING_CLIENTS)
def test_each_call_is_refused_without_an_event_loop(name: str, started: bool) -> None:
    make, calls = BLOCKING_CLIENTS[name]
    with threaded_cluster(topics={"T": 1}) as cluster:
        client = make(cluster.namesrv)
        if started:
            with client:
                pass
        found = {}
        for call, args in calls.items():
            try:
                found[call] = f"returned {getattr(client, call)(*args)!r}"
            except Exception as error:
                found[call] = type(error).__name__
    assert found == refused(calls)


def test_no_call_is_left_out() -> None:
    for kind, calls in (
        (Consumer, CONSUMER_CALLS),
        (blocking.Consumer, CONSUMER_CALLS),
        (TransactionProducer, PRODUCER_CALLS | TRANSACTION_CALLS),
        (blocking.TransactionProducer, _BLOCKING_SENDS | TRANSACTION_CALLS),
        (Cluster, CLUSTER_CALLS),
        (blocking.Cluster, BLOCKING_CLUSTER_CALLS),
    ):
        public = {name for name in dir(kind) if not name.startswith("_")}
        assert public - set(calls) <= ENDING | OUTSIDE | INSIDE | {"reply"}, kind  # a reply is a send


async def test_a_reply_is_refused() -> None:
    request = Message("T", b"x", {"REPLY_TO_CLIENT": "c", "CORRELATION_ID": "1", "CLUSTER": "c", "TTL": "1000"})
    assert await outcome_of(Producer("127.0.0.1:1").reply, request, b"y") == "ClientClosedError"
    with pytest.raises(ClientClosedError):
        blocking.Producer("127.0.0.1:1").reply(request, b"y")


async def test_loops_and_run_end_and_leave_others_their_turn() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        async with consumer_of(cluster) as consumer:
            pass
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        for _ in range(10):
            assert [message async for message in consumer] == []
            assert [batch async for batch in consumer.batches()] == []
            await consumer.run(print)
        beside.cancel()
        assert turns >= 10


async def test_a_loop_of_polls_without_a_wait_gets_the_messages() -> None:
    """Nothing else runs while a coroutine does not wait: so it would be empty for ever."""
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 1)
        for _ in range(100_000):
            if messages := await consumer.poll(timeout_ms=0):
                break
        assert [message.body for message in messages] == [b"0"]


async def test_a_poll_that_waits_is_ended_by_the_close() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        polling = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
        await consumer.close()
        assert await asyncio.wait_for(polling, 60) == []


def test_a_poll_that_waits_in_a_thread_is_ended_by_the_close() -> None:
    found: list[object] = []
    with threaded_cluster(topics={"T": 1}) as cluster:
        consumer = blocking.Consumer("T", cluster.namesrv, "g")
        consumer.start()
        thread = threading.Thread(target=lambda: found.append(consumer.poll()))
        thread.start()
        wait_until(lambda: consumer._loop._calls, "the poll waits")
        consumer.close()
        thread.join(60)
        assert found == [[]]
        assert list(consumer) == list(consumer.batches()) == []
        consumer.run(print)


async def test_acknowledgements_count_until_the_close_is_over() -> None:
    """A listener and a running handler may use what belongs to the consumer's queues."""
    seen: list[object] = []

    def revoked(queues: list[MessageQueue]) -> None:
        seen.extend([consumer.closed, consumer.assignment() == queues, consumer.paused(), consumer.ack(message)])

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        async with Consumer(
            "T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False, on_revoked=revoked
        ) as consumer:
            (message,) = await consumer.poll(timeout_ms=60_000)
        assert seen == [True, True, [], 1]
        assert cluster.broker.committed["g", "T", 0] == 1


async def test_a_send_that_a_close_overtakes_before_it_left_says_that_nothing_was_sent() -> None:
    producer = Producer("127.0.0.1:1")
    producer.start()
    sending = asyncio.create_task(producer.send(Message("T", b"x")))
    await asyncio.sleep(0)
    await producer.close()
    (failed,) = await asyncio.gather(sending, return_exceptions=True)
    assert isinstance(failed, SendError)
    assert (failed.attempts, str(failed).partition(":")[0]) == (0, "nothing was sent to topic T")
