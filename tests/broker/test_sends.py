"""Cold sends: what is refused, with which code and remark, and what goes back to the hot path."""

from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.broker.requests.request import REJECTED, Release, Run
from ringmq.broker.tables.topics import QUEUE_TYPE
from ringmq.ipc.admission import QueueFrom, Rule, RuleKind, RulePair, ValueFrom, When
from ringmq.ipc.asks import RedoRule
from ringmq.remoting.client_headers import SendMessageRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.properties import encode_properties
from ringmq.remoting.request_headers import encode_short_send_header
from tests.broker.fakes import START_MS, Harness, make_harness, peer


def ask(harness: Harness, topic: str = "T", body_length: int = 5, **fields: object) -> object:
    """Send as 310; `properties` may be a dict."""
    oneway = bool(fields.pop("oneway", False))
    version = fields.pop("version", 479)
    properties = fields.pop("properties", {})
    header = SendMessageRequestHeader(
        producer_group="P",
        topic=topic,
        default_topic=str(fields.pop("default_topic", "TBW102")),
        default_topic_queue_nums=int(str(fields.pop("queues", 4))),
        queue_id=int(str(fields.pop("queue_id", 0))),
        sys_flag=int(str(fields.pop("sys_flag", 0))),
        born_timestamp=1,
        flag=0,
        properties=properties if isinstance(properties, str) else encode_properties(properties),
        **fields,  # type: ignore[arg-type]
    )
    ext = encode_short_send_header(header)
    return harness.ask(RequestCode.SEND_MESSAGE_V2, ext, body_length=body_length, oneway=oneway, version=version)


def test_an_automatic_topic_is_made_and_the_frame_runs_again() -> None:
    harness = make_harness()
    assert isinstance(ask(harness, "Fresh", queues=3), Run)
    assert harness.plane.word("Fresh") == (6, 3, 3, 1)
    assert harness.broker.topics.dirty
    assert harness.broker.outbox.changed_topics >= {"Fresh"}


def test_the_template_bounds_the_number_of_queues() -> None:
    harness = make_harness({"defaultTopicQueueNums": "2"})
    assert isinstance(ask(harness, "Fresh", queues=16), Run)
    assert harness.plane.word("Fresh")[1:3] == (2, 2)


def test_automatic_creation_can_be_off() -> None:
    harness = make_harness({"autoCreateTopicEnable": "false"})
    answer = ask(harness, "Fresh")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST  # type: ignore[attr-defined]
    assert "Fresh" not in harness.broker.topics


def test_automatic_creation_can_be_switched_on_and_off() -> None:
    harness = make_harness({"autoCreateTopicEnable": "false", "defaultTopicQueueNums": "2"})
    for switched, topic in ((b"true", "One"), (b"false", "Two"), (b"true", "Three")):
        assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"autoCreateTopicEnable=" + switched).code == 0
        assert isinstance(ask(harness, topic), Run) == (switched == b"true")
    assert "TBW102" in harness.broker.outbox.changed_topics, "producers ask the name servers for it"
    assert harness.broker.topics.is_system("TBW102")
    assert harness.plane.word("One")[1:3] == (2, 2)


def test_a_template_without_inherit_makes_no_topic() -> None:
    harness = make_harness()
    harness.make_topic("Plain")
    assert ask(harness, "Fresh", default_topic="Plain").code == 17  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("properties", "code", "name"),
    [
        ({"TRAN_MSG": "true"}, 13, "TRAN_MSG"),
        ({"DELAY": "3"}, 13, "DELAY"),
        ({"DELAY": "x"}, 13, "DELAY"),
        ({"TIMER_DELAY_SEC": "3"}, 13, "TIMER_DELAY_SEC"),
        ({"TIMER_DELAY_MS": "3"}, 13, "TIMER_DELAY_MS"),
        ({"TIMER_DELIVER_MS": "3"}, 13, "TIMER_DELIVER_MS"),
        ({"INNER_NUM": "3"}, 13, "INNER_NUM"),
    ],
)
def test_messages_of_later_features_are_refused_by_name(properties: dict[str, str], code: int, name: str) -> None:
    harness = make_harness()
    harness.make_topic("T")
    answer = ask(harness, properties=properties)
    assert answer.code == code  # type: ignore[attr-defined]
    assert name in answer.remark  # type: ignore[attr-defined]
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}  # type: ignore[attr-defined]


DELAYED = Rule(
    RuleKind.REDIRECT,
    b"DELAY",
    When.POSITIVE,
    topic_id=1,
    queue_from=QueueFrom.LEVEL,
    queue_id=18,
    pairs=(RulePair(b"REAL_TOPIC", ValueFrom.TOPIC), RulePair(b"DELAY", ValueFrom.LEVEL)),
)
HALF = Rule(RuleKind.REDIRECT, transaction=4, topic_id=1)
NO_TIMERS = Rule(RuleKind.REFUSE, b"TIMER_DELAY_SEC", code=1, remark="no timers here")


@pytest.mark.parametrize(
    ("rules", "fields"),
    [
        ((DELAYED,), {"properties": {"DELAY": "3"}}),
        ((HALF, DELAYED), {"properties": {"DELAY": "3"}}),
        ((HALF, DELAYED), {"sys_flag": 4}),
        ((NO_TIMERS,), {"properties": {"TIMER_DELAY_SEC": "3"}}),
    ],
)
def test_a_send_with_a_published_rule_goes_on(rules: tuple[Rule, ...], fields: dict[str, object]) -> None:
    """Its topic may be new: the read worker applies the rule once control has made the topic."""
    harness = make_harness()
    assert ask(harness, "Fresh", **fields).code == 13  # type: ignore[attr-defined,arg-type]
    harness.plane.rules = rules
    assert isinstance(ask(harness, "Fresh", **fields), Run)  # type: ignore[arg-type]
    assert isinstance(ask(harness, "Newer", **fields), Run)  # type: ignore[arg-type]
    harness.plane.rules = ()
    assert ask(harness, "Newer", **fields).code == 13  # type: ignore[attr-defined,arg-type]


TIMER = Rule(RuleKind.TIMER, topic_id=1, precision_ms=1000, delay_max_ms=10_000, slot_messages_max=9)


@pytest.mark.parametrize(
    ("pairs", "code", "words"),
    [
        ({"TIMER_DELAY_SEC": "3"}, None, ""),
        ({"TIMER_DELAY_SEC": "0"}, None, ""),
        ({"TIMER_DELAY_SEC": "x"}, None, ""),
        ({"TIMER_DELAY_SEC": "3", "TIMER_OUT_MS": "1"}, None, ""),
        ({"TIMER_DELAY_SEC": "3"} | {f"TIMER_{n}": "1" for n in range(8)}, 13, "one of 9 properties for brokers"),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_times_go_to_the_rule_for_timers(pairs: dict[str, str], code: int | None, words: str, batch: bool) -> None:
    harness = make_harness()
    harness.plane.rules = (TIMER,)
    answer = ask(harness, "Fresh", properties=pairs, batch=batch)
    if code is None:
        assert isinstance(answer, Run)
    else:
        assert answer.code == code and words in answer.remark  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fields", "code", "name"),
    [
        ({"properties": {"DELAY": "x"}}, 13, "DELAY"),
        ({"properties": {"DELAY": "3", "TIMER_DELAY_MS": "9"}}, 13, "DELAY"),
        ({"properties": {"DELAY": "0", "TRAN_MSG": "true"}}, 13, "no topic RMQ_SYS_TRANS_HALF_TOPIC"),
        ({"properties": {"TRAN_MSG": "true"}, "batch": True}, 13, "in a batch"),
        ({"properties": {"TRAN_MSG": "true", "UNIQ_KEY": "ä" * 33}}, 13, "66 bytes, limit 64"),
        ({"properties": {"TRAN_MSG": "true", "DELAY": "x"}}, 13, "DELAY = x"),
        ({"properties": {"TRAN_MSG": "false"}, "sys_flag": 4}, 13, "sysFlag = 4"),
        ({"properties": {"DELAY": "3"}, "batch": True}, 13, "DELAY"),
        ({"properties": {"DELAY": "3"}, "sys_flag": 0x80}, 13, "DELAY"),
        ({"properties": {"DELAY": "3"}, "sys_flag": 4}, 13, "DELAY"),
    ],
)
def test_a_send_that_no_rule_covers_is_refused_as_without_rules(
    fields: dict[str, object], code: int, name: str
) -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.plane.rules = (DELAYED,)
    answer = ask(harness, **fields)  # type: ignore[arg-type]
    assert (answer.code, name in answer.remark) == (code, True)  # type: ignore[attr-defined]


def test_the_pairs_that_a_rule_adds_must_fit() -> None:
    """The read worker would send the frame to control again, as often as a frame may run again."""
    harness = make_harness()
    harness.make_topic("T")
    harness.plane.rules = (DELAYED,)

    def goes_on(level: str, size: int) -> bool:
        return isinstance(ask(harness, properties={"DELAY": level, "k": "v" * size}), Run)

    longest = max(size for size in range(32_500, 32_767) if goes_on("0", size))
    added = len(b"REAL_TOPIC\x01T\x02DELAY\x013\x02")
    assert not goes_on("3", longest - added + 1)
    assert goes_on("3", longest - added)


def test_a_timer_message_without_room_for_its_copies_is_refused() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.plane.rules = (replace(TIMER, room_bytes=83),)

    def ask_with(size: int) -> Any:
        return ask(harness, properties={"TIMER_DELAY_SEC": "3", "k": "v" * size})

    longest = max(size for size in range(32_300, 32_767) if isinstance(ask_with(size), Run))
    answer = ask_with(longest + 1)
    assert answer.code == 13 and "those that the broker adds until the delivery" in answer.remark
    harness.plane.rules = (TIMER,)
    assert isinstance(ask_with(longest + 83), Run) and ask_with(longest + 84).code == 13


def test_rules_are_read_only_for_a_send_that_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_harness()
    read: list[int] = []
    monkeypatch.setattr(harness.plane, "admission_rules", lambda: read.append(1) or ())
    assert isinstance(ask(harness, "Fresh", properties={"KEYS": "a", "DELAY": "0"}), Run)
    assert not read
    assert ask(harness, "Fresh", properties={"DELAY": "1"}).code == 13  # type: ignore[attr-defined]
    assert read


def test_a_rule_does_not_open_a_topic_of_batches() -> None:
    harness = make_harness()
    harness.broker.topics.put(TopicConfig("Inner", 1, 1, attributes={QUEUE_TYPE: "BatchCQ"}), START_MS)
    harness.plane.rules = (DELAYED,)
    assert ask(harness, "Inner", properties={"DELAY": "3"}).code == 29  # type: ignore[attr-defined]


@pytest.mark.parametrize("properties", [{"DELAY": "0"}, {"TRAN_MSG": "false"}, {"KEYS": "a b", "WAIT": "false"}])
def test_harmless_properties_go_on(properties: dict[str, str]) -> None:
    harness = make_harness()
    harness.make_topic("T")
    assert isinstance(ask(harness, properties=properties), Run)


@pytest.mark.parametrize(
    ("sys_flag", "batch", "code"), [(0x4, None, 13), (0x8, None, 13), (0x8, True, 13), (0x80, None, 13)]
)
def test_sys_flags_of_brokers_are_refused(sys_flag: int, batch: bool | None, code: int) -> None:
    harness = make_harness()
    harness.make_topic("T")
    answer = ask(harness, sys_flag=sys_flag, batch=batch)
    assert answer.code == code  # type: ignore[attr-defined]
    assert f"sysFlag = {sys_flag}" in answer.remark  # type: ignore[attr-defined]


def test_batch_queue_topics_cannot_be_written() -> None:
    harness = make_harness()
    config = TopicConfig("Inner", 1, 1, attributes={QUEUE_TYPE: "BatchCQ"})
    harness.broker.topics.put(config, START_MS)
    answer = ask(harness, "Inner")
    assert answer.code == 29  # type: ignore[attr-defined]
    assert "queue.type = BatchCQ" in answer.remark  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body_length", "properties", "wanted"),
    [
        (4_194_305, {}, ["body: 4194305 bytes", "4194304"]),
        (5, "k\x01" + "v" * 32_766 + "\x02", ["properties: 32769 bytes", "32767"]),
        (5, "k\x01" + "v" * 32_700 + "\x02", ["with the broker's own", "32767"]),
        (5, "k\x01a\x00b\x02", ["NUL"]),
    ],
)
def test_sizes_are_refused_with_field_and_limit(body_length: int, properties: object, wanted: list[str]) -> None:
    harness = make_harness()
    harness.make_topic("T")
    answer = ask(harness, body_length=body_length, properties=properties)
    assert answer.code == 13  # type: ignore[attr-defined]
    assert all(text in answer.remark for text in wanted), answer.remark  # type: ignore[attr-defined]


def test_an_empty_body_is_an_error_of_stocks_code() -> None:
    harness = make_harness()
    harness.make_topic("T")
    assert ask(harness, body_length=0).code == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("topic", "code"),
    [("", 29), ("a b", 29), ("x" * 128, 29), ("%RETRY%" + "x" * 121, 29), ("SCHEDULE_TOPIC_XXXX", 16), ("T/..", 29)],
)
def test_topic_names(topic: str, code: int) -> None:
    assert ask(make_harness(), topic).code == code  # type: ignore[attr-defined]


def test_queue_ids_are_bounded_by_the_larger_number() -> None:
    harness = make_harness()
    harness.broker.topics.put(TopicConfig("T", 4, 2), START_MS)
    assert isinstance(ask(harness, queue_id=3), Run)
    answer = ask(harness, queue_id=4)
    assert answer.code == 29  # type: ignore[attr-defined]
    assert "queueId[4]" in answer.remark  # type: ignore[attr-defined]
    assert "writeQueueNums=2" in answer.remark  # type: ignore[attr-defined]
    harness.broker.topics.put(TopicConfig("T", 4, 0), START_MS)
    assert ask(harness, queue_id=-1).code == 1  # type: ignore[attr-defined]


def is_dead(answer: object) -> bool:
    assert isinstance(answer, Run)
    return answer.rule is RedoRule.DEAD_LETTER


def test_a_retry_over_the_limit_is_a_dead_letter() -> None:
    harness = make_harness()
    assert not is_dead(ask(harness, "%RETRY%G", reconsume_times=16))
    assert "G" in harness.broker.groups and "%DLQ%G" not in harness.broker.topics
    assert is_dead(ask(harness, "%RETRY%G", reconsume_times=17))
    config = harness.broker.topics.get("%DLQ%G")
    assert config is not None and (config.write_queue_nums, config.perm) == (1, 6)
    assert not is_dead(ask(harness, "%RETRY%G", reconsume_times=17, max_reconsume_times=20))
    assert is_dead(ask(harness, "%RETRY%G", reconsume_times=17, max_reconsume_times=20, version=100))


def test_a_retry_of_a_group_with_a_queue_lock_is_a_dead_letter() -> None:
    harness = make_harness()
    assert not is_dead(ask(harness, "%RETRY%G"))
    harness.broker.locks.lock("G", "c", MessageQueue("T", "b", 0), peer(1), START_MS)
    assert is_dead(ask(harness, "%RETRY%G"))


def test_a_retry_topic_without_its_group() -> None:
    harness = make_harness({"autoCreateSubscriptionGroup": "false"})
    assert ask(harness, "%RETRY%G").code == 26  # type: ignore[attr-defined]


def test_batches_to_retry_topics_are_refused() -> None:
    assert ask(make_harness(), "%RETRY%G", batch=True).code == 13  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "topic", ["rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "%LMQ%x", "SCHEDULE_TOPIC_XXXX"]
)
def test_topics_whose_messages_would_keep_the_next_start_from_the_store_take_none(topic: str) -> None:
    """The survey of a take-over counts what stands in them, whoever has sent it."""
    harness = make_harness()
    assert ask(harness, topic).code == 16  # type: ignore[attr-defined]
    known = harness.broker.topics.get(topic)
    assert known is None or harness.plane.word(topic)[3] & 2, "sends go through control"


def test_compaction_topics_need_keys() -> None:
    harness = make_harness()
    harness.broker.topics.put(TopicConfig("C", 1, 1, attributes={"cleanup.policy": "COMPACTION"}), START_MS)
    assert "KEYS" in ask(harness, "C").remark  # type: ignore[attr-defined]
    assert isinstance(ask(harness, "C", properties={"KEYS": "k"}), Run)


def test_before_the_start_time_nothing_is_accepted() -> None:
    harness = make_harness({"startAcceptSendRequestTimeStamp": str(START_MS + 1000)})
    harness.make_topic("T")
    assert harness.plane.word("T")[3] & 2, "sends go through control"
    assert ask(harness).code == 1  # type: ignore[attr-defined]
    harness.broker.on_tick(START_MS + 1000)
    assert not harness.plane.word("T")[3] & 2
    harness.now_ms = START_MS + 1000
    assert isinstance(ask(harness), Run)


def test_a_broker_that_is_not_writable_publishes_its_topics_once(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
    assert harness.plane.word("T")[3] & 2
    published: list[int] = []
    monkeypatch.setattr(harness.plane, "topic_set", lambda topic_id, config: published.append(topic_id))
    for tick in range(8):
        harness.broker.on_tick(START_MS + 250 * tick)
    assert published == [], "each tick would publish every topic"
    monkeypatch.undo()
    harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")
    assert not harness.plane.word("T")[3] & 2


def test_order_topics_of_a_broker_that_is_not_writable() -> None:
    harness = make_harness({"brokerPermission": "4"})
    harness.broker.topics.put(TopicConfig("O", 1, 1, order=True), START_MS)
    harness.broker.topics.put(TopicConfig("T", 1, 1), START_MS)
    assert ask(harness, "O").code == 16  # type: ignore[attr-defined]
    assert isinstance(ask(harness, "T"), Run)


def test_a_full_table_is_named() -> None:
    harness = make_harness()
    before = len(harness.plane.topics)
    harness.plane.header.tables.queue_capacity = len(harness.plane.queues) + 2
    answer = ask(harness, "Fresh", queues=4)
    assert answer.code == 1  # type: ignore[attr-defined]
    assert "needs 4 more queues, there is room for 2" in answer.remark  # type: ignore[attr-defined]
    assert len(harness.plane.topics) == before, "a refused topic costs no entry"
    assert harness.plane.topic_find("Fresh") is None
    assert "Fresh" not in harness.broker.topics


def test_missing_and_wrong_fields_are_named() -> None:
    harness = make_harness()
    answer = harness.ask(RequestCode.SEND_MESSAGE_V2, {"a": "P"}, body_length=1)
    assert answer.code == 1
    assert "required field b" in answer.remark
    answer = harness.ask(
        RequestCode.SEND_MESSAGE, {"producerGroup": "P", "topic": "T", "defaultTopic": "x"}, body_length=1
    )
    assert "defaultTopicQueueNums" in answer.remark


def test_oneway_refusals_are_silent() -> None:
    assert isinstance(ask(make_harness(), "bad name", oneway=True), Release)


def test_control_of_a_slave_answers_what_services_answer() -> None:
    harness = make_harness({"brokerRole": "SLAVE", "brokerId": "1"})
    answer = harness.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)
    assert harness.ask(RequestCode.STAGED_WRITES, {}).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert harness.ask(RequestCode.END_TRANSACTION, {}).code == ResponseCode.SLAVE_NOT_AVAILABLE
    answer = harness.ask(RequestCode.RECALL_MESSAGE, {})
    assert (answer.code, "recallMessageEnable" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)
    harness = make_harness({"brokerRole": "SLAVE", "brokerId": "1", "recallMessageEnable": "true"})
    assert harness.ask(RequestCode.RECALL_MESSAGE, {}).code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_a_slave_takes_no_sends_and_makes_no_topics() -> None:
    harness = make_harness({"brokerRole": "SLAVE", "brokerId": "1"})
    answer = ask(harness, "Fresh")
    assert isinstance(answer, RemotingCommand)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)
    assert "Fresh" not in harness.broker.topics
