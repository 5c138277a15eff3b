"""Control's admission rules: made from configuration and system topics, published when they change."""

from dataclasses import replace

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables.admission import AdmissionRules, delay_rules, half_rules, timer_rules
from ringmq.ipc.admission import QueueFrom, Rule, RuleKind, ValueFrom, When, rules_struct
from ringmq.ipc.admission_twin import Limits, Send, TopicState, Verdict, added_pairs, admit
from ringmq.remoting.codes import ResponseCode
from tests.broker.fakes import FakePlane

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LIVE = 1 << 40
LIMITS = Limits(1 << 20, 60, 66)
TOPIC = TopicState(live=True, send_cold=False, read_queues=4, write_queues=4)


def plane_with_schedule() -> FakePlane:
    plane = FakePlane()
    plane.topic_add("Other", LIVE)
    plane.topic_add(SCHEDULE, LIVE)
    return plane


def test_rules_follow_configuration_and_topics() -> None:
    plane, live = plane_with_schedule(), LiveConfig(BrokerConfig())
    rules = AdmissionRules(plane, live, (delay_rules,))
    rules.publish()
    [rule] = plane.rules
    assert (rule.kind, rule.name, rule.when, rule.queue_from) == (
        RuleKind.REDIRECT, b"DELAY", When.POSITIVE, QueueFrom.LEVEL,
    )  # fmt: skip
    assert (rule.topic_id, rule.queue_id) == (plane.topic_find(SCHEDULE), 18)
    live.config = replace(live.config, message_delay_level="1s 2s 3s")
    rules.publish()
    assert plane.rules[0].queue_id == 3
    plane.topic_set(rule.topic_id, 0)
    made_again = plane.topic_add(SCHEDULE, LIVE)
    rules.publish()
    assert plane.rules[0].topic_id == made_again


def test_nothing_is_published_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = plane_with_schedule()
    rules = AdmissionRules(plane, LiveConfig(BrokerConfig()), (delay_rules, timer_rules))
    rules.publish()
    published: list[tuple[Rule, ...]] = []
    monkeypatch.setattr(plane, "admission_publish", published.append)
    rules.publish()
    assert published == []


def test_a_slave_has_no_rules() -> None:
    plane, live = plane_with_schedule(), LiveConfig(replace(BrokerConfig(), broker_role="SLAVE"))
    AdmissionRules(plane, live, (delay_rules, timer_rules)).publish()
    assert plane.rules == ()


def test_no_rule_without_the_schedule_topic() -> None:
    assert delay_rules(BrokerConfig(), FakePlane().topic_find) == ()


@pytest.mark.parametrize(
    ("pairs", "verdict", "level"),
    [
        (b"DELAY\x013\x02", Verdict.REDIRECT, 3),
        (b"DELAY\x0199\x02", Verdict.REDIRECT, 18),
        (b"DELAY\x010\x02", Verdict.PLAIN, 0),
        (b"DELAY\x01-1\x02", Verdict.PLAIN, 0),
        (b"DELAY\x01x\x02", Verdict.ASK, 0),
        (
            b"DELAY\x012\x02TIMER_DELAY_MS\x015\x02TIMER_DELIVER_MS\x016\x02TIMER_DELAY_SEC\x017\x02",
            Verdict.REDIRECT,
            2,
        ),
        (b"TIMER_DELAY_MS\x015\x02", Verdict.REFUSE, 0),
    ],
)
def test_sends_under_the_rules(pairs: bytes, verdict: Verdict, level: int) -> None:
    plane = plane_with_schedule()
    rules = (*delay_rules(BrokerConfig(), plane.topic_find), *timer_rules(BrokerConfig(), plane.topic_find))
    rules_struct(rules)
    admitted = admit(Send(b"T", 2, 0, False, 5, pairs + b"UNIQ_KEY\x01A\x02"), LIMITS, TOPIC, rules)
    assert (admitted.verdict, admitted.level) == (verdict, level)
    if verdict is Verdict.REDIRECT:
        assert admitted.queue_id == level - 1
        added = added_pairs(rules[0], b"T", 2, level, b"A")
        assert added == b"REAL_TOPIC\x01T\x02REAL_QID\x012\x02DELAY\x01%d\x02" % level
    if verdict is Verdict.REFUSE:
        assert rules[admitted.rule].code == ResponseCode.MESSAGE_ILLEGAL


def plane_with_system_topics() -> FakePlane:
    plane = plane_with_schedule()
    plane.topic_add("RMQ_SYS_TRANS_HALF_TOPIC", LIVE)
    return plane


@pytest.mark.parametrize(
    ("pairs", "fields", "outcome"),
    [
        (b"TRAN_MSG\x01true\x02", {}, "half"),
        (b"TRAN_MSG\x01True\x02DELAY\x010\x02", {"sys_flag": 4}, "half"),
        (b"TRAN_MSG\x01true\x02", {"reconsume_times": 2}, "half"),
        (b"TRAN_MSG\x01false\x02", {}, "plain"),
        (b"TRAN_MSG\x01no\x02DELAY\x012\x02", {"reconsume_times": 2}, "delayed"),
        (b"TRAN_MSG\x01true\x02DELAY\x012\x02", {"reconsume_times": 2, "sys_flag": 4}, "delayed"),
        (b"TRAN_MSG\x01true\x02DELAY\x012\x02", {}, "DELAY: a half message cannot be delayed"),
        (b"TRAN_MSG\x01true\x02TIMER_DELAY_MS\x012\x02", {}, "TIMER_DELAY_MS: a half message cannot be delayed"),
        (b"TIMER_DELAY_MS\x012\x02", {}, "TIMER_DELAY_MS: timer messages are not supported yet"),
    ],
)
def test_half_messages_under_the_rules(pairs: bytes, fields: dict[str, int], outcome: str) -> None:
    plane = plane_with_system_topics()
    rules = tuple(
        rule for make in (half_rules, delay_rules, timer_rules) for rule in make(BrokerConfig(), plane.topic_find)
    )
    rules_struct(rules)
    send = replace(Send(b"T", 2, 0, False, 5, pairs + b"UNIQ_KEY\x01A\x02"), **fields)
    admitted = admit(send, LIMITS, TOPIC, rules)
    rule = rules[admitted.rule]
    if admitted.verdict is Verdict.REFUSE:
        assert (rule.code, rule.remark) == (ResponseCode.MESSAGE_ILLEGAL, outcome)
    elif admitted.verdict is Verdict.PLAIN:
        assert outcome == "plain"
    else:
        topics = {plane.topic_find("RMQ_SYS_TRANS_HALF_TOPIC"): "half", plane.topic_find(SCHEDULE): "delayed"}
        assert topics[rule.topic_id] == outcome
        assert rule.sys_flag_clear == 0xC or not fields.get("sys_flag")
        added = added_pairs(rule, b"T", 2, 2, b"A")
        last = b"__transactionId__\x01A\x02" if outcome == "half" else b"DELAY\x012\x02"
        assert added == b"REAL_TOPIC\x01T\x02REAL_QID\x012\x02" + last


def test_counters_of_checks_are_cut_from_half_messages() -> None:
    *_, redirect = half_rules(BrokerConfig(), plane_with_system_topics().topic_find)
    cut = {pair.name for pair in redirect.pairs if pair.value_from is ValueFrom.CUT}
    assert cut == {b"TRANSACTION_CHECK_TIMES", b"TRAN_PREPARED_QUEUE_OFFSET"}


def test_half_messages_can_be_rejected() -> None:
    """As stock: a retried message with a delay level is none, so it is still delayed."""
    plane, live = plane_with_system_topics(), LiveConfig(replace(BrokerConfig(), reject_transaction_message=True))
    rules = AdmissionRules(plane, live)
    rules.publish()
    send = Send(b"T", 2, 4, False, 5, b"TRAN_MSG\x01true\x02UNIQ_KEY\x01A\x02")
    admitted = admit(send, LIMITS, TOPIC, plane.rules)
    rule = plane.rules[admitted.rule]
    assert (admitted.verdict, rule.code) == (Verdict.REFUSE, ResponseCode.NO_PERMISSION)
    assert rule.remark == "the broker[broker-a] sending transaction message is forbidden"
    retried = replace(send, properties=send.properties + b"DELAY\x012\x02", reconsume_times=1)
    assert admit(retried, LIMITS, TOPIC, plane.rules).level == 2
    live.config = replace(live.config, reject_transaction_message=False)
    rules.publish()
    assert admit(send, LIMITS, TOPIC, plane.rules).verdict is Verdict.REDIRECT
