"""Limits of the entries that clients make control keep: each limit, its refusal, and the work that goes on."""

import pytest

from ringmq.broker.requests.request import Connection, Hangup
from ringmq.broker.tables.locks import FORGET_MAX
from ringmq.broker.tables.protocols import SUBSCRIPTION_ALL, SUBSCRIPTION_TAGS
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData, LockBatch, decode_locked
from ringmq.remoting.json_body import write_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData, build_subscription
from tests.broker.fakes import Harness, make_harness, peer

BUSY = ResponseCode.SYSTEM_BUSY
FIRST = peer(1)


def beat(
    harness: Harness, client: int, groups: int = 0, topics: int = 0, producers: int = 0, name: str = ""
) -> tuple[int, str]:
    wanted = [build_subscription(f"{name}T{number}", "*") for number in range(topics)]
    consumers = [ConsumerData(f"{name}G{number}", subscriptions=wanted) for number in range(groups)]
    data = HeartbeatData(f"c{client}", [f"{name}P{number}" for number in range(producers)], consumers)
    answer = harness.ask(RequestCode.HEART_BEAT, body=data.encode(), connection=peer(client))
    return answer.code, answer.remark or ""


def test_groups_and_subscriptions_of_one_heartbeat() -> None:
    harness = make_harness({"ringmqHeartbeatGroupsMax": "5", "ringmqHeartbeatSubscriptionsMax": "8"})
    assert beat(harness, 1, groups=3, producers=2) == (0, "")
    assert beat(harness, 1, groups=3, producers=3) == (
        1, "a heartbeat with 6 groups is refused, the limit is 5 (ringmqHeartbeatGroupsMax)",
    )  # fmt: skip
    assert beat(harness, 1, groups=2, topics=4) == (0, "")
    assert beat(harness, 1, groups=3, topics=3) == (
        1, "a heartbeat with 9 subscriptions is refused, the limit is 8 (ringmqHeartbeatSubscriptionsMax)",
    )  # fmt: skip


def test_memberships_in_all() -> None:
    harness = make_harness({"ringmqMembershipsMax": "6"})
    assert beat(harness, 1, groups=2, producers=2) == (0, "")
    assert beat(harness, 2, groups=2) == (0, "")
    code, remark = beat(harness, 3, groups=1)
    assert (code, "keeps 6 of at most 6 (ringmqMembershipsMax)" in remark) == (BUSY, True)
    assert beat(harness, 3, producers=1)[0] == BUSY
    assert beat(harness, 1, groups=2, producers=2) == (0, ""), "who is there stays"
    harness.broker.on_close(peer(2))
    assert beat(harness, 3, groups=1, producers=1) == (0, "")
    for client in (1, 3):
        harness.broker.on_close(peer(client))
    assert (harness.broker.consumers.memberships, harness.broker.producers.memberships) == (0, 0)


def test_producer_groups_in_all() -> None:
    harness = make_harness({"ringmqProducerGroupsMax": "2"})
    assert beat(harness, 1, producers=2) == (0, "")
    code, remark = beat(harness, 2, producers=1, name="Other")
    assert (code, "producer groups: the broker keeps 2 of at most 2 (ringmqProducerGroupsMax)" in remark) == (
        BUSY,
        True,
    )
    assert beat(harness, 2, producers=2) == (0, "")
    harness.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "producerGroup": "P1"}, connection=peer(1))
    harness.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c2", "producerGroup": "P1"}, connection=peer(2))
    assert beat(harness, 2, producers=1, name="Other") == (0, "")


def test_subscriptions_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_harness({"ringmqSubscriptionsMax": "1024"})
    assert beat(harness, 1, groups=2, topics=500) == (0, "")
    code, remark = beat(harness, 2, groups=1, topics=30, name="Other")
    assert (code, "subscriptions: the broker keeps 1000 of at most 1024" in remark) == (BUSY, True)
    assert beat(harness, 1, groups=2, topics=500) == (0, ""), "nothing is new"
    assert beat(harness, 1, groups=1, topics=400) == (0, "")
    assert beat(harness, 2, groups=1, topics=30, name="Other") == (0, "")
    consumers = harness.broker.consumers
    monkeypatch.setattr("ringmq.broker.handlers.client_limits.SUBSCRIPTION_CHARS_IN_ALL", consumers.subscription_chars)
    code, remark = beat(harness, 3, groups=1, topics=1, name="Third")
    assert (code, "characters of subscriptions" in remark) == (BUSY, True)
    for client in (1, 2, 3):
        harness.broker.on_close(peer(client))
    assert (consumers.subscriptions, consumers.subscription_chars) == (0, 0)


@pytest.mark.parametrize(
    ("bean", "field"),
    [
        ({"clientID": "c" * 1025}, "clientID"),
        ({"producerDataSet": [{"groupName": "P" * 513}]}, "groupName"),
        ({"consumerDataSet": [ConsumerData("G", consume_type="x" * 65).to_json()]}, "consumeType"),
        ({"consumerDataSet": [ConsumerData("G", message_model="x" * 65).to_json()]}, "messageModel"),
        ({"consumerDataSet": [ConsumerData("G", consume_from_where="x" * 65).to_json()]}, "consumeFromWhere"),
        ({"consumerDataSet": [ConsumerData("G", subscriptions=[SubscriptionData("T" * 513)]).to_json()]}, "topic"),
        (
            {"consumerDataSet": [ConsumerData("G", subscriptions=[SubscriptionData("T", "t" * 16_385)]).to_json()]},
            "expression",
        ),
        (
            {
                "consumerDataSet": [
                    ConsumerData("G", subscriptions=[SubscriptionData("T", "*", {"t" * 16_384})]).to_json()
                ]
            },
            "tags have 16385 characters, at most 16384",
        ),
    ],
)
def test_text_of_heartbeats_is_bounded(bean: dict[str, object], field: str) -> None:
    harness = make_harness()
    answer = harness.ask(RequestCode.HEART_BEAT, body=write_body({"clientID": "c"} | bean))
    assert (answer.code, field in answer.remark) == (1, True)
    assert harness.broker.membership.connections() == set()


def harness_with_queues(settings: dict[str, str] | None = None, queues: int = 100) -> Harness:
    harness = make_harness(settings)
    harness.make_topic("T", queues)
    return harness


def lock(
    harness: Harness, client: str, queues: range, group: str = "G", *, connection: Connection = FIRST
) -> tuple[int, int, str]:
    """(code, queues held, remark)"""
    batch = LockBatch(group, client, [MessageQueue("T", "wire-a", number) for number in queues])
    answer = harness.ask(RequestCode.LOCK_BATCH_MQ, body=batch.encode(), connection=connection)
    return answer.code, len(decode_locked(answer.body)) if answer.code == 0 else 0, answer.remark or ""


def at(host: str, number: int) -> Connection:
    return peer(number)._replace(host=host)


def test_locks_of_a_connection_and_in_all() -> None:
    harness = harness_with_queues({"ringmqLocksMax": "20", "ringmqClientLocksMax": "6"})
    assert lock(harness, "a", range(6)) == (0, 6, "")
    code, _, remark = lock(harness, "another name", range(6, 7))
    assert (code, "127.0.0.1:40001: the broker keeps 6 of at most 6 (ringmqClientLocksMax)" in remark) == (BUSY, True)
    assert lock(harness, "a", range(7)) == (0, 6, ""), "renewed, without the one beyond the limit"
    assert lock(harness, "b", range(4), "Other", connection=peer(2)) == (0, 4, "")
    for host in "78":
        assert lock(harness, host, range(5), host, connection=at("10.0.0." + host, 1)) == (0, 5, "")
    code, _, remark = lock(harness, "c", range(4, 5), "Other", connection=at("10.0.0.9", 1))
    assert (code, "queue locks: the broker keeps 20 of at most 20 (ringmqLocksMax)" in remark) == (BUSY, True)
    unlock = LockBatch("Other", "b", [MessageQueue("T", "wire-a", 0)])
    harness.ask(RequestCode.UNLOCK_BATCH_MQ, body=unlock.encode())
    assert lock(harness, "c", range(4, 5), "Other", connection=at("10.0.0.9", 1)) == (0, 1, "")


def test_one_host_leaves_half_of_the_locks_to_others() -> None:
    harness = harness_with_queues({"ringmqLocksMax": "20", "ringmqClientLocksMax": "6"})
    for number in range(2):
        assert lock(harness, f"c{number}", range(5), f"G{number}", connection=at("10.0.0.7", number)) == (0, 5, "")
    code, _, remark = lock(harness, "c3", range(5), "G3", connection=at("10.0.0.7", 3))
    assert (code, "host 10.0.0.7: the broker keeps 10 of at most 10 (half of ringmqLocksMax)" in remark) == (BUSY, True)
    assert lock(harness, "c0", range(5), "G0", connection=at("10.0.0.7", 4)) == (0, 5, ""), "a client that came back"
    assert lock(harness, "d", range(5), connection=at("10.0.0.8", 1)) == (0, 5, "")
    assert lock(harness, "d", range(5), connection=at("10.0.0.7", 5))[0] == BUSY, "a foreign name moves no share"


@pytest.mark.parametrize(
    "queue", [MessageQueue("None", "wire-a", 0), MessageQueue("T", "other", 0), MessageQueue("T", "wire-a", 100),
              MessageQueue("T", "wire-a", -1)],
)  # fmt: skip
def test_queues_that_are_not_here_take_no_place(queue: MessageQueue) -> None:
    harness = harness_with_queues()
    batch = LockBatch("G", "c", [queue, MessageQueue("T", "wire-a", 99)])
    answer = harness.ask(RequestCode.LOCK_BATCH_MQ, body=batch.encode())
    assert (answer.code, decode_locked(answer.body)) == (0, [MessageQueue("T", "wire-a", 99)])
    assert len(harness.broker.locks) == 1


def test_dead_locks_are_forgotten_some_at_a_time() -> None:
    queues = FORGET_MAX + 10
    harness = harness_with_queues(queues=queues)
    for first in range(0, queues, 2000):
        assert lock(harness, "a", range(first, min(first + 2000, queues)))[0] == 0
    harness.now_ms += 30_000
    assert lock(harness, "a", range(5))[1] == 5
    harness.now_ms += 30_001
    harness.broker.locks.expire(harness.now_ms)
    assert len(harness.broker.locks) == queues - FORGET_MAX
    harness.broker.locks.expire(harness.now_ms)
    assert len(harness.broker.locks) == harness.broker.locks.shares.of_connection(FIRST) == 5, "the renewed ones"
    assert harness.broker.locks.is_any_live("G", harness.now_ms)


def test_silent_clients_are_found_and_ended_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.broker.core.EXPIRY_LOOKS", 7)
    monkeypatch.setattr("ringmq.broker.core.EXPIRY_ENDS", 4)
    harness = make_harness()
    for client in range(10):
        assert beat(harness, client, groups=2, producers=1) == (0, "")
    harness.now_ms += 60_000
    for client in range(3):
        assert beat(harness, client, groups=2, producers=1) == (0, "")
    ended = []
    for _ in range(20):
        hangups = harness.broker.on_tick(harness.now_ms + 65_000)
        ended.append(len([effect for effect in hangups if isinstance(effect, Hangup)]))
    assert sum(ended) == 7
    assert max(ended) <= 2
    assert harness.broker.membership.connections() == {peer(0), peer(1), peer(2)}
    assert not harness.broker.on_tick(harness.now_ms + 75_000)


def test_clients_that_come_and_go_do_not_use_up_the_shared_subscriptions() -> None:
    """Their entries are used again; a group that is online keeps its own."""
    harness = make_harness()
    harness.plane.subscriptions_max = 6
    for number in range(4):
        harness.make_topic(f"T{number}")
    harness.join("stays", {"T0": "a", "T1": "b"}, connection=peer(1))
    for number in range(40):
        answer = harness.join(f"G{number}", {f"T{number % 4}": "*", "T1": "*"}, connection=peer(2), client_id="c2")
        assert answer.code == 0, (number, answer.remark)
        harness.ask(
            RequestCode.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": f"G{number}"}, connection=peer(2)
        )
    assert [harness.plane.subscription("stays", topic)[0] for topic in ("T0", "T1")] == [SUBSCRIPTION_TAGS] * 2
    harness.join("last", {"T0": "*", "T1": "*", "T2": "*", "T3": "*"}, connection=peer(3), client_id="c3")
    assert [harness.plane.subscription("last", f"T{number}")[0] for number in range(4)] == [SUBSCRIPTION_ALL] * 4
