"""Cold pulls: stock's checks in stock's order, resets, and what control serves itself."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.requests.request import Connection, Reply, Request, Run
from ringmq.broker.tables.filter_programs import CONNECTION_FILTERS_MAX, HOST_FILTERS_MAX
from ringmq.broker.tables.protocols import (
    FILTERS_MAX,
    SUBSCRIPTION_COLD,
    SUBSCRIPTION_FILTER,
    TOPIC_PULL_COLD,
    BatchPull,
)
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.heartbeat import CONSUME_PASSIVELY, ConsumerData, HeartbeatData
from ringmq.remoting.names import STAGED_TOPICS
from ringmq.remoting.subscription import SubscriptionData
from tests.broker.fakes import START_MS, Harness, make_harness, peer

ROOT = Path(__file__).parents[2]


def pull(
    harness: Harness, topic: str = "T", group: str = "G", code: int = RequestCode.PULL_MESSAGE, **fields: Any
) -> Any:
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
    return harness.ask(code, ext | {name: str(value) for name, value in fields.items()}, connection=connection)


def harness_with_member(**group: Any) -> Harness:
    harness = make_harness()
    harness.make_topic("T")
    harness.broker.groups.put(SubscriptionGroupConfig("G", **group), START_MS)
    harness.join("G", {"T": "*"})
    return harness


def test_a_pull_that_is_fine_goes_back_to_the_reader() -> None:
    assert isinstance(pull(harness_with_member()), Run)


def test_the_vip_port_serves_no_pulls() -> None:
    harness = harness_with_member()
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        answer = pull(harness, code=code, connection=peer(9, vip=True))
        assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")


def test_group_and_topic_must_exist() -> None:
    harness = make_harness({"autoCreateSubscriptionGroup": "false"})
    assert pull(harness).code == 26
    harness = make_harness()
    assert pull(harness).code == 17
    assert "G" not in harness.broker.groups, "a refused pull makes nothing"
    assert pull(make_harness(), group="bad name").code == 26


@pytest.mark.parametrize(
    ("prepare", "kind"),
    [
        (lambda harness: harness.broker.apply_config(harness.broker.config.__class__(broker_permission=2)), "1"),
        (lambda harness: harness.broker.groups.put(SubscriptionGroupConfig("G", consume_enable=False), START_MS), "2"),
        (lambda harness: harness.broker.topics.put(TopicConfig("T", 4, 4, 2), START_MS), "3"),
        (lambda harness: harness.broker.groups.set_forbidden("G", "T", True, START_MS), "5"),
    ],
)
def test_forbidden_pulls_say_who_forbids(prepare: Any, kind: str) -> None:
    harness = harness_with_member()
    prepare(harness)
    answer = pull(harness)
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, kind)


@pytest.mark.parametrize("topic", sorted(STAGED_TOPICS))
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_no_permission_shows_staged_writes(topic: str, code: int) -> None:
    """Stores of older versions have a topic of decisions that consumers may read."""
    harness = harness_with_member()
    config = TopicConfig(topic, 1, 1, 6)
    harness.broker.topics.put(config, START_MS)
    assert harness.broker.topics.flags(config) & TOPIC_PULL_COLD, "no reader serves it"
    answer = pull(harness, topic=topic, code=code, sysFlag=4, subscription="*")
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, "3")


def test_broadcast_can_be_forbidden() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.broker.groups.put(SubscriptionGroupConfig("G", consume_broadcast_enable=False), START_MS)
    harness.join("G", {"T": "*"}, model="BROADCASTING")
    answer = pull(harness)
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, "4")


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_queue_ids(queue_id: int) -> None:
    answer = pull(harness_with_member(), queueId=queue_id)
    assert answer.code == 29
    assert f"queueId[{queue_id}]" in answer.remark
    assert "readQueueNums:[4]" in answer.remark


def test_subscriptions_must_be_known_and_new_enough() -> None:
    harness = harness_with_member()
    harness.make_topic("Other")
    assert pull(harness, subVersion=2).code == 25
    assert pull(harness, topic="Other").code == 24
    assert pull(harness, group="Nobody").code == 24
    assert isinstance(pull(harness, topic="Other", sysFlag=4, subscription="*"), Run)
    assert pull(harness, sysFlag=4, subscription="||").code == 23
    assert pull(harness, sysFlag=4, subscription="a=1", expressionType="SQL92").code == 1


def test_lite_pull_can_be_off() -> None:
    harness = make_harness({"litePullMessageEnable": "false"})
    answer = pull(harness, code=RequestCode.LITE_PULL_MESSAGE)
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, "1")


def test_a_reset_sends_the_next_pull_there_once() -> None:
    harness = harness_with_member()
    harness.plane.set_bounds("T", 0, 0, 10)
    harness.broker.offsets.set_reset("G", "T", 0, 4, START_MS, popped=0)
    harness.broker.publication.publish("G")
    assert harness.plane.group_flags("G") & 0x20
    answer = pull(harness, queueOffset=9)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "4")
    assert not harness.plane.group_flags("G") & 0x20
    assert harness.broker.offsets.get("G", "T", 0) == 4
    assert isinstance(pull(harness, queueOffset=4), Run)


def test_a_reset_that_a_pop_has_ended_sends_no_pull_there() -> None:
    harness = harness_with_member()
    harness.broker.offsets.set_reset("G", "T", 0, 4, START_MS, popped=0)
    harness.broker.publication.publish("G")
    harness.plane.popped_table = dict.fromkeys(harness.plane.offset_table, 1)
    assert isinstance(pull(harness, queueOffset=9), Run)
    assert not harness.plane.group_flags("G") & 0x20, "its pulls do not pass control any more"


def test_batch_queues_are_served_here() -> None:
    harness = make_harness()
    harness.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    harness.join("G", {"B": "*"})
    harness.store.batch = BatchPull("FOUND", 7, 0, 9, b"stored")
    answer = pull(harness, topic="B", sysFlag=1, commitOffset=5)
    assert (answer.code, answer.body) == (0, b"stored")
    assert answer.ext_fields["nextBeginOffset"] == "7"
    assert harness.broker.offsets.get("G", "B", 0) == 5


def test_an_empty_batch_pull_is_held_until_it_grows_or_its_time_is_over() -> None:
    harness = make_harness()
    harness.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    harness.join("G", {"B": "*"})
    harness.store.batch = BatchPull("OFFSET_OVERFLOW_ONE", 9, 0, 9)
    harness.plane.set_bounds("B", 0, 0, 9)
    assert pull(harness, topic="B", sysFlag=2, queueOffset=9) is None
    assert harness.tick(START_MS + 999) == []
    effects = harness.tick(START_MS + 1000)
    assert [effect.command.code for effect in effects if isinstance(effect, Reply)] == [19]
    assert pull(harness, topic="B", sysFlag=2, queueOffset=9) is None
    harness.plane.set_bounds("B", 0, 0, 10)
    harness.store.batch = BatchPull("FOUND", 10, 0, 10, b"x")
    effects = harness.tick(START_MS + 10)
    assert [effect.command.code for effect in effects if isinstance(effect, Reply)] == [0]
    assert pull(harness, topic="B", sysFlag=2, queueOffset=9).code == 0


def test_more_tags_than_the_plane_holds_are_served_here() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.join("G", {"T": " || ".join(f"tag{index}" for index in range(60))})
    assert harness.plane.subscription("G", "T")[0] == 3
    harness.store.batch = BatchPull("NO_MATCHED_MESSAGE", 3, 0, 3)
    assert pull(harness).code == 20


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21)])
def test_an_empty_queue(offset: int, code: int) -> None:
    harness = make_harness()
    harness.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    harness.join("G", {"B": "*"})
    assert pull(harness, topic="B", queueOffset=offset).code == code


def test_switching_long_polling_off_shortens_what_control_holds() -> None:
    harness = make_harness()
    request = Request(RemotingCommand.request(RequestCode.PULL_MESSAGE), peer(1), harness.now_ms)
    assert harness.broker.held_pulls.hold(request, 30_000, lambda: False)
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"longPollingEnable=false\nshortPollingTimeMills=300")
    assert harness.broker.held_pulls.take_due(harness.now_ms + 299) == []
    assert harness.broker.held_pulls.take_due(harness.now_ms + 300) == [request]


SQL = {"sysFlag": 4, "subscription": "a = 1", "expressionType": "SQL92"}


def harness_with_filters(**settings: str) -> Harness:
    harness = make_harness({"enablePropertyFilter": "true"} | settings)
    harness.make_topic("T")
    return harness


def join_by(harness: Harness, expression: str, version: int = 1) -> None:
    subscription = SubscriptionData("T", expression, sub_version=version, expression_type="SQL92")
    data = ConsumerData("G", CONSUME_PASSIVELY, subscriptions=[subscription])
    harness.ask(RequestCode.HEART_BEAT, body=HeartbeatData("c", consumers=[data]).encode())


def test_the_first_pull_has_its_expression_compiled() -> None:
    harness = harness_with_filters()
    assert isinstance(pull(harness, **SQL), Run) and isinstance(pull(harness, **SQL), Run)
    assert harness.plane.filters == {0: (1, b"a = 1")}
    assert isinstance(pull(harness, **SQL | {"subscription": "b = 1"}), Run)
    assert harness.plane.filters[1] == (1, b"b = 1")


def test_the_first_pull_publishes_the_subscription() -> None:
    harness = harness_with_filters()
    join_by(harness, "a = 1")
    assert harness.plane.subscription("G", "T")[0] == SUBSCRIPTION_COLD
    assert isinstance(pull(harness), Run)
    assert harness.plane.subscription("G", "T") == (SUBSCRIPTION_FILTER, 1, [0, 1])
    join_by(harness, "a = 2", version=2)
    assert harness.plane.subscription("G", "T")[0] == SUBSCRIPTION_COLD
    assert pull(harness, subVersion=3).code == 25
    assert isinstance(pull(harness, subVersion=2), Run)
    assert harness.plane.subscription("G", "T") == (SUBSCRIPTION_FILTER, 2, [1, 1])


def test_an_expression_that_does_not_compile() -> None:
    harness = harness_with_filters()
    answer = pull(harness, **SQL | {"subscription": "a >>"})
    assert answer.code == 23 and "'>' at character 3 is not expected there" in answer.remark
    assert pull(harness, **SQL | {"subscription": ""}).code == 23
    join_by(harness, "a = '" + "x" * 9000 + "'")
    for _ in range(2):
        answer = pull(harness)
        assert answer.code == 27 and "9006 bytes, at most 8192 are allowed" in answer.remark
    assert not harness.plane.filters


def test_the_compiler_is_loaded_when_expressions_are_allowed_and_before_a_client_sends_one() -> None:
    """Its parser is built in 70 ms: without expressions each start of control would pay for it."""
    program = """
import sys
import ringmq.broker.control
from ringmq.remoting.codes import RequestCode
from tests.broker.fakes import make_harness

harness = make_harness()
assert "lark" not in sys.modules, "it starts without"
if sys.argv[1] == "start":
    make_harness({"enablePropertyFilter": "true"})
else:
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enablePropertyFilter=true")
assert "ringmq.filters.compiler" in sys.modules
"""
    for moment in ("start", "request"):
        command = [sys.executable, "-c", program, moment]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("kind", "settings"), [("SQL92", {"enablePropertyFilter": "false"}), ("XPATH", {})])
def test_other_filters_are_refused(kind: str, settings: dict[str, str]) -> None:
    answer = pull(harness_with_filters(**settings), **SQL | {"expressionType": kind})
    assert (answer.code, answer.remark) == (1, f"The broker does not support consumer to filter message by {kind}")


def pull_by(harness: Harness, expression: str, connection: Connection) -> Any:
    return pull(harness, connection=connection, **SQL | {"subscription": expression})


def subscribe_by(harness: Harness, connection: Connection, group: str, topics: range) -> None:
    """Subscribe to topics of the connection's own, each with an expression of its own, and pull once from each."""
    wanted = [
        SubscriptionData(f"T{number}", f"{group} = {number}", sub_version=1, expression_type="SQL92")
        for number in topics
    ]
    for topic in topics:
        harness.make_topic(f"T{topic}")
    data = ConsumerData(group, CONSUME_PASSIVELY, subscriptions=wanted)
    harness.ask(RequestCode.HEART_BEAT, body=HeartbeatData(group, consumers=[data]).encode(), connection=connection)


def test_expressions_of_consumers_stay_and_the_oldest_other_one_gives_way() -> None:
    harness = harness_with_filters()
    join_by(harness, "kept = 1")
    assert isinstance(pull(harness), Run)
    for number in range(FILTERS_MAX):
        from_ = peer(number % 64)._replace(host=f"10.0.0.{number % 64}")
        assert isinstance(pull_by(harness, f"a = {number}", from_), Run)
    assert len(harness.plane.filters) == FILTERS_MAX
    assert harness.plane.filters[0] == (1, b"kept = 1")
    assert harness.plane.filters[1] == (3, f"a = {FILTERS_MAX - 1}".encode())


def test_a_connection_and_a_host_have_their_share_of_the_expressions() -> None:
    """Their subscriptions are refused beyond it, and the place of another one's is never taken."""
    harness = harness_with_filters()
    share, clients = CONNECTION_FILTERS_MAX, HOST_FILTERS_MAX // CONNECTION_FILTERS_MAX
    for client in range(clients):
        subscribe_by(harness, peer(client), f"g{client}", range(share + 1))
        for number in range(share):
            answer = pull(harness, f"T{number}", f"g{client}", connection=peer(client))
            assert isinstance(answer, Run)
        answer = pull(harness, f"T{share}", f"g{client}", connection=peer(client))
        assert answer.code == 27 and f"of connection 127.0.0.1:4000{client} name {share} exp" in answer.remark
    answer = pull_by(harness, "own = 1", peer(9))
    assert answer.code == 23 and f"of host 127.0.0.1 name {HOST_FILTERS_MAX} expressions" in answer.remark
    other = peer(9)._replace(host="10.0.0.9")
    assert isinstance(pull_by(harness, "own = 1", other), Run)
    assert len(harness.plane.filters) == HOST_FILTERS_MAX + 1
    harness.broker.on_close(peer(0))
    assert isinstance(pull_by(harness, "own = 2", peer(9)), Run), "what nobody subscribes to gives way"
    assert harness.plane.filters[0] == (3, b"own = 2")


def test_expressions_of_its_own_pulls_take_a_connections_own_places() -> None:
    harness = harness_with_filters()
    for number in range(CONNECTION_FILTERS_MAX + 2):
        assert isinstance(pull_by(harness, f"a = {number}", peer(1)), Run)
    assert len(harness.plane.filters) == CONNECTION_FILTERS_MAX
    assert harness.plane.filters[1] == (3, f"a = {CONNECTION_FILTERS_MAX + 1}".encode())
    assert isinstance(pull_by(harness, "b = 1", peer(2)), Run)
    assert len(harness.plane.filters) == CONNECTION_FILTERS_MAX + 1


def test_batch_queues_are_filtered_here() -> None:
    harness = harness_with_filters()
    harness.broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}), START_MS)
    harness.store.batch = BatchPull("FOUND", 7, 0, 9, b"stored")
    answer = pull(harness, topic="B", **SQL)
    assert (answer.code, answer.body) == (0, b"stored")
    assert harness.store.wants is not None
    assert harness.store.wants({"a": "1"}) and not harness.store.wants({"a": "2"})
