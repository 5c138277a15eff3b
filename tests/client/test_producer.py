"""The producer's rules against a fake broker: retries, other broker first, bounds, GO_AWAY, reconnects."""

import asyncio
import base64
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.client import (
    BodyRules,
    ClientClosedError,
    ConnectError,
    ConnectionSettings,
    Message,
    MessageQueue,
    Producer,
    RequestTimeoutError,
    RetryPolicy,
    SendError,
    SendStatus,
    compose_message,
)
from ringmq.client.connections import remoting_client
from ringmq.client.producing import broker_faults
from ringmq.client.runtimes import socket_transport
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import HeartbeatData
from ringmq.remoting.route import ClusterInfo
from tests.client.awaited import AwaitedProducer, client_of, transports
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, ok, refuse
from tests.waiting import until

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
transport = transports(AwaitedProducer)


def sends(broker: FakeBroker) -> list[RemotingCommand]:
    return [request for request in broker.requests if request.code in SENDS]


def answer_first(count: int, code: int) -> Callable[[FakeBroker, RemotingCommand], RemotingCommand | None]:
    """A rule that refuses the first `count` sends."""
    left = [count]

    def rule(_: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code in SENDS and left[0] > 0:
            left[0] -= 1
            return refuse(request, code, "as the test wants")
        return None

    return rule


def stored_with(code: int, names: set[str]) -> Callable[[FakeBroker, RemotingCommand], RemotingCommand | None]:
    """A rule: the brokers named store everything with this status."""

    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code not in SENDS or broker.name not in names:
            return None
        answer = refuse(request, code, "")
        answer.ext_fields = {"msgId": "X", "queueId": "0", "queueOffset": "7"}
        return answer

    return rule


async def test_send_says_where_the_message_is() -> None:
    async with FakeCluster(topics={"T": 4}) as cluster, Producer(cluster.namesrv) as producer:
        message = compose_message("T", b"body", tags="a", keys="k")
        result = await producer.send(message)
        stored = cluster.broker.queues["T", result.queue.queue_id][0]
        assert (result.status, result.queue_offset) == (SendStatus.OK, 0)
        assert result.message_id == stored.uniq_key == message.uniq_key
        assert result.offset_message_ids[0] == stored.offset_msg_id
        assert (stored.body, stored.tags, stored.keys) == (b"body", "a", ["k"])


async def test_an_unknown_topic_is_made_by_its_first_send() -> None:
    async with FakeCluster() as cluster, Producer(cluster.namesrv) as producer:
        queues = {(await producer.send(Message("New", b""))).queue.queue_id for _ in range(8)}
        assert queues == {0, 1, 2, 3}, "a new topic gets at most four queues"


async def test_without_a_template_the_topic_must_exist() -> None:
    async with FakeCluster() as cluster, Producer(cluster.namesrv) as producer:
        cluster.auto_create = False
        with pytest.raises(SendError, match="no broker takes messages for topic Missing"):
            await producer.send(Message("Missing", b""))


async def test_a_batch_is_one_request() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        result = await producer.send_batch([Message("T", b"%d" % i) for i in range(5)])
        assert len(sends(cluster.broker)) == 1
        stored = cluster.broker.queues["T", 0]
        assert [m.body for m in stored] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(set(result.message_ids)) == len(result.offset_message_ids) == 5
        assert [m.uniq_key for m in stored] == list(result.message_ids)


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
async def test_retry_codes_go_to_the_other_broker(code: int) -> None:
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(answer_first(1, code))
        result = await producer.send(Message("T", b"x"))
        first = next(name for name, broker in cluster.brokers.items() if name != result.queue.broker_name)
        assert len(sends(cluster.brokers[first])) == len(sends(cluster.brokers[result.queue.broker_name])) == 1


async def test_two_retries_then_the_broker_s_own_words() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(answer_first(99, ResponseCode.SYSTEM_BUSY))
        with pytest.raises(SendError, match="as the test wants") as caught:
            await producer.send(Message("T", b"x"))
        assert (caught.value.code, caught.value.attempts, len(sends(cluster.broker))) == (2, 3, 3)


async def test_other_codes_are_final() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(answer_first(99, ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(SendError) as caught:
            await producer.send(Message("T", b"x"))
        assert (caught.value.code, caught.value.attempts) == (13, 1)


async def test_a_retry_keeps_the_message_s_id() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(answer_first(2, ResponseCode.SYSTEM_ERROR))
        result = await producer.send(Message("T", b"x"))
        properties = {request.ext_fields["i"] for request in sends(cluster.broker)}
        assert len(properties) == 1
        assert result.message_id in properties.pop()


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_stored_but_not_yet_safe_is_a_result(code: int) -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(stored_with(code, {"a"}))
        result = await producer.send(Message("T", b"x"))
        assert (result.status.value, result.queue_offset) == (code, 7)


async def test_another_broker_is_tried_for_a_better_status_when_asked_to() -> None:
    policy = RetryPolicy(another_broker_when_not_store_ok=True)
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv, retry=policy) as producer:
        cluster.rules.append(stored_with(11, {"a"}))
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.status for result in results} == {SendStatus.OK}
        assert {result.queue.broker_name for result in results} == {"b"}
        assert sends(cluster.brokers["a"]), "it was stored there, too"
        mine = next(queue for queue in await producer.queues("T") if queue.broker_name == "a")
        chosen = await producer.send(Message("T", b"x"), queue=mine)
        assert chosen.status is SendStatus.SLAVE_NOT_AVAILABLE, "a chosen queue is kept"


async def test_the_last_status_stands_when_no_broker_has_a_better_one() -> None:
    policy = RetryPolicy(another_broker_when_not_store_ok=True)
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv, retry=policy) as producer:
        cluster.rules.append(stored_with(12, {"a", "b"}))
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert len(sends(cluster.brokers["a"])) + len(sends(cluster.brokers["b"])) == 3


async def test_what_is_stored_stays_a_result_whatever_the_next_broker_says() -> None:
    policy = RetryPolicy(another_broker_when_not_store_ok=True)
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv, retry=policy) as producer:
        cluster.rules.extend([stored_with(12, {"a"}), answer_first(99, ResponseCode.MESSAGE_ILLEGAL)])
        found = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(4)), return_exceptions=True)
        results = [one for one in found if not isinstance(one, BaseException)]
        assert {result.status for result in results} == {SendStatus.FLUSH_SLAVE_TIMEOUT}
        assert len(sends(cluster.brokers["b"])) == 4, "each was tried there, first or after a"


async def test_a_broker_that_failed_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is not, however slow the machine makes it."""
    monkeypatch.setattr(broker_faults, "_PAUSE_MS", (0, 0, 0, 0, 0, 0, 600_000, 600_000))
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster:
        cluster.rules.append(
            lambda broker, request: refuse(request, 2, "busy") if broker.name == "a" and request.code in SENDS else None
        )
        policy = RetryPolicy(avoid_slow_brokers=True)
        async with Producer(cluster.namesrv, retry=policy) as producer:
            for _ in range(20):
                assert (await producer.send(Message("T", b"x"))).queue.broker_name == "b"
        assert len(sends(cluster.brokers["a"])) <= 2


async def test_no_send_waits_for_a_broker_that_is_away_while_another_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name servers list a broker that died for two minutes more. A send that waited for it would wait ten minutes."""
    retry = RetryPolicy(budget_ms=600_000)
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv, retry=retry) as producer:
        for queue in await producer.queues("T"):
            await producer.send(Message("T", b"x"), queue=queue)
        away = cluster.brokers["a"]
        route = cluster._route(away, RemotingCommand.request(105, {"topic": "T"})).body
        cluster.rules.append(lambda broker, request: ok(request, route) if request.code == 105 else None)

        async def sends_are_taken_by(name: str) -> bool:
            return (await producer.send(Message("T", b"x"))).queue.broker_name == name

        for pause_ms in (1.0, 600_000.0):
            monkeypatch.setattr(remoting_client, "backoff_ms", lambda *_, pause_ms=pause_ms: pause_ms)
            await cluster.shut(away)
            async with asyncio.timeout(60):
                for _ in range(40):
                    assert await sends_are_taken_by("b")
            if pause_ms < 600_000:
                await cluster.open(away)
                await until(lambda: sends_are_taken_by("a"), "the broker that is back takes messages")


def hurry(producer: Any, budget_ms: int, **policy: Any) -> None:
    """Sends have so little time from now on: what they need is there, so that only the test's fault can cost it."""
    client_of(producer)._retry = RetryPolicy(budget_ms=budget_ms, **policy)


async def warmed(producer: Any, topic: str = "T") -> None:
    """The producer has its connections, and the topic's route."""
    await producer.send(Message(topic, b"first"))


async def all_away(cluster: FakeCluster, producer: Producer) -> None:
    """Both brokers have died, and the name server does not know it; "a" is not tried again."""
    for queue in await producer.queues("T"):
        await producer.send(Message("T", b"x"), queue=queue)
    route = cluster._route(cluster.broker, RemotingCommand.request(105, {"topic": "T"})).body
    cluster.rules.append(lambda broker, request: ok(request, route) if request.code == 105 else None)
    endpoints = client_of(producer)._client._endpoints
    first, second = (endpoints[broker.address] for broker in cluster.brokers.values())
    for broker in cluster.brokers.values():
        await cluster.shut(broker)
    await until(lambda: first.connection is None and second.connection is None, "both connections are lost")
    first.retry_at = time.monotonic() + 600


async def test_who_waits_for_a_broker_that_is_away_takes_another_that_comes_back() -> None:
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        await all_away(cluster, producer)
        sending = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(4)]
        await asyncio.sleep(0.3)  # span: on a slow machine the sends begin later, and "b" is back at once
        await cluster.open(cluster.brokers["b"])
        async with asyncio.timeout(60):
            results = await asyncio.gather(*sending)
        assert {result.queue.broker_name for result in results} == {"b"}


async def test_the_wait_for_a_broker_that_is_away_ends_with_the_budget() -> None:
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        queues = await producer.queues("T")
        await all_away(cluster, producer)
        hurry(producer, 500)
        async with asyncio.timeout(60):
            for queue in (None, queues[0]):
                with pytest.raises(SendError, match="no connection"):
                    await producer.send(Message("T", b"x"), queue=queue)
                with pytest.raises(SendError, match=r"nothing was sent to topic T: no connection"):
                    await producer.send_oneway(Message("T", b"x"), queue=queue)
            with pytest.raises(ConnectError, match="not in the time that was left"):
                await producer.recall(base64.urlsafe_b64encode(b"v1 T a 1700000000000 KEY").decode())


async def test_no_answer_ends_in_a_time_out_that_says_so() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await warmed(producer)
        hurry(producer, 200)
        cluster.rules.append(lambda broker, request: NoAnswer.SILENCE if request.code in SENDS else None)
        with pytest.raises(SendError, match="did not answer within") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.code is None


async def test_silent_name_servers_keep_no_send_over_its_budget() -> None:
    settings = ConnectionSettings(request_timeout_ms=600_000)
    async with (
        FakeCluster(topics={"U": 1, "T": 1}) as cluster,
        Producer(cluster.namesrv, settings=settings) as producer,
    ):
        await warmed(producer, "U")
        hurry(producer, 300)
        cluster.rules.append(lambda broker, _: NoAnswer.SILENCE if broker is cluster.name_server else None)
        async with asyncio.timeout(60):
            with pytest.raises(
                SendError, match=f"nothing was sent to topic T: name server {cluster.namesrv} did not answer within"
            ):
                await producer.send(Message("T", b"x"))
            with pytest.raises(RequestTimeoutError, match=f"{cluster.namesrv} did not answer within"):
                await producer.send(Message("T", b"x"), sharding_key="k")


async def test_silent_name_servers_keep_neither_one_way_sends_nor_recalls_over_the_budget() -> None:
    settings = ConnectionSettings(request_timeout_ms=600_000)
    async with (
        FakeCluster(topics={"U": 1, "T": 1}) as cluster,
        Producer(cluster.namesrv, settings=settings) as producer,
    ):
        await warmed(producer, "U")
        hurry(producer, 300)
        cluster.rules.append(lambda broker, _: NoAnswer.SILENCE if broker is cluster.name_server else None)
        async with asyncio.timeout(60):
            with pytest.raises(SendError, match=f"{cluster.namesrv} did not answer within"):
                await producer.send_oneway(Message("T", b"x"))
            with pytest.raises(RequestTimeoutError, match=f"{cluster.namesrv} did not answer within"):
                await producer.recall("djEgVG9waWMgYnJva2VyLWEgMTcwMDAwMDAwMDAwMCBLRVk=")


async def test_a_silent_name_server_keeps_no_further_attempt_over_the_budget() -> None:
    settings = ConnectionSettings(request_timeout_ms=600_000)
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv, settings=settings) as producer:
        assert (await producer.send(Message("T", b"x"))).queue_offset == 0
        hurry(producer, 300)
        cluster.rules.append(lambda broker, _: NoAnswer.SILENCE if broker is cluster.name_server else None)
        cluster.rules.append(answer_first(1, ResponseCode.SERVICE_NOT_AVAILABLE))
        async with asyncio.timeout(60):
            with contextlib.suppress(SendError):  # it has 100 ms left, whatever else the machine does
                await producer.send(Message("T", b"x"))
        assert cluster.name_server.requests[-1].code == RequestCode.GET_ROUTEINFO_BY_TOPIC


@pytest.mark.parametrize(("remark", "asks"), [("[REJECTREQUEST]system busy: this broker is a slave", 1), ("busy", 0)])
async def test_a_rejected_send_asks_for_the_route_again(remark: str, asks: int) -> None:
    """A slave that was the master answers so, stock's and ours. Flow control has nothing to do with the route."""
    left = [1]

    def rule(_: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code not in SENDS or not left[0]:
            return None
        left[0] -= 1
        return refuse(request, ResponseCode.SYSTEM_BUSY, remark)

    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        before = len(cluster.name_server.requests)
        cluster.rules.append(rule)
        await producer.send(Message("T", b"x"))
        codes = [request.code for request in cluster.name_server.requests[before:]]
        assert codes.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == asks


async def test_sends_to_a_broker_that_takes_nothing_end_in_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_transport, "STALL_S", 600)  # then the system breaks the connection
    rules = BodyRules(compression=None)
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv, body_rules=rules) as producer:
        await warmed(producer)
        hurry(producer, 500)
        cluster.broker.peers[0].transport.pause_reading()
        async with asyncio.timeout(60):
            sends = (producer.send(Message("T", bytes(1 << 20))) for _ in range(30))
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert all(isinstance(outcome, SendError) for outcome in outcomes)
            for way in (producer.send, producer.send_oneway):
                with pytest.raises(SendError, match="does not take"):
                    await way(Message("T", b"x"))


async def test_a_late_answer_disturbs_nobody() -> None:
    held: list[RemotingCommand] = []

    def rule(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code in SENDS and request.body == b"slow":
            held.append(request)
            return NoAnswer.SILENCE
        return None

    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await warmed(producer)
        hurry(producer, 150, attempts=1)
        cluster.rules.append(rule)
        with pytest.raises(SendError):
            await producer.send(Message("T", b"slow"))
        await until(lambda: held, "the broker has the send")
        hurry(producer, 60_000, attempts=1)
        cluster.rules.clear()
        cluster.serve(cluster.broker, cluster.broker.peers[0], held[0])
        assert (await producer.send(Message("T", b"next"))).queue_offset == 2


async def test_a_broken_connection_is_made_again_and_the_send_repeated() -> None:
    broken = [True]

    def rule(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code in SENDS and broken[0]:
            broken[0] = False
            return NoAnswer.CLOSE
        return None

    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(rule)
        assert (await producer.send(Message("T", b"x"))).queue_offset == 0
        assert len(sends(cluster.broker)) == 2


async def test_a_restart_of_the_only_broker_is_waited_for() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"before"))
        await cluster.shut(cluster.broker)
        waiting = asyncio.create_task(producer.send(Message("T", b"after")))
        await asyncio.sleep(0.1)  # span: in which it finds nobody
        await cluster.open(cluster.broker)
        assert (await waiting).queue_offset == 1


def nobody_yet(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
    """A rule: the name server knows no broker."""
    if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        return refuse(request, ResponseCode.TOPIC_NOT_EXIST, "no topic route info")
    return ok(request, ClusterInfo({}, {}).encode()) if request.code == RequestCode.GET_BROKER_CLUSTER_INFO else None


async def test_the_start_of_the_only_broker_is_waited_for(eventually: Any) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(nobody_yet)
        waiting = asyncio.create_task(producer.send(Message("T", b"early")))
        await eventually(lambda: len(cluster.name_server.asked(RequestCode.GET_BROKER_CLUSTER_INFO)) > 3)
        cluster.rules[:] = [answer_first(2, ResponseCode.SYSTEM_ERROR)]  # the looks at the route were no attempts
        assert (await waiting).queue_offset == 0


async def test_a_name_server_without_brokers_is_told_from_a_missing_topic() -> None:
    async with FakeCluster(topics={"U": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await warmed(producer, "U")
        hurry(producer, 1000)
        cluster.rules.append(nobody_yet)
        with pytest.raises(SendError, match="no master is registered"):
            await producer.send(Message("T", b""))


async def test_go_away_repeats_over_a_new_connection() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        (old,) = cluster.broker.peers
        cluster.rules.append(answer_first(1, ResponseCode.GO_AWAY))
        assert (await producer.send(Message("T", b"y"))).queue_offset == 1
        assert old not in cluster.broker.peers
        assert len(cluster.broker.peers) == 1


async def test_many_in_flight_on_one_connection_and_results_in_order() -> None:
    async with FakeCluster(topics={"T": 4}) as cluster, Producer(cluster.namesrv) as producer:
        results = await producer.send_all(Message("T", b"%d" % i) for i in range(2000))
        found = {m.uniq_key: m.body for queue in cluster.broker.queues.values() for m in queue}
        assert [found[result.message_id] for result in results] == [b"%d" % i for i in range(2000)]
        assert len(cluster.broker.peers) == 1


async def test_the_bound_on_requests_in_flight_holds() -> None:
    held: list[Any] = []

    def rule(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code in SENDS and request not in held:
            held.append(request)
            return NoAnswer.SILENCE
        return None

    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv, in_flight_max=8) as producer:
        cluster.rules.append(rule)
        work = [asyncio.create_task(producer.send(Message("T", b"%d" % i))) for i in range(50)]
        served = 0

        def serve_all() -> bool:
            nonlocal served
            assert len(held) - served <= 8
            while served < len(held):
                cluster.serve(cluster.broker, cluster.broker.peers[0], held[served])
                served += 1
            return served == 50

        await until(serve_all, "all have come")
        assert len(await asyncio.gather(*work)) == 50


async def test_one_failure_among_many_is_raised_after_the_rest_is_through() -> None:
    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        return refuse(request, 13, "bad") if request.code in SENDS and request.body == b"13" else None

    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(rule)
        await producer.send(Message("T", b"first"))
        with pytest.raises(SendError, match="bad"):
            await producer.send_all([Message("T", b"%d" % i) for i in range(20)])
        assert len(cluster.broker.queues["T", 0]) == 20


async def test_a_bad_message_among_many_is_raised_after_those_before_it_are_through() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"first"))
        many = [Message("T", b"%d" % i) for i in range(20)]
        many[10] = Message("", b"nowhere")
        with pytest.raises(ValueError, match="topic"):
            await producer.send_all(many)
        assert len(cluster.broker.queues["T", 0]) == 11


async def test_one_way_waits_for_nothing(eventually: Any) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await producer.send_oneway(Message("T", b"x"))
        await eventually(lambda: cluster.broker.queues["T", 0])
        assert sends(cluster.broker)[0].is_oneway


async def test_a_chosen_queue_is_kept_even_when_it_refuses() -> None:
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(answer_first(1, ResponseCode.SYSTEM_ERROR))
        queue = MessageQueue("T", "b", 1)
        assert queue in await producer.queues("T")
        assert (await producer.send(Message("T", b"x"), queue=queue)).queue == queue
        assert not sends(cluster.brokers["a"])


async def test_brokers_know_the_group_and_are_told_when_it_leaves(eventually: Any) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        async with Producer(cluster.namesrv, "my_group") as producer:
            await producer.send(Message("T", b"x"))
            await eventually(lambda: cluster.broker.asked(RequestCode.HEART_BEAT))
            data = HeartbeatData.decode(cluster.broker.asked(RequestCode.HEART_BEAT)[0].body)
            assert (data.client_id, data.producer_groups) == (producer.client_id, ["my_group"])
        (leave,) = cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert leave.ext_fields == {"clientID": producer.client_id, "producerGroup": "my_group"}


async def test_close_waits_for_what_is_in_flight() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        producer = Producer(cluster.namesrv)
        producer.start()
        await producer.send(Message("T", b"first"))
        work = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(20)]
        await asyncio.sleep(0)
        await producer.close()
        assert Counter(type(r) for r in await asyncio.gather(*work, return_exceptions=True)) == {
            type(await work[0]): 20
        }
        with pytest.raises(ClientClosedError):
            await producer.send(Message("T", b"late"))


async def test_junk_from_the_server_closes_the_connection_and_is_survived() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        cluster.broker.peers[0].transport.write(b"\x7f\xff\xff\xffjunk junk")
        await until(lambda: not cluster.broker.peers, "the connection is closed")
        assert (await producer.send(Message("T", b"y"))).queue_offset == 1


async def test_the_next_name_server_is_asked_when_one_is_down() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(["127.0.0.1:1", cluster.namesrv]) as producer:
        assert (await producer.send(Message("T", b"x"))).queue_offset == 0


async def test_a_pipeline_holds_one_at_least() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        with pytest.raises(ValueError, match="pipeline must be positive, not 0"):
            await producer.send_all([Message("T", b"x")], pipeline=0)


async def test_unstarted_and_misconfigured() -> None:
    with pytest.raises(ClientClosedError):
        await Producer().send(Message("T", b"x"))
    with pytest.raises(ValueError, match="group"):
        Producer(group="no spaces")


async def test_a_send_without_a_name_server_says_that_nothing_was_sent() -> None:
    address = "127.0.0.1:1"
    async with Producer(address, retry=RetryPolicy(budget_ms=3000)) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message("T", b"x"))
    assert str(caught.value) == (
        f"nothing was sent to topic T: no connection to name server {address}: Connection refused"
    )
    assert caught.value.attempts == 0
    assert isinstance(caught.value.cause, ConnectError)
    assert caught.value.cause.address == address


async def test_a_send_by_a_broker_that_is_taken_for_a_name_server_says_so() -> None:
    def rule(_: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        return refuse(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")

    async with FakeCluster() as cluster:
        cluster.rules.append(rule)
        async with Producer(cluster.broker.address) as producer:
            with pytest.raises(SendError) as caught:
                await producer.send(Message("T", b"x"))
        assert str(caught.value).startswith(
            f"nothing was sent to topic T: {cluster.broker.address} is no name server: it answered 3 (request type 105"
        )
        assert (caught.value.code, caught.value.attempts) == (3, 0)
        cluster.rules[:] = [lambda _, request: refuse(request, 13, "no") if request.code == 310 else None]
        async with Producer(cluster.namesrv) as producer:
            with pytest.raises(SendError, match="sending to topic T failed after 1 attempt: "):
                await producer.send(Message("T", b"x"))
