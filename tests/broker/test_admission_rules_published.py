"""Control's admission rules: made from configuration and system topics, published when they change."""

from dataclasses import replace

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables.admission import AdmissionRules, delay_rules, timer_rules
from ringmq.ipc.admission import QueueFrom, Rule, RuleKind, When, rules_struct
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
        (b"DELAY\x012\x02TRAN_MSG\x01true\x02", Verdict.ASK, 0),
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
