"""Cold pulls: stock's checks in stock's order, resets, and what control serves itself."""

from typing import Any

import pytest

from ringmq.broker.requests.request import Reply, Request, Run
from ringmq.broker.tables.protocols import FILTERS_MAX, SUBSCRIPTION_COLD, SUBSCRIPTION_FILTER, BatchPull
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.heartbeat import CONSUME_PASSIVELY, ConsumerData, HeartbeatData
from ringmq.remoting.subscription import SubscriptionData
from tests.broker.fakes import START_MS, Lab, make_lab, peer


def pull(lab: Lab, topic: str = "T", group: str = "G", code: int = RequestCode.PULL_MESSAGE, **fields: Any) -> Any:
    connection = fields.pop("connection", None)
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "0",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subVersion": "1",
    }
    return lab.ask(code, ext | {name: str(value) for name, value in fields.items()}, connection=connection)


def lab_with_member(**group: Any) -> Lab:
    lab = make_lab()
    lab.make_topic("T")
    lab.broker.groups.put(SubscriptionGroupConfig("G", **group), START_MS)
    lab.join("G", {"T": "*"})
    return lab


def test_a_pull_that_is_fine_goes_back_to_the_reader() -> None:
    assert isinstance(pull(lab_with_member()), Run)


def test_the_vip_port_serves_no_pulls() -> None:
    lab = lab_with_member()
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        answer = pull(lab, code=code, connection=peer(9, vip=True))
        assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")


def test_group_and_topic_must_exist() -> None:
    lab = make_lab({"autoCreateSubscriptionGroup": "false"})
    assert pull(lab).code == 26
    lab = make_lab()
    assert pull(lab).code == 17
    assert "G" in lab.broker.groups, "a pull makes its group"
    assert pull(make_lab(), group="bad name").code == 26


@pytest.mark.parametrize(
    ("prepare", "kind"),
    [
        (lambda lab: lab.broker.apply_config(lab.broker.config.__class__(broker_permission=2)), "1"),
        (lambda lab: lab.broker.groups.put(SubscriptionGroupConfig("G", consume_enable=False), START_MS), "2"),
        (lambda lab: lab.broker.topics.put(TopicConfig("T", 4, 4, 2), START_MS), "3"),
        (lambda lab: lab.broker.groups.set_forbidden("G", "T", True, START_MS), "5"),
    ],
)
def test_forbidden_pulls_say_who_forbids(prepare: Any, kind: str) -> None:
    lab = lab_with_member()
    prepare(lab)
    answer = pull(lab)
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, kind)


def test_broadcast_can_be_forbidden() -> None:
    lab = make_lab()
    lab.make_topic("T")
    lab.broker.groups.put(SubscriptionGroupConfig("G", consume_broadcast_enable=False), START_MS)
    lab.join("G", {"T": "*"}, model="BROADCASTING")
    answer = pull(lab)
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, "4")


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_queue_ids(queue_id: int) -> None:
    answer = pull(lab_with_member(), queueId=queue_id)
    assert answer.code == 29
    assert f"queueId[{queue_id}]" in answer.remark
    assert "readQueueNums:[4]" in answer.remark


def test_subscriptions_must_be_known_and_new_enough() -> None:
    lab = lab_with_member()
    lab.make_topic("Other")
    assert pull(lab, subVersion=2).code == 25
    assert pull(lab, topic="Other").code == 24
    assert pull(lab, group="Nobody").code == 24
    assert isinstance(pull(lab, topic="Other", sysFlag=4, subscription="*"), Run)
    assert pull(lab, sysFlag=4, subscription="||").code == 23
    assert pull(lab, sysFlag=4, subscription="a=1", expressionType="SQL92").code == 1


def test_lite_pull_can_be_off() -> None:
    lab = make_lab({"litePullMessageEnable": "false"})
    answer = pull(lab, code=RequestCode.LITE_PULL_MESSAGE)
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, "1")


def test_a_reset_sends_the_next_pull_there_once() -> None:
    lab = lab_with_member()
    lab.plane.set_bounds("T", 0, 0, 10)
    lab.broker.offsets.set_reset("G", "T", 0, 4, START_MS)
    lab.broker.publication.publish("G")
    assert lab.plane.group_flags("G") & 0x20
    answer = pull(lab, queueOffset=9)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "4")
    assert not lab.plane.group_flags("G") & 0x20
    assert lab.broker.offsets.get("G", "T", 0) == 4
    assert isinstance(pull(lab, queueOffset=4), Run)


def test_batch_queues_are_served_here() -> None:
    lab = make_lab()
    lab.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    lab.join("G", {"B": "*"})
    lab.store.batch = BatchPull("FOUND", 7, 0, 9, b"stored")
    answer = pull(lab, topic="B", sysFlag=1, commitOffset=5)
    assert (answer.code, answer.body) == (0, b"stored")
    assert answer.ext_fields["nextBeginOffset"] == "7"
    assert lab.broker.offsets.get("G", "B", 0) == 5


def test_an_empty_batch_pull_is_held_until_it_grows_or_its_time_is_over() -> None:
    lab = make_lab()
    lab.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    lab.join("G", {"B": "*"})
    lab.store.batch = BatchPull("OFFSET_OVERFLOW_ONE", 9, 0, 9)
    lab.plane.set_bounds("B", 0, 0, 9)
    assert pull(lab, topic="B", sysFlag=2, queueOffset=9) is None
    assert lab.tick(START_MS + 999) == []
    effects = lab.tick(START_MS + 1000)
    assert [effect.command.code for effect in effects if isinstance(effect, Reply)] == [19]
    assert pull(lab, topic="B", sysFlag=2, queueOffset=9) is None
    lab.plane.set_bounds("B", 0, 0, 10)
    lab.store.batch = BatchPull("FOUND", 10, 0, 10, b"x")
    effects = lab.tick(START_MS + 10)
    assert [effect.command.code for effect in effects if isinstance(effect, Reply)] == [0]
    assert pull(lab, topic="B", sysFlag=2, queueOffset=9).code == 0


def test_more_tags_than_the_plane_holds_are_served_here() -> None:
    lab = make_lab()
    lab.make_topic("T")
    lab.join("G", {"T": " || ".join(f"tag{index}" for index in range(60))})
    assert lab.plane.subscription("G", "T")[0] == 3
    lab.store.batch = BatchPull("NO_MATCHED_MESSAGE", 3, 0, 3)
    assert pull(lab).code == 20


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21)])
def test_an_empty_queue(offset: int, code: int) -> None:
    lab = make_lab()
    lab.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    lab.join("G", {"B": "*"})
    assert pull(lab, topic="B", queueOffset=offset).code == code


def test_switching_long_polling_off_shortens_what_control_holds() -> None:
    lab = make_lab()
    request = Request(RemotingCommand.request(RequestCode.PULL_MESSAGE), peer(1), lab.now_ms)
    assert lab.broker.held_pulls.hold(request, 30_000, lambda: False)
    lab.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"longPollingEnable=false\nshortPollingTimeMills=300")
    assert lab.broker.held_pulls.take_due(lab.now_ms + 299) == []
    assert lab.broker.held_pulls.take_due(lab.now_ms + 300) == [request]


SQL = {"sysFlag": 4, "subscription": "a = 1", "expressionType": "SQL92"}


def lab_with_filters(**settings: str) -> Lab:
    lab = make_lab({"enablePropertyFilter": "true"} | settings)
    lab.make_topic("T")
    return lab


def join_by(lab: Lab, expression: str, version: int = 1) -> None:
    subscription = SubscriptionData("T", expression, sub_version=version, expression_type="SQL92")
    data = ConsumerData("G", CONSUME_PASSIVELY, subscriptions=[subscription])
    lab.ask(RequestCode.HEART_BEAT, body=HeartbeatData("c", consumers=[data]).encode())


def test_the_first_pull_has_its_expression_compiled() -> None:
    lab = lab_with_filters()
    assert isinstance(pull(lab, **SQL), Run) and isinstance(pull(lab, **SQL), Run)
    assert lab.plane.filters == {0: (1, b"a = 1")}
    assert isinstance(pull(lab, **SQL | {"subscription": "b = 1"}), Run)
    assert lab.plane.filters[1] == (1, b"b = 1")


def test_the_first_pull_publishes_the_subscription() -> None:
    lab = lab_with_filters()
    join_by(lab, "a = 1")
    assert lab.plane.subscription("G", "T")[0] == SUBSCRIPTION_COLD
    assert isinstance(pull(lab), Run)
    assert lab.plane.subscription("G", "T") == (SUBSCRIPTION_FILTER, 1, [0, 1])
    join_by(lab, "a = 2", version=2)
    assert lab.plane.subscription("G", "T")[0] == SUBSCRIPTION_COLD
    assert pull(lab, subVersion=3).code == 25
    assert isinstance(pull(lab, subVersion=2), Run)
    assert lab.plane.subscription("G", "T") == (SUBSCRIPTION_FILTER, 2, [1, 1])


def test_an_expression_that_does_not_compile() -> None:
    lab = lab_with_filters()
    answer = pull(lab, **SQL | {"subscription": "a >>"})
    assert answer.code == 23 and "'>' at character 3 is not expected there" in answer.remark
    assert pull(lab, **SQL | {"subscription": ""}).code == 23
    join_by(lab, "a = '" + "x" * 9000 + "'")
    for _ in range(2):
        answer = pull(lab)
        assert answer.code == 27 and "9006 bytes, at most 8192 are allowed" in answer.remark
    assert not lab.plane.filters


@pytest.mark.parametrize(("kind", "settings"), [("SQL92", {"enablePropertyFilter": "false"}), ("XPATH", {})])
def test_other_filters_are_refused(kind: str, settings: dict[str, str]) -> None:
    answer = pull(lab_with_filters(**settings), **SQL | {"expressionType": kind})
    assert (answer.code, answer.remark) == (1, f"The broker does not support consumer to filter message by {kind}")


def test_expressions_of_consumers_stay_and_the_oldest_other_one_gives_way() -> None:
    lab = lab_with_filters()
    join_by(lab, "kept = 1")
    assert isinstance(pull(lab), Run)
    for number in range(FILTERS_MAX):
        assert isinstance(pull(lab, **SQL | {"subscription": f"a = {number}"}), Run)
    assert len(lab.plane.filters) == FILTERS_MAX
    assert lab.plane.filters[0] == (1, b"kept = 1")
    assert lab.plane.filters[1] == (3, f"a = {FILTERS_MAX - 1}".encode())


def test_batch_queues_are_filtered_here() -> None:
    lab = lab_with_filters()
    lab.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    lab.store.batch = BatchPull("FOUND", 7, 0, 9, b"stored")
    answer = pull(lab, topic="B", **SQL)
    assert (answer.code, answer.body) == (0, b"stored")
    assert lab.store.wants is not None
    assert lab.store.wants({"a": "1"}) and not lab.store.wants({"a": "2"})
