"""Heartbeats, membership, notices, expiry, locks: what clients see and what the plane shows."""

import json

import pytest

from ringmq.broker.requests.request import Hangup, Push
from ringmq.broker.tables.protocols import SUBSCRIPTION_ALL, SUBSCRIPTION_COLD, SUBSCRIPTION_NONE, SUBSCRIPTION_TAGS
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.heartbeat import (
    CONSUME_PASSIVELY,
    ConsumerData,
    HeartbeatData,
    LockBatch,
    decode_consumer_ids,
    decode_locked,
)
from ringmq.remoting.json_body import write_body
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData, java_string_hash
from tests.broker.fakes import START_MS, FakePlane, Lab, make_lab, peer

HAS_MEMBERS, BROADCASTING = 0x8, 0x10


def test_a_heartbeat_shows_in_the_plane_before_its_answer() -> None:
    lab = make_lab()
    lab.make_topic("T")
    answer = lab.join("G", {"T": "a || b"}, version=5)
    assert (answer.code, answer.ext_fields) == (0, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
    assert lab.plane.group_flags("G") == 0x1 | 0x2 | 0x4 | HAS_MEMBERS
    hashes = sorted([java_string_hash("a"), java_string_hash("b")])
    assert lab.plane.subscription("G", "T") == (SUBSCRIPTION_TAGS, 5, hashes)
    assert lab.plane.word("%RETRY%G") == (6, 1, 1, 1 | 2)


def test_a_subscription_waits_for_its_topic() -> None:
    lab = make_lab()
    lab.join("G", {"Later": "*"}, version=5)
    lab.make_topic("Later")
    assert lab.plane.subscription("G", "Later") == (SUBSCRIPTION_ALL, 5, [])


def test_what_heartbeats_name_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.broker.tables.consumers.EVER_SUBSCRIBED_MAX", 5)
    lab = make_lab()
    for number in range(10):
        lab.join("G", {f"Fresh{number}": "*"}, version=number)
    assert len(lab.broker.consumers.ever_subscribed) == 5


def test_only_a_greater_version_replaces_an_expression() -> None:
    lab = make_lab()
    lab.make_topic("T")
    lab.join("G", {"T": "a"}, version=5)
    lab.join("G", {"T": "b"}, version=5)
    assert lab.plane.subscription("G", "T")[2] == [java_string_hash("a")]
    assert not lab.pushed, "an expression alone does not notify"
    lab.join("G", {"T": "b"}, version=6)
    assert lab.plane.subscription("G", "T")[2] == [java_string_hash("b")]


@pytest.mark.parametrize("version", [1 << 63, (1 << 64) - 1, "x", {}])
def test_a_version_that_is_no_int64_is_refused_before_it_counts(version: object) -> None:
    lab = make_lab()
    lab.make_topic("T")
    subscription = SubscriptionData("T").to_json() | {"subVersion": version}
    consumer = ConsumerData("G").to_json() | {"subscriptionDataSet": [subscription]}
    answer = lab.ask(RequestCode.HEART_BEAT, body=write_body({"clientID": "c", "consumerDataSet": [consumer]}))
    assert (answer.code, "subVersion" in answer.remark) == (1, True)
    lab.join("G", {"T": "a"}, version=5)
    assert lab.plane.subscription("G", "T")[1] == 5


def test_topics_that_are_left_out_are_gone() -> None:
    lab = make_lab()
    lab.make_topic("T")
    lab.make_topic("U")
    lab.join("G", {"T": "*", "U": "*"})
    lab.join("G", {"U": "*"})
    assert lab.plane.subscription("G", "T")[0] == SUBSCRIPTION_NONE
    assert lab.plane.subscription("G", "U")[0] == SUBSCRIPTION_ALL
    assert [push.connection for push in lab.pushed] == [peer(1)]


def test_sql_is_cold() -> None:
    lab = make_lab()
    lab.make_topic("T")
    data = ConsumerData("G", CONSUME_PASSIVELY, subscriptions=[SubscriptionData("T", "a = 1", expression_type="SQL92")])
    lab.ask(RequestCode.HEART_BEAT, body=HeartbeatData("c", consumers=[data]).encode())
    assert lab.plane.subscription("G", "T")[0] == SUBSCRIPTION_COLD


def test_coming_and_going_is_told_to_all_members() -> None:
    lab = make_lab()
    lab.join("G", {"T": "*"}, peer(1), "c1")
    assert notices(lab) == [peer(1)]
    lab.join("G", {"T": "*"}, peer(2), "c2")
    assert notices(lab) == [peer(1), peer(2)]
    assert lab.pushed[0].command.is_oneway
    assert lab.pushed[0].command.ext_fields == {"consumerGroup": "G"}
    lab.join("G", {"T": "*"}, peer(2), "c2")
    assert notices(lab) == []
    lab.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "G"}, connection=peer(2))
    assert notices(lab) == [peer(1)]


def notices(lab: Lab) -> list[object]:
    codes = {push.command.code for push in lab.pushed}
    assert codes <= {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
    return [push.connection for push in lab.pushed]


def test_a_closed_connection_leaves_every_group() -> None:
    lab = make_lab()
    lab.make_topic("T")
    lab.join("G", {"T": "*"}, peer(1), "c1", producer_groups=["P"])
    lab.join("G", {"T": "*"}, peer(2), "c2")
    lab.broker.on_close(peer(1))
    told = [effect.connection for effect in lab.broker.outbox.take() if isinstance(effect, Push)]
    assert told == [peer(2)]
    assert lab.broker.producers.get("P") is None
    lab.broker.on_close(peer(2))
    assert lab.broker.consumers.get("G") is None
    assert not lab.plane.group_flags("G") & HAS_MEMBERS
    assert lab.plane.subscription("G", "T")[0] == SUBSCRIPTION_NONE
    assert lab.broker.membership.connections() == set()


@pytest.mark.parametrize("where", ["group", "broker", "model"])
def test_notices_can_be_off(where: str) -> None:
    lab = make_lab({"notifyConsumerIdsChangedEnable": "false"} if where == "broker" else {})
    if where == "group":
        config = SubscriptionGroupConfig("G", notify_consumer_ids_changed_enable=False)
        lab.broker.groups.put(config, START_MS)
    lab.join("G", {"T": "*"}, model="BROADCASTING" if where == "model" else "CLUSTERING")
    assert notices(lab) == []
    assert bool(lab.plane.group_flags("G") & BROADCASTING) == (where == "model")


def test_silent_clients_expire_after_120_s() -> None:
    lab = make_lab()
    lab.join("G", {"T": "*"}, peer(1), producer_groups=["P"])
    assert lab.broker.on_tick(START_MS + 119_000) == []
    assert lab.broker.consumers.get("G") is not None
    effects = lab.broker.on_tick(START_MS + 130_000)
    assert effects == [Hangup(peer(1), None)]
    assert lab.broker.consumers.get("G") is None
    assert lab.broker.producers.get("P") is None


def test_groups_that_may_not_be_made_are_skipped_silently() -> None:
    lab = make_lab({"autoCreateSubscriptionGroup": "false"})
    assert lab.join("G", {"T": "*"}, producer_groups=["P"]).code == 0
    assert lab.broker.consumers.get("G") is None
    assert lab.broker.producers.get("P") is not None
    assert "%RETRY%G" not in lab.broker.topics


def test_heartbeat_v2() -> None:
    lab = make_lab()
    lab.make_topic("T")
    first = lab.join("G", {"T": "*"}, fingerprint=11)
    assert first.ext_fields["IS_SUB_CHANGE"] == "false"
    short = lab.join("G", {}, fingerprint=11, without_sub=True)
    assert short.ext_fields["IS_SUB_CHANGE"] == "false"
    assert lab.plane.subscription("G", "T")[0] == SUBSCRIPTION_ALL, "the short form keeps subscriptions"
    assert lab.join("G", {"T": "*"}, fingerprint=12).ext_fields["IS_SUB_CHANGE"] == "true"


def test_a_short_heartbeat_that_we_know_nothing_for_asks_for_the_long_one() -> None:
    lab = make_lab()
    answer = lab.join("G", {}, fingerprint=11, without_sub=True)
    assert answer.ext_fields["IS_SUB_CHANGE"] == "true"


def test_the_consumer_list() -> None:
    lab = make_lab()
    assert lab.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}).code == 1
    lab.join("G", {}, peer(1), "c1")
    lab.join("G", {}, peer(2), "c2")
    lab.join("G", {}, peer(3), "c2")
    answer = lab.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
    assert decode_consumer_ids(answer.body) == ["c1", "c2"]


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("", 0), ("SQL92", 1)])
def test_check_client_config(kind: str, code: int) -> None:
    body = b'{"clientId":"c","group":"G","subscriptionData":{"expressionType":"%s","topic":"T"}}' % kind.encode()
    assert make_lab().ask(RequestCode.CHECK_CLIENT_CONFIG, body=body).code == code


@pytest.mark.parametrize(("expression", "code"), [("a = 1", 0), ("a >>", 23), ("", 23)])
def test_expressions_are_checked(expression: str, code: int) -> None:
    data = {"expressionType": "SQL92", "topic": "T", "subString": expression}
    body = json.dumps({"clientId": "c", "group": "G", "subscriptionData": data}).encode()
    answer = make_lab({"enablePropertyFilter": "true"}).ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert answer.code == code and bool(answer.remark) is bool(code)


@pytest.mark.parametrize("body", [b"", b"junk", b"[]", b'{"consumerDataSet":7}'])
def test_junk_heartbeats_are_refused(body: bytes) -> None:
    answer = make_lab().ask(RequestCode.HEART_BEAT, body=body)
    assert answer.code == 1
    assert answer.remark


def test_locks_belong_to_one_client_for_60_s() -> None:
    lab = make_lab()
    queues = [MessageQueue("T", "wire-a", 0), MessageQueue("T", "wire-a", 1)]

    def lock(client: str, which: list[MessageQueue]) -> list[MessageQueue]:
        answer = lab.ask(RequestCode.LOCK_BATCH_MQ, body=LockBatch("G", client, which).encode())
        return decode_locked(answer.body)

    assert lock("a", queues[:1]) == queues[:1]
    assert lock("b", queues) == queues[1:]
    lab.now_ms += 60_000
    assert lock("b", queues[:1]) == []
    lab.now_ms += 1
    assert lock("b", queues) == queues
    lab.ask(RequestCode.UNLOCK_BATCH_MQ, body=LockBatch("G", "a", queues).encode())
    assert lock("a", queues) == [], "nobody unlocks for others"
    lab.ask(RequestCode.UNLOCK_BATCH_MQ, body=LockBatch("G", "b", queues).encode())
    assert lock("a", queues) == queues
    lab.broker.locks.expire(lab.now_ms + 60_001)
    assert not lab.broker.locks.is_any_live("G", lab.now_ms)


def test_a_group_without_room_in_the_plane_leaves_nothing_behind() -> None:
    """In subscriptionGroup.json it would stop the next start; as a member's group it ended control at its close."""
    plane = FakePlane()
    lab = make_lab(plane=plane)
    lab.make_topic("T")
    assert lab.join("G", {"T": "*"}).code == 0
    known = lab.broker.groups.names()
    lab.broker.groups.dirty = False
    plane.header.tables.group_capacity = plane.header.tables.group_count

    for _ in range(2):
        answer = lab.join("Fresh", {"T": "*"}, connection=peer(2))
        assert (answer.code, "full" in answer.remark) == (1, True)
    body = SubscriptionGroupConfig("Fresh").to_json()
    assert lab.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=write_body(body)).code == 1
    lab.broker.on_close(peer(2))

    assert lab.broker.groups.names() == known
    assert not lab.broker.groups.dirty
    fresh = FakePlane(groups_max=plane.header.tables.group_capacity)
    make_lab(plane=fresh).broker.groups.load(lab.broker.groups.body(), START_MS)
    assert lab.join("G", {"T": "*"}).code == 0, "known groups go on"


def test_a_heartbeat_makes_no_retry_topic_whose_queues_are_about_to_be_removed() -> None:
    """As `mqadmin deleteSubGroup` leaves it, while consumers of the group are online."""
    lab = make_lab()
    lab.make_topic("T")
    lab.join("G", {"T": "*"})
    lab.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "%RETRY%G"})
    assert lab.join("G", {"T": "*"}).code == 0
    assert lab.plane.topic_find("%RETRY%G") is None, "its folder would be removed under it"
    lab.broker.deletions.done("%RETRY%G")
    assert lab.join("G", {"T": "*"}).code == 0
    assert lab.plane.word("%RETRY%G") == (6, 1, 1, 1 | 2)
