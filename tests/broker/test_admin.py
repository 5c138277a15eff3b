"""Operators' requests that change topics, groups and configuration."""

from typing import Any

import pytest

from ringmq.broker.config.broker_config import RETENTION, property_table
from ringmq.broker.config.fixed_values import FIXED_VALUES
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
from ringmq.broker.control_shell import time_text
from ringmq.broker.handlers.topic_attributes import BadAttribute, alter_attributes, parse_attributes
from ringmq.broker.tables.statistics import EXPIRY_MS
from ringmq.broker.tables.topics import compaction_notice
from ringmq.fastjson.reader import read_config
from ringmq.remoting.admin_bodies import (
    decode_topic_list,
)
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig, TopicConfigTable
from ringmq.remoting.json_body import read_object, write_body
from ringmq.remoting.names import MAX_TOPIC_CHARS
from ringmq.store.config_files import encode_config
from tests.broker.fakes import START_MS, FakePlane, Harness, make_harness, peer


def update_topic(harness: Harness, topic: str, **fields: Any) -> Any:
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    ext |= {name: str(value) for name, value in fields.items()}
    return harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def test_a_topic_is_made_changed_and_read() -> None:
    harness = make_harness()
    assert update_topic(harness, "T", attributes="+message.type=FIFO").code == 0
    assert harness.plane.word("T") == (6, 4, 4, 1)
    version = harness.broker.topics.data_version.counter
    assert update_topic(harness, "T", attributes="+message.type=FIFO").code == 0
    assert harness.broker.topics.data_version.counter == version, "the same again changes nothing"
    assert update_topic(harness, "T", perm=4, writeQueueNums=2, readQueueNums=8).code == 0
    assert harness.plane.word("T") == (4, 8, 2, 1)
    answer = harness.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
    config = TopicConfig.from_json(read_object(answer.body, "TopicConfig"))
    assert (config.read_queue_nums, config.attributes) == (8, {"message.type": "FIFO"})
    assert harness.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Nope"}).code == 17


@pytest.mark.parametrize(
    ("topic", "fields", "code", "text"),
    [
        ("a b", {}, 29, "illegal characters"),
        ("x" * 128, {}, 29, "127"),
        ("TBW102", {}, 29, "conflict with system topic"),
        ("rmq_sys_x", {}, 29, "conflict with system topic"),
        ("wire-a", {}, 29, "conflict with system topic"),
        ("T", {"topicFilterType": "NONE"}, 1, "topicFilterType"),
        ("T", {"attributes": "+message.type=MIXED"}, 29, "MIXED"),
        ("T", {"attributes": "+queue.type=BatchCQ"}, 29, "queue.type = BatchCQ"),
        ("T", {"attributes": "+cleanup.policy=COMPACTION"}, 29, "compaction is not built yet"),
        ("T", {"attributes": "+nonsense=1"}, 1, "unsupported key"),
        ("T", {"readQueueNums": 65536}, 29, "0..65535"),
        ("T", {"writeQueueNums": -1}, 29, "writeQueueNums"),
        ("T", {"perm": "x"}, 1, "perm"),
    ],
)
def test_impossible_topics_are_refused(topic: str, fields: dict[str, Any], code: int, text: str) -> None:
    harness = make_harness()
    answer = update_topic(harness, topic, **fields)
    assert answer.code == code
    assert text in answer.remark
    assert topic == "TBW102" or topic == "wire-a" or topic not in harness.broker.topics


def test_a_list_of_topics_is_made_whole_or_not_at_all() -> None:
    harness = make_harness()
    good, bad = TopicConfig("Good", 2, 2).to_json(), TopicConfig("bad name", 2, 2).to_json()
    body = write_body({"topicConfigList": [good, bad]})
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body).code == 29
    assert "Good" not in harness.broker.topics
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=write_body({"topicConfigList": [good]})).code == 0
    assert "Good" in harness.broker.topics


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (TopicConfig("Bad", 65536, 2), 29),
        (TopicConfig("Bad", 2, 2, attributes={"+nonsense": "1"}), 1),
        (TopicConfig("Known", 2, 2, attributes={"-message.type": ""}), 1),
        (TopicConfig("Good", 2, 2, attributes={"+queue.type": "SimpleCQ"}), 1),
        (TopicConfig("Going", 2, 2), 2),
    ],
)
def test_no_topic_of_a_list_is_made_where_one_of_them_is_refused(bad: TopicConfig, code: int) -> None:
    harness = make_harness()
    for topic in ("Known", "Going"):
        harness.make_topic(topic)
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Going"})
    good = TopicConfig("Good", 2, 2, attributes={"+queue.type": "SimpleCQ"}).to_json()
    listed = write_body({"topicConfigList": [good, bad.to_json()]})
    answer = harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=listed)
    assert answer.code == code, answer.remark
    assert "Good" not in harness.broker.topics


def test_a_name_that_stands_twice_in_a_list_is_made_and_changed() -> None:
    harness = make_harness()
    made = TopicConfig("T", 2, 2, attributes={"+message.type": "FIFO"}).to_json()
    altered = TopicConfig("T", 4, 4, attributes={"-message.type": "", "+reserve.time": "5"}).to_json()
    listed = write_body({"topicConfigList": [made, altered]})
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=listed).code == 0
    config = harness.broker.topics.get("T")
    assert config is not None
    assert (config.read_queue_nums, config.attributes) == (4, {"reserve.time": "5"})


def test_a_deleted_name_is_free_when_its_queues_are_gone() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.store.appended, harness.store.dispatched = 100, 40
    assert harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    assert harness.plane.topic_find("T") is None
    assert update_topic(harness, "T").code == 2
    log = harness.store.log_state
    deletions = harness.broker.deletions
    assert deletions.due(START_MS + 199, log().append_offset, log().dispatched_offset) == []
    assert deletions.due(START_MS + 200, log().append_offset, log().dispatched_offset) == []
    harness.store.appended, harness.store.dispatched = 300, 100
    assert deletions.due(START_MS + 201, log().append_offset, log().dispatched_offset) == ["T"]
    deletions.done("T")
    turns: list[int | None] = [7]
    deletions.write_turns = lambda: turns[0]
    deletions.add("Slow", START_MS)
    assert deletions.due(START_MS + 9000, 300, 300) == [], "write stands still in the middle of a batch"
    turns[0] = 8
    assert deletions.due(START_MS + 9100, 300, 300) == []
    assert deletions.due(START_MS + 9200, 400, 300) == [], "what it appended is not dispatched yet"
    assert deletions.due(START_MS + 9300, 400, 400) == ["Slow"]
    deletions.done("Slow")
    deletions.add("Later", START_MS)
    turns[0] = None
    assert deletions.due(START_MS + 9400, 400, 400) == [], "settled: another role owns the journal"
    assert deletions.due(START_MS + 9500, 400, 400) == ["Later"]
    deletions.done("Later")
    assert update_topic(harness, "T").code == 0
    assert harness.plane.topic_find("T") == harness.plane.header.tables.topic_count, "a new id"


@pytest.mark.parametrize(("topic", "code"), [("", 1), (" ", 29), ("TBW102", 29), ("Nope", 0)])
def test_deletes_that_do_nothing(topic: str, code: int) -> None:
    ext = {"topic": topic} if topic else {}
    assert make_harness().ask(RequestCode.DELETE_TOPIC_IN_BROKER, ext).code == code


def test_pop_retry_topics_go_with_their_topic() -> None:
    harness = make_harness()
    for name in ("T", "%RETRY%G_T", "%RETRY%G"):
        harness.broker.topics.put(TopicConfig(name, 1, 1), START_MS)
    harness.broker.offsets.put("G", "T", 0, 1, START_MS)
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert "%RETRY%G_T" not in harness.broker.topics
    assert "%RETRY%G" in harness.broker.topics


def test_all_topics_and_system_topics() -> None:
    harness = make_harness()
    harness.make_topic("T")
    answer = harness.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigTable.from_json(read_object(answer.body, "TopicConfigTable"))
    assert table.topics["T"].queue_count == 4
    assert table.topics["BenchmarkTest"].queue_count == 1024
    assert answer.ext_fields == {}
    system = decode_topic_list(harness.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body)
    assert {"TBW102", "wire-a", "GoldCluster", "GoldCluster_REPLY_TOPIC", "rmq_sys_wheel_timer"} <= set(system)


def test_groups_are_made_read_and_deleted() -> None:
    harness = make_harness()
    body = write_body(SubscriptionGroupConfig("G", retry_max_times=3).to_json())
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    answer = harness.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"})
    assert read_object(answer.body, "x")["retryMaxTimes"] == 3
    table = read_object(harness.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body, "x")
    assert {"G", "TOOLS_CONSUMER"} <= set(table["subscriptionGroupTable"])
    harness.broker.offsets.put("G", "TBW102", 0, 7, START_MS)
    ext = {"groupName": "G", "cleanOffset": "true"}
    assert harness.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext).code == 0
    assert harness.plane.group_flags("G") == 0
    assert harness.broker.offsets.get("G", "TBW102", 0) == -1
    assert "G" not in harness.broker.groups


def group_config(harness: Harness, group: str) -> Any:
    return harness.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})


def test_a_question_for_a_group_makes_it_as_a_heartbeat_does() -> None:
    """RocketMQ's proxy asks for the group of each client before the client's first pull."""
    harness = make_harness({"adminAddresses": "192.0.2.1"}, plane=FakePlane(groups_max=30))
    answer = group_config(harness, "G")
    assert (answer.code, read_object(answer.body, "x")["groupName"]) == (0, "G")
    assert harness.broker.groups.get("G") == SubscriptionGroupConfig("G")
    assert harness.plane.group_flags("G") and harness.broker.client_names.has_group("G")
    for number in range(14):
        assert group_config(harness, f"G{number}").code == 0
    full = group_config(harness, "G14")
    assert full.code == 1 and "15 of at most 15 groups, half of ringmqGroupsMax" in full.remark
    assert group_config(harness, "G").code == 0


@pytest.mark.parametrize("group", ["", "a b", "g" * 121])
def test_a_question_for_a_group_makes_none_with_an_illegal_name(group: str) -> None:
    harness = make_harness()
    answer = group_config(harness, group)
    assert (answer.code, answer.remark) == (26, f"No group in this broker. group: {group}")
    assert group not in harness.broker.groups


def test_a_question_for_a_group_makes_none_if_clients_may_not_or_memory_is_short() -> None:
    harness = make_harness({"autoCreateSubscriptionGroup": "false"})
    assert group_config(harness, "G").code == 26
    assert group_config(harness, "TOOLS_CONSUMER").code == 0
    harness = make_harness()
    harness.plane.header.memory.level = 1
    assert group_config(harness, "G").code == 2
    assert "G" not in harness.broker.groups


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize("attributes", [{"+key": "value"}, {"-key": ""}, {"key": "value"}, {"+key": None}])
def test_attributes_of_groups_are_refused_and_nothing_changes(is_list: bool, attributes: dict[str, Any]) -> None:
    harness = make_harness()
    harness.broker.groups.put(SubscriptionGroupConfig("G", retry_max_times=3, attributes={"key": "old"}), START_MS)
    bean = {**SubscriptionGroupConfig("G").to_json(), "attributes": attributes}
    beans = [SubscriptionGroupConfig("New").to_json(), bean]
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP + 25 * is_list
    answer = harness.ask(code, body=write_body({"groupConfigList": beans} if is_list else bean))
    assert answer.code == 1 and "unsupported key" in answer.remark and "group G" in answer.remark
    config = harness.broker.groups.get("G")
    assert config is not None and (config.retry_max_times, config.attributes) == (3, {"key": "old"})
    assert "New" not in harness.broker.groups
    assert harness.ask(code, body=write_body({"groupConfigList": beans[:1]} if is_list else beans[0])).code == 0


def test_no_group_of_a_list_is_made_if_one_is_impossible() -> None:
    harness = make_harness()
    beans = [SubscriptionGroupConfig("New").to_json(), SubscriptionGroupConfig("G", retry_queue_nums=-1).to_json()]
    body = write_body({"groupConfigList": beans})
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body).code == 29
    assert "New" not in harness.broker.groups


def nested(levels: int) -> dict[str, Any]:
    return {"a": nested(levels - 1)} if levels else {}


@pytest.mark.parametrize("is_list", [False, True])
def test_of_a_groups_beans_the_known_members_are_kept(is_list: bool) -> None:
    harness = make_harness()
    policy = {
        "type": "X",
        "more": nested(50),
        "customizedRetryPolicy": {},
        "exponentialRetryPolicy": {"max": 9, "x": 1},
    }
    subscription = {"topic": "T", "version": 3, "expression": None, "more": nested(50)}
    bean = {"groupName": "G", "groupRetryPolicy": policy, "subscriptionDataSet": [subscription]}
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP + 25 * is_list
    assert harness.ask(code, body=write_body({"groupConfigList": [bean]} if is_list else bean)).code == 0
    config = harness.broker.groups.get("G")
    assert config is not None
    assert len(config.group_retry_policy["customizedRetryPolicy"]["next"]) == 18
    assert config.group_retry_policy["exponentialRetryPolicy"] == {"initial": 5000, "max": 9, "multiplier": 2}
    assert sorted(config.group_retry_policy) == ["customizedRetryPolicy", "exponentialRetryPolicy", "type"]
    assert config.group_retry_policy["type"] == "CUSTOMIZED"
    assert config.subscription_data_set == ({"topic": "T", "version": 3},)
    read_config(encode_config("subscriptionGroup.json", harness.broker.groups.body()))


@pytest.mark.parametrize(
    ("bean", "field"),
    [
        ({"groupRetryPolicy": 5}, "groupRetryPolicy"),
        ({"groupRetryPolicy": {"type": []}}, "type"),
        ({"groupRetryPolicy": {"customizedRetryPolicy": {"next": ["x"]}}}, "next"),
        ({"groupRetryPolicy": {"exponentialRetryPolicy": {"max": 1 << 63}}}, "max"),
        ({"subscriptionDataSet": ["T"]}, "subscriptionDataSet"),
        ({"subscriptionDataSet": [{"topic": {}}]}, "topic"),
        ({"subscriptionDataSet": [{"topic": "T", "version": "x"}]}, "version"),
    ],
)
def test_groups_whose_beans_do_not_read_are_refused(bean: dict[str, Any], field: str) -> None:
    harness = make_harness()
    answer = harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=write_body({"groupName": "G"} | bean))
    assert (answer.code, field in answer.remark, "G" in harness.broker.groups) == (1, True, False)


@pytest.mark.parametrize("name", ["", "a b", "g" * 121])
def test_bad_group_names_are_refused(name: str) -> None:
    harness = make_harness()
    one = SubscriptionGroupConfig(name).to_json()
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=write_body(one)).code == 29
    many = write_body({"groupConfigList": [SubscriptionGroupConfig("ok").to_json(), one]})
    assert harness.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=many).code == 29
    assert "ok" not in harness.broker.groups


def test_forbidding_a_topic() -> None:
    harness = make_harness()
    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    harness.broker.groups.put(SubscriptionGroupConfig("G"), START_MS)
    answer = harness.ask(code, {"group": "G", "topic": "T", "readable": "false"})
    assert read_object(answer.body, "x") == {"group": "G", "readable": False, "topic": "T"}
    assert harness.plane.group_flags("G") & 0x20
    harness.ask(code, {"group": "G", "topic": "T", "readable": "true"})
    assert not harness.plane.group_flags("G") & 0x20
    assert read_object(harness.ask(code, {"group": "G", "topic": "T"}).body, "x")["readable"] is True


@pytest.mark.parametrize(("group", "topic"), [("a b", "T"), ("g" * 121, "T"), ("G", "a\n"), ("G", "t" * 128)])
def test_impossible_names_are_not_forbidden(group: str, topic: str) -> None:
    harness = make_harness()
    ext = {"group": group, "topic": topic, "readable": "false"}
    assert harness.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ext).code == 29
    assert harness.broker.groups.body()["forbiddenTable"] == {}


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"autoCreateTopicEnable=false", 0, None),
        (b"sendMessageThreadPoolNums=7", 0, None),
        (b"maxTransferCountOnMessageInMemory=33", 0, None),
        (b"brokerConfigPath=/x", 16, "black list"),
        (b"autoCreateTopic=1", 1, "autoCreateTopicEnable"),
        (b"brokerPermission=8", 1, "0..7"),
        (b"listenPort=1234", 1, "at a start only"),
        (b"listenPort=10911", 0, None),
        (b"\xff=1", 1, "string2Properties error"),
        (b"x" * 32_769, 1, "body has 32769 bytes, at most 32768 are read"),
        (b"brokerPermission=6\r" * 1000, 1, "body has 1001 lines, at most 1000 are read"),
        (b"brokerPermission=6\n" * 999, 0, None),
        (b"x" * 30_000, 1, "is not a known property"),
    ],
)
def test_configuration_changes(body: bytes, code: int, text: str | None) -> None:
    harness = make_harness()
    answer = harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == code
    assert text is None or text in answer.remark


@pytest.mark.parametrize("policy", ["COMPACTION", "DELETE"])
def test_a_list_of_topics_may_not_ask_for_compaction(policy: str) -> None:
    harness = make_harness()
    wanted = [TopicConfig("A"), TopicConfig("B", attributes={"+cleanup.policy": policy})]
    body = write_body({"topicConfigList": [config.to_json() for config in wanted]})
    answer = harness.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    refused = policy == "COMPACTION"
    assert answer.code == (29 if refused else 0)
    assert ("A" in harness.broker.topics) is not refused


def test_compaction_of_an_existing_store_is_told() -> None:
    compacted = [TopicConfig(f"C{number:02}", attributes={"cleanup.policy": "COMPACTION"}) for number in range(12)]
    assert compaction_notice([TopicConfig("A"), TopicConfig("B", attributes={"cleanup.policy": "DELETE"})]) is None
    assert "topics C00 keep every" in str(compaction_notice([*compacted[:1], TopicConfig("A")]))
    assert "C08, C09 and 2 more keep every" in str(compaction_notice(compacted))


def test_a_change_is_seen_shown_and_told() -> None:
    harness = make_harness()
    shown = []
    harness.broker.on_config = shown.append
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
    assert harness.broker.config.broker_permission == 4
    assert [config.broker_permission for config in shown] == [4]
    assert harness.broker.outbox.register
    answer = harness.ask(RequestCode.GET_BROKER_CONFIG)
    assert b"brokerPermission=4\n" in answer.body
    assert read_object(answer.ext_fields["version"].encode(), "x")["counter"] == 1


def test_the_configuration_shows_names_of_stock_whose_value_is_fixed() -> None:
    harness = make_harness()
    lines = harness.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
    shown = dict(line.split("=", 1) for line in lines)
    assert len(shown) == len(lines), "no name comes twice"
    assert set(FIXED_VALUES) <= STOCK_PROPERTY_NAMES - set(property_table())
    assert {**shown, **FIXED_VALUES} == shown
    assert shown["maxStatsIdleTimeInMinutes"] == str(EXPIRY_MS // 60_000)
    assert shown["maxTopicLength"] == str(MAX_TOPIC_CHARS)
    assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"useTLS=true").code == 0
    assert b"useTLS=false\n" in harness.ask(RequestCode.GET_BROKER_CONFIG).body, "it has no effect"


def test_a_name_without_meaning_is_told_with_the_peer() -> None:
    harness = make_harness()
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\nmaxMsgsNumBatch=64")
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"sendMessageThreadPoolNums=7")
    (ignored_line,) = harness.broker.outbox.lines
    assert ignored_line.startswith(f"request 25 from {peer(1).address} sets sendMessageThreadPoolNums: no effect in")


@pytest.mark.parametrize(
    ("value", "accepted"),
    [(0, True), (START_MS + 86_400_000, True), (START_MS + 86_400_001, False), (1 << 62, False)],
)
def test_sends_may_be_refused_for_a_day_at_most(value: int, accepted: bool) -> None:
    harness = make_harness()
    answer = harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"startAcceptSendRequestTimeStamp={value}".encode())
    assert answer.code == (0 if accepted else 1)
    assert harness.broker.config.start_accept_send_request_time_stamp == (value if accepted else 0)
    if not accepted:
        limit = f"at most {START_MS + 86_400_000}"
        assert answer.remark.startswith(f"startAcceptSendRequestTimeStamp = {value} ") and limit in answer.remark
        assert harness.broker.outbox.lines == []


def test_a_far_time_of_the_start_does_not_keep_other_settings_from_being_changed() -> None:
    harness = make_harness({"startAcceptSendRequestTimeStamp": str(1 << 62)})
    body = f"startAcceptSendRequestTimeStamp={1 << 62}\nbrokerPermission=4".encode()
    assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0
    assert harness.broker.config.broker_permission == 4


@pytest.mark.parametrize("name", sorted(RETENTION))
def test_what_deletes_log_files_is_taken_from_loopback_and_named_networks(name: str) -> None:
    table = property_table()
    value = "false" if name == "cleanFileForciblyEnable" else "50" if "Ratio" in name else "7"
    body = f"{name}={value}".encode()
    far = peer(1)._replace(host="192.0.2.7")
    harness = make_harness()
    answer = harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body, connection=far)
    assert (answer.code, answer.remark.split()[0]) == (16, name)
    unchanged = f"{name}={table[name][1].text(table[name][1].default)}".encode()
    assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=unchanged, connection=far).code == 0
    near = peer(1)._replace(host="127.0.0.1")
    assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body, connection=near).code == 0
    named = make_harness({"adminAddresses": "192.0.2.0/24"})
    assert named.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body, connection=far).code == 0
    assert table[name][1].text(getattr(named.broker.config, table[name][0])) == value


def test_a_point_in_time_is_told_in_words() -> None:
    assert time_text(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    assert time_text(1 << 62) == f"{1 << 62} ms after 1970, outside of the calendar"


@pytest.mark.parametrize("code", [306, 316, 329])
def test_cleaning_commands_succeed(code: int) -> None:
    assert make_harness().ask(code).code == 0


@pytest.mark.parametrize(("role", "gone"), [("ASYNC_MASTER", {"Lost"}), ("SLAVE", set())])
def test_queues_of_topics_that_are_in_no_configuration_go(role: str, gone: set[str]) -> None:
    harness = make_harness({"brokerRole": role, "brokerId": "1" if role == "SLAVE" else "0"})
    harness.broker.tables.remember({("Lost", 0): (0, 5, 0)})
    harness.broker.tables.publish_remembered()
    harness.store.on_disk = {"TBW102", "wire-a", "Lost", "%LMQ%light", "rmq_sys_REVIVE_LOG_x", "SCHEDULE_TOPIC_XXXX"}
    assert harness.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert harness.broker.deletions.topics() == gone
    assert (harness.plane.topic_find("Lost") is None) == bool(gone)
    assert harness.plane.topic_find("wire-a") is not None


def test_attribute_rules() -> None:
    made = alter_attributes(None, parse_attributes("+message.type=FIFO,+queue.type=SimpleCQ"))
    assert made == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert alter_attributes(made, parse_attributes("-message.type,+reserve.time=5")) == {
        "queue.type": "SimpleCQ",
        "reserve.time": "5",
    }
    for current, text in [
        (None, "-message.type"),
        (made, "+queue.type=SimpleCQ"),
        (made, "-reserve.time"),
        (made, "+reserve.time=x"),
        (made, "+message.type=fifo"),
        (made, "message.type=FIFO"),
        (made, "+message.type=FIFO,-message.type"),
        (made, "+=1"),
        (made, "+message.type=FIFO,+message.type=DELAY"),
    ]:
        with pytest.raises(BadAttribute):
            alter_attributes(current, parse_attributes(text))
