"""Control's admission rules: made from configuration and system topics, published when they change."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables import admission
from ringmq.broker.tables.admission import AdmissionRules, features
from ringmq.ipc.admission import QueueFrom, Rule, RuleKind, ValueFrom, When, rules_struct
from ringmq.ipc.admission_time import TimeAsked
from ringmq.ipc.admission_twin import Admitted, Limits, Reason, Send, TopicState, Verdict, added_pairs, admit
from ringmq.ipc.guests import guests
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.remoting.codes import ResponseCode
from ringmq.services.delay.admission import delay_rules
from ringmq.services.transactions.admission import half_rules, other_halves
from ringmq.store.record_copy import PROPERTIES_BYTES_MAX, EditKind, PairEdit
from ringmq.timer.admission import timed_halves, timer_rules
from ringmq.timer.publisher import copy_templates
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
    plane = plane_with_schedule()
    live = LiveConfig(BrokerConfig(), plane.watermarks)
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
    rules = AdmissionRules(plane, LiveConfig(BrokerConfig(), plane.watermarks), (delay_rules, timer_rules))
    rules.publish()
    published: list[tuple[Rule, ...]] = []
    monkeypatch.setattr(plane, "admission_publish", published.append)
    rules.publish()
    assert published == []


@pytest.mark.parametrize("state", TenureState)
def test_a_broker_that_follows_a_master_has_no_rules(state: TenureState) -> None:
    plane = plane_with_schedule()
    plane.watermarks.tenure = Tenure(state, epoch=7).word
    AdmissionRules(plane, LiveConfig(BrokerConfig(), plane.watermarks), (delay_rules,)).publish()
    assert bool(plane.rules) == (state in (TenureState.MASTER, TenureState.YIELDING))


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
    ],
)
def test_sends_under_the_rules(pairs: bytes, verdict: Verdict, level: int) -> None:
    plane = plane_with_timer_topic()
    rules = (*delay_rules(BrokerConfig(), plane.topic_find), *timer_rules(BrokerConfig(), plane.topic_find))
    rules_struct(rules)
    admitted = admit(Send(b"T", 2, 0, False, 5, pairs + b"UNIQ_KEY\x01A\x02"), LIMITS, TOPIC, rules)
    assert (admitted.verdict, admitted.level) == (verdict, level)
    if verdict is Verdict.REDIRECT:
        assert admitted.queue_id == level - 1
        added = added_pairs(rules[0], b"T", 2, level, b"A")
        assert added == b"REAL_TOPIC\x01T\x02REAL_QID\x012\x02DELAY\x01%d\x02" % level


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
    ],
)
def test_half_messages_under_the_rules(pairs: bytes, fields: dict[str, int], outcome: str) -> None:
    plane = plane_with_system_topics()
    rules = tuple(rule for make in features() for rule in make(BrokerConfig(), plane.topic_find))
    rules_struct(rules)
    send = structs.replace(Send(b"T", 2, 0, False, 5, pairs + b"UNIQ_KEY\x01A\x02"), **fields)
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


ALL_TIMERS = features()
NOW = 1_795_208_563_180
OUT = 1_795_208_568_000


def plane_with_timer_topic() -> FakePlane:
    plane = plane_with_system_topics()
    plane.topic_add("rmq_sys_wheel_timer", LIVE)
    return plane


@pytest.mark.parametrize(
    ("pairs", "fields", "outcome"),
    [
        (b"TIMER_DELAY_SEC\x015\x02", {}, "timer"),
        (b"TIMER_DELAY_SEC\x015\x02", {"batch": True}, "timer"),
        (b"TIMER_DELAY_SEC\x010\x02", {}, "plain"),
        (b"TIMER_DELAY_SEC\x015\x02TIMER_OUT_MS\x011\x02", {}, "plain"),
        (b"TIMER_DELAY_SEC\x015\x02DELAY\x012\x02", {}, "delayed"),
        (b"TIMER_DELAY_SEC\x015\x02TRAN_MSG\x01true\x02", {"sys_flag": 4}, "timed half"),
        (b"TIMER_DELAY_SEC\x010\x02TRAN_MSG\x01true\x02", {"sys_flag": 4}, "half"),
        (b"TIMER_DELAY_SEC\x015\x02TRAN_MSG\x01true\x02DELAY\x012\x02", {"reconsume_times": 1}, "delayed"),
        (b"TIMER_DELAY_SEC\x01x\x02TRAN_MSG\x01true\x02", {}, "fault"),
        (b"TIMER_DELAY_SEC\x01x\x02", {}, "fault"),
    ],
)
def test_timers_under_the_rules(pairs: bytes, fields: dict[str, Any], outcome: str) -> None:
    plane = plane_with_timer_topic()
    live = LiveConfig(BrokerConfig(), plane.watermarks)
    AdmissionRules(plane, live, ALL_TIMERS).publish()
    rules_struct(plane.rules)
    send = structs.replace(Send(b"T", 2, 0, False, 5, pairs + b"UNIQ_KEY\x01A\x02"), **fields)
    admitted = admit(send, LIMITS, TOPIC, plane.rules, now_ms=NOW)
    rule = plane.rules[admitted.rule]
    wheel = plane.topic_find("rmq_sys_wheel_timer")
    if outcome in ("plain", "fault"):
        assert admitted.verdict is (Verdict.PLAIN if outcome == "plain" else Verdict.REFUSE)
        assert bool(admitted.time_fault) == (outcome == "fault")
    elif outcome in ("half", "delayed"):
        assert admitted.verdict is Verdict.REDIRECT and rule.topic_id != wheel and not admitted.out_ms
    else:
        assert admitted.verdict is Verdict.REDIRECT
        assert (rule.topic_id, admitted.queue_id, admitted.out_ms) == (wheel, 0, OUT)
        half = outcome == "timed half"
        real = (b"RMQ_SYS_TRANS_HALF_TOPIC", 0) if half else (b"T", 2)
        more = b"__transactionId__\x01A\x02" if half else b""
        assert added_pairs(rule, b"T", 2, 0, b"A", OUT) == (
            b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02%bTIMER_OUT_MS\x01%d\x02" % (*real, more, OUT)
        )
        assert rule.recall_topic_id == (plane.topic_find("RMQ_SYS_TRANS_HALF_TOPIC") if half else 0)


@pytest.mark.parametrize(
    ("changed", "sec", "fault"),
    [
        ({"timer_wheel_enable": False}, 5, TimeAsked.DISABLED),
        ({"timer_max_delay_sec": 4}, 5, TimeAsked.TOO_FAR),
        ({"timer_max_delay_sec": 86_400 * 40}, 86_400 * 40, TimeAsked.NONE),
        ({"timer_precision_ms": 100}, 5, TimeAsked.NONE),
    ],
)
def test_timers_follow_the_configuration(changed: dict[str, Any], sec: int, fault: TimeAsked) -> None:
    plane = plane_with_timer_topic()
    live = LiveConfig(BrokerConfig(), plane.watermarks)
    rules = AdmissionRules(plane, live, ALL_TIMERS)
    rules.publish()
    live.config = replace(live.config, **changed)
    rules.publish()
    send = Send(b"T", 2, 0, False, 5, b"TIMER_DELAY_SEC\x01%d\x02" % sec)
    admitted = admit(send, LIMITS, TOPIC, plane.rules, now_ms=NOW)
    assert admitted.time_fault == fault
    precision = live.config.timer_precision_ms
    if fault is TimeAsked.NONE:
        assert admitted.out_ms == (NOW + sec * 1000 - 1) // precision * precision


def test_full_slots_follow_the_configuration() -> None:
    config = replace(BrokerConfig(), timer_congest_num_each_slot=7)
    [rule] = timer_rules(config, plane_with_timer_topic().topic_find)
    assert rule.slot_messages_max == 7
    assert timer_rules(config, plane_with_system_topics().topic_find) == ()


DIGITS = {EditKind.SET: 20, EditKind.ADD: 10}
"""Of the longest numbers that edits of copies store."""


def of_length(pairs: bytes, length: int) -> Send:
    return Send(b"T", 2, 0, False, 5, pairs + b"k\x01" + b"v" * (length - len(pairs) - 3) + b"\x02")


@pytest.mark.parametrize(
    ("pairs", "edits"),
    [
        (b"TIMER_DELAY_SEC\x0120\x02", copy_templates()[0].edits),
        (b"TRAN_MSG\x01true\x02", ()),
        (b"TRAN_MSG\x01true\x02TIMER_DELAY_SEC\x0120\x02", copy_templates()[0].edits),
        (b"DELAY\x013\x02", ()),
    ],
)
def test_a_message_that_waits_leaves_room_for_the_pairs_of_its_copies(
    pairs: bytes, edits: tuple[PairEdit, ...]
) -> None:
    find = plane_with_timer_topic().topic_find
    rules = tuple(rule for make in features() for rule in make(BrokerConfig(), find))

    def admitted(length: int) -> Admitted:
        return admit(of_length(pairs, length), LIMITS, TOPIC, rules, now_ms=NOW)

    longest = next(length for length in range(32_767, 0, -1) if admitted(length).verdict is Verdict.REDIRECT)
    assert admitted(longest + 1).reason is Reason.PROPERTIES
    found = admitted(longest)
    added = added_pairs(rules[found.rule], b"T", 2, found.level, b"k" * 56, found.out_ms)
    stored = longest + 1 + LIMITS.made_key_length + LIMITS.additions_length + len(added)
    grown = sum(len(edit.name) + 2 + DIGITS[edit.kind] for edit in edits if edit.kind is not EditKind.REMOVE)
    assert stored + grown == PROPERTIES_BYTES_MAX, "and no byte more is refused than copies need"


def test_counters_of_checks_are_cut_from_half_messages() -> None:
    *_, redirect = half_rules(BrokerConfig(), plane_with_system_topics().topic_find)
    cut = {pair.name for pair in redirect.pairs if pair.value_from is ValueFrom.CUT}
    assert cut == {b"TRANSACTION_CHECK_TIMES", b"TRAN_PREPARED_QUEUE_OFFSET"}


def test_counts_of_rolls_are_cut_from_timer_messages() -> None:
    """In a rebuild such a message would pass for the rolled copy of another one."""
    rules = [*timer_rules(BrokerConfig(), plane_with_timer_topic().topic_find)]
    rules += timed_halves(BrokerConfig(), plane_with_timer_topic().topic_find)
    cut = [{pair.name for pair in rule.pairs if pair.value_from is ValueFrom.CUT} for rule in rules]
    assert len(cut) == 2 and all(b"TIMER_ROLL_TIMES" in names for names in cut)


def test_half_messages_can_be_rejected() -> None:
    """As stock: a retried message with a delay level is none, so it is still delayed."""
    plane = plane_with_system_topics()
    live = LiveConfig(replace(BrokerConfig(), reject_transaction_message=True), plane.watermarks)
    rules = AdmissionRules(plane, live)
    rules.publish()
    send = Send(b"T", 2, 4, False, 5, b"TRAN_MSG\x01true\x02UNIQ_KEY\x01A\x02")
    admitted = admit(send, LIMITS, TOPIC, plane.rules)
    rule = plane.rules[admitted.rule]
    assert (admitted.verdict, rule.code) == (Verdict.REFUSE, ResponseCode.NO_PERMISSION)
    assert rule.remark == "the broker[broker-a] sending transaction message is forbidden"
    retried = structs.replace(send, properties=send.properties + b"DELAY\x012\x02", reconsume_times=1)
    assert admit(retried, LIMITS, TOPIC, plane.rules).level == 2
    live.config = replace(live.config, reject_transaction_message=False)
    rules.publish()
    assert admit(send, LIMITS, TOPIC, plane.rules).verdict is Verdict.REDIRECT


def test_rules_of_a_guest_that_is_not_there_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others keep their order: a half message is refused or redirected before its delay level counts."""
    others = [guest for guest in guests() if guest.name != "timer"]
    monkeypatch.setattr(admission, "guests", lambda: others[::-1])
    assert features() == (other_halves, half_rules, delay_rules)
