"""Heartbeats, membership, notices, expiry, locks: what clients see and what the plane shows."""

import json

import pytest

from ringmq.broker.requests.request import Hangup, Push
from ringmq.broker.tables.protocols import SUBSCRIPTION_ALL, SUBSCRIPTION_COLD, SUBSCRIPTION_NONE, SUBSCRIPTION_TAGS
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.heartbeat import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    CONSUME_POP,
    ConsumerData,
    HeartbeatData,
    LockBatch,
    decode_consumer_ids,
    decode_locked,
)
from ringmq.remoting.json_body import write_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData, java_string_hash
from tests.broker.fakes import START_MS, FakePlane, Harness, make_harness, peer

HAS_MEMBERS, IS_BROADCASTING = 0x8, 0x10
ONE_RETRY_QUEUE, SIXTEEN_RETRIES = 1 << 8, 16 << 16


def test_a_heartbeat_shows_in_the_plane_before_its_answer() -> None:
    harness = make_harness()
    harness.make_topic("T")
    answer = harness.join("G", {"T": "a || b"}, version=5)
    assert (answer.code, answer.ext_fields) == (0, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
    assert harness.plane.group_flags("G") == 0x1 | 0x2 | 0x4 | HAS_MEMBERS | ONE_RETRY_QUEUE | SIXTEEN_RETRIES
    hashes = sorted([java_string_hash("a"), java_string_hash("b")])
    assert harness.plane.subscription("G", "T") == (SUBSCRIPTION_TAGS, 5, hashes)
    assert harness.plane.word("%RETRY%G") == (6, 1, 1, 1 | 2)


@pytest.mark.parametrize(
    ("kind", "model", "may_send_back"),
    [
        (CONSUME_PASSIVELY, CLUSTERING, True),
        (CONSUME_PASSIVELY, BROADCASTING, False),
        (CONSUME_ACTIVELY, CLUSTERING, False),
        (CONSUME_POP, CLUSTERING, False),
    ],
)
def test_a_consumer_that_may_send_back_starts_the_worker_of_its_requests(
    kind: str, model: str, may_send_back: bool
) -> None:
    harness = make_harness({"channelExpiredTimeout": "45000"})
    harness.join("G", {"T": "*"}, kind=kind, model=model)
    assert harness.plane.held == ({lib.RMQ_ROLE_SERVICES: 45} if may_send_back else {})


def test_a_group_that_may_not_be_made_starts_no_worker() -> None:
    harness = make_harness({"autoCreateSubscriptionGroup": "false"})
    harness.join("G", {"T": "*"})
    assert harness.plane.held == {}


def test_a_subscription_waits_for_its_topic() -> None:
    harness = make_harness()
    harness.join("G", {"Later": "*"}, version=5)
    harness.make_topic("Later")
    assert harness.plane.subscription("G", "Later") == (SUBSCRIPTION_ALL, 5, [])


def test_what_heartbeats_name_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.broker.tables.consumers.EVER_SUBSCRIBED_MAX", 5)
    harness = make_harness()
    for number in range(10):
        harness.join("G", {f"Fresh{number}": "*"}, version=number)
    assert len(harness.broker.consumers.ever_subscribed) == 5


def test_only_a_greater_version_replaces_an_expression() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.join("G", {"T": "a"}, version=5)
    harness.join("G", {"T": "b"}, version=5)
    assert harness.plane.subscription("G", "T")[2] == [java_string_hash("a")]
    assert not harness.pushed, "an expression alone does not notify"
    harness.join("G", {"T": "b"}, version=6)
    assert harness.plane.subscription("G", "T")[2] == [java_string_hash("b")]


@pytest.mark.parametrize("version", [1 << 63, (1 << 64) - 1, "x", {}])
def test_a_version_that_is_no_int64_is_refused_before_it_counts(version: object) -> None:
    harness = make_harness()
    harness.make_topic("T")
    subscription = SubscriptionData("T").to_json() | {"subVersion": version}
    consumer = ConsumerData("G").to_json() | {"subscriptionDataSet": [subscription]}
    answer = harness.ask(RequestCode.HEART_BEAT, body=write_body({"clientID": "c", "consumerDataSet": [consumer]}))
    assert (answer.code, "subVersion" in answer.remark) == (1, True)
    harness.join("G", {"T": "a"}, version=5)
    assert harness.plane.subscription("G", "T")[1] == 5


def test_topics_that_are_left_out_are_gone() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.make_topic("U")
    harness.join("G", {"T": "*", "U": "*"})
    harness.join("G", {"U": "*"})
    assert harness.plane.subscription("G", "T")[0] == SUBSCRIPTION_NONE
    assert harness.plane.subscription("G", "U")[0] == SUBSCRIPTION_ALL
    assert [push.connection for push in harness.pushed] == [peer(1)]


def test_sql_is_cold() -> None:
    harness = make_harness()
    harness.make_topic("T")
    data = ConsumerData("G", CONSUME_PASSIVELY, subscriptions=[SubscriptionData("T", "a = 1", expression_type="SQL92")])
    harness.ask(RequestCode.HEART_BEAT, body=HeartbeatData("c", consumers=[data]).encode())
    assert harness.plane.subscription("G", "T")[0] == SUBSCRIPTION_COLD


def test_coming_and_going_is_told_to_all_members() -> None:
    harness = make_harness()
    harness.join("G", {"T": "*"}, peer(1), "c1")
    assert notices(harness) == [peer(1)]
    harness.join("G", {"T": "*"}, peer(2), "c2")
    assert notices(harness) == [peer(1), peer(2)]
    assert harness.pushed[0].command.is_oneway
    assert harness.pushed[0].command.ext_fields == {"consumerGroup": "G"}
    harness.join("G", {"T": "*"}, peer(2), "c2")
    assert notices(harness) == []
    harness.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "G"}, connection=peer(2))
    assert notices(harness) == [peer(1)]


def notices(harness: Harness) -> list[object]:
    codes = {push.command.code for push in harness.pushed}
    assert codes <= {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
    return [push.connection for push in harness.pushed]


def test_a_closed_connection_leaves_every_group() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.join("G", {"T": "*"}, peer(1), "c1", producer_groups=["P"])
    harness.join("G", {"T": "*"}, peer(2), "c2")
    harness.broker.on_close(peer(1))
    told = [effect.connection for effect in harness.broker.outbox.take() if isinstance(effect, Push)]
    assert told == [peer(2)]
    assert harness.broker.producers.get("P") is None
    harness.broker.on_close(peer(2))
    assert harness.broker.consumers.get("G") is None
    assert not harness.plane.group_flags("G") & HAS_MEMBERS
    assert harness.plane.subscription("G", "T")[0] == SUBSCRIPTION_NONE
    assert harness.broker.membership.connections() == set()


@pytest.mark.parametrize("where", ["group", "broker", "model"])
def test_notices_can_be_off(where: str) -> None:
    harness = make_harness({"notifyConsumerIdsChangedEnable": "false"} if where == "broker" else {})
    if where == "group":
        config = SubscriptionGroupConfig("G", notify_consumer_ids_changed_enable=False)
        harness.broker.groups.put(config, START_MS)
    harness.join("G", {"T": "*"}, model="BROADCASTING" if where == "model" else "CLUSTERING")
    assert notices(harness) == []
    assert bool(harness.plane.group_flags("G") & IS_BROADCASTING) == (where == "model")


def test_silent_clients_expire_after_120_s() -> None:
    harness = make_harness()
    harness.join("G", {"T": "*"}, peer(1), producer_groups=["P"])
    assert harness.broker.on_tick(START_MS + 119_000) == []
    assert harness.broker.consumers.get("G") is not None
    effects = harness.broker.on_tick(START_MS + 130_000)
    assert effects == [Hangup(peer(1), None)]
    assert harness.broker.consumers.get("G") is None
    assert harness.broker.producers.get("P") is None


def test_groups_that_may_not_be_made_are_skipped_silently() -> None:
    harness = make_harness({"autoCreateSubscriptionGroup": "false"})
    assert harness.join("G", {"T": "*"}, producer_groups=["P"]).code == 0
    assert harness.broker.consumers.get("G") is None
    assert harness.broker.producers.get("P") is not None
    assert "%RETRY%G" not in harness.broker.topics


def test_heartbeat_v2() -> None:
    harness = make_harness()
    harness.make_topic("T")
    first = harness.join("G", {"T": "*"}, fingerprint=11)
    assert first.ext_fields["IS_SUB_CHANGE"] == "false"
    short = harness.join("G", {}, fingerprint=11, without_sub=True)
    assert short.ext_fields["IS_SUB_CHANGE"] == "false"
    assert harness.plane.subscription("G", "T")[0] == SUBSCRIPTION_ALL, "the short form keeps subscriptions"
    assert harness.join("G", {"T": "*"}, fingerprint=12).ext_fields["IS_SUB_CHANGE"] == "true"


def test_a_short_heartbeat_that_we_know_nothing_for_asks_for_the_long_one() -> None:
    harness = make_harness()
    answer = harness.join("G", {}, fingerprint=11, without_sub=True)
    assert answer.ext_fields["IS_SUB_CHANGE"] == "true"


def test_the_consumer_list() -> None:
    harness = make_harness()
    assert harness.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}).code == 1
    harness.join("G", {}, peer(1), "c1")
    harness.join("G", {}, peer(2), "c2")
    harness.join("G", {}, peer(3), "c2")
    answer = harness.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
    assert decode_consumer_ids(answer.body) == ["c1", "c2"]


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("", 0), ("SQL92", 1)])
def test_check_client_config(kind: str, code: int) -> None:
    body = b'{"clientId":"c","group":"G","subscriptionData":{"expressionType":"%s","topic":"T"}}' % kind.encode()
    assert make_harness().ask(RequestCode.CHECK_CLIENT_CONFIG, body=body).code == code


@pytest.mark.parametrize(("expression", "code"), [("a = 1", 0), ("a >>", 23), ("", 23)])
def test_expressions_are_checked(expression: str, code: int) -> None:
    data = {"expressionType": "SQL92", "topic": "T", "subString": expression}
    body = json.dumps({"clientId": "c", "group": "G", "subscriptionData": data}).encode()
    answer = make_harness({"enablePropertyFilter": "true"}).ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert answer.code == code and bool(answer.remark) is bool(code)


@pytest.mark.parametrize("body", [b"", b"junk", b"[]", b'{"consumerDataSet":7}'])
def test_junk_heartbeats_are_refused(body: bytes) -> None:
    answer = make_harness().ask(RequestCode.HEART_BEAT, body=body)
    assert answer.code == 1
    assert answer.remark


def test_locks_belong_to_one_client_for_60_s() -> None:
    harness = make_harness()
    harness.make_topic("T")
    queues = [MessageQueue("T", "wire-a", 0), MessageQueue("T", "wire-a", 1)]

    def lock(client: str, which: list[MessageQueue]) -> list[MessageQueue]:
        answer = harness.ask(RequestCode.LOCK_BATCH_MQ, body=LockBatch("G", client, which).encode())
        return decode_locked(answer.body)

    assert lock("a", queues[:1]) == queues[:1]
    assert lock("b", queues) == queues[1:]
    harness.now_ms += 60_000
    assert lock("b", queues[:1]) == []
    harness.now_ms += 1
    assert lock("b", queues) == queues
    harness.ask(RequestCode.UNLOCK_BATCH_MQ, body=LockBatch("G", "a", queues).encode())
    assert lock("a", queues) == [], "nobody unlocks for others"
    harness.ask(RequestCode.UNLOCK_BATCH_MQ, body=LockBatch("G", "b", queues).encode())
    assert lock("a", queues) == queues
    harness.broker.locks.expire(harness.now_ms + 60_001)
    assert not harness.broker.locks.is_any_live("G", harness.now_ms)


def test_a_group_without_room_in_the_plane_leaves_nothing_behind() -> None:
    """In subscriptionGroup.json it would stop the next start; as a member's group it ended control at its close."""
    plane = FakePlane()
    harness = make_harness(plane=plane)
    harness.make_topic("T")
    assert harness.join("G", {"T": "*"}).code == 0
    known = harness.broker.groups.names()
    harness.broker.groups.dirty = False
    plane.header.tables.group_capacity = plane.header.tables.group_count

    for _ in range(2):
        answer = harness.join("Fresh", {"T": "*"}, connection=peer(2))
        assert (answer.code, "full" in answer.remark) == (1, True)
    body = SubscriptionGroupConfig("Fresh").to_json()
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=write_body(body)).code == 1
    harness.broker.on_close(peer(2))

    assert harness.broker.groups.names() == known
    assert not harness.broker.groups.dirty
    fresh = FakePlane(groups_max=plane.header.tables.group_capacity)
    make_harness(plane=fresh).broker.groups.load(harness.broker.groups.body(), START_MS)
    assert harness.join("G", {"T": "*"}).code == 0, "known groups go on"


def test_a_heartbeat_makes_no_retry_topic_whose_queues_are_about_to_be_removed() -> None:
    """As `mqadmin deleteSubGroup` leaves it, while consumers of the group are online."""
    harness = make_harness()
    harness.make_topic("T")
    harness.join("G", {"T": "*"})
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "%RETRY%G"})
    assert harness.join("G", {"T": "*"}).code == 0
    assert harness.plane.topic_find("%RETRY%G") is None, "its folder would be removed under it"
    harness.broker.deletions.done("%RETRY%G")
    assert harness.join("G", {"T": "*"}).code == 0
    assert harness.plane.word("%RETRY%G") == (6, 1, 1, 1 | 2)


def test_a_group_whose_retry_topic_no_folder_can_have_consumes_without_one() -> None:
    """Its name comes from a config file or a master: requests make shorter ones."""
    harness, group = make_harness(), "g" * 250
    harness.make_topic("T")
    harness.broker.groups.put(SubscriptionGroupConfig(group), START_MS)
    assert harness.join(group, {"T": "*", f"%RETRY%{group}": "*"}).code == 0
    assert harness.plane.subscription(group, "T")[0] == SUBSCRIPTION_ALL
    assert f"%RETRY%{group}" not in harness.broker.topics
