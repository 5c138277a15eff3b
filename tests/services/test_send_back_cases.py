"""The table of cases of a send-back: every case once, and its order where two apply."""

import pytest
from msgspec.structs import replace

from ringmq.ipc.admission import QueueFrom, Rule, RuleKind, RulePair, ValueFrom, When
from ringmq.ipc.plain_requests import fill_record
from ringmq.native import ffi
from ringmq.remoting.codes import ResponseCode
from ringmq.services.redirects import delay_rule, redirect
from ringmq.services.send_back.cases import (
    CASES,
    Make,
    Outcome,
    Refuse,
    RetryTopic,
    Seen,
    SendBack,
    Source,
    Store,
    StoreNothing,
    decide,
)
from ringmq.services.send_back.rows import TABLE, asked_of_row
from ringmq.services.topics import NO_LIMIT, GroupRetry
from ringmq.store.record_copy import EditKind, PairEdit

ASKED = SendBack("G", 100)
SEEN = Seen("10.0.0.1", True, GroupRetry(2, 16), RetryTopic(True), False, Source(0))
BOTH = frozenset((Make(dead=False), Make(dead=True)))
LONG = "g" * 123
NEW = replace(SEEN, group=None, retry_topic=None, group_may_be_made=True)
NO_GROUP = Refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group not exist, G ")


def retry(level: int) -> Store:
    return Store("%RETRY%G", level, 2)


DEAD = Store("%DLQ%G", 0, 1, is_dead=True)
ROWS: list[tuple[str, SendBack, Seen, Outcome]] = [
    ("no group", ASKED, replace(SEEN, group=None, broker_writable=False), NO_GROUP),
    ("no group", ASKED, replace(SEEN, group=None, asked=BOTH, group_may_be_made=True), NO_GROUP),
    ("the broker is not writable", ASKED, replace(NEW, broker_writable=False), Refuse(16, "the broker[10.0.0.1]")),
    ("the broker is not writable", ASKED, replace(SEEN, broker_writable=False, group=GroupRetry(0, 16)),
     Refuse(ResponseCode.NO_PERMISSION, "the broker[10.0.0.1] sending message is forbidden")),
    ("no retry queues", ASKED, replace(SEEN, group=GroupRetry(0, 16), retry_topic=None), StoreNothing()),
    ("no record", ASKED, replace(NEW, source=None), Refuse(1, "look message by offset failed, 100")),
    ("no record", ASKED, replace(SEEN, retry_topic=None, source=None), Refuse(1, "look message by offset failed, 100")),
    ("the topic's name is too long", replace(ASKED, group=LONG, delay_level=-1), NEW, Refuse(1, "MESSAGE_ILLEGAL")),
    ("what is missing may be made", ASKED, NEW, Make(dead=False)),
    ("what is missing may be made", ASKED, replace(NEW, source=Source(16)), Make(dead=True)),
    ("what is missing may be made", ASKED, replace(SEEN, retry_topic=None), Make(dead=False)),
    ("what is missing may be made", replace(ASKED, delay_level=-1), replace(SEEN, retry_topic=None), Make(dead=True)),
    ("no retry topic", ASKED, replace(SEEN, retry_topic=None, asked=BOTH), Refuse(1, "topic[%RETRY%G] not exist")),
    ("the retry topic is not writable", ASKED, replace(SEEN, retry_topic=RetryTopic(False), source=None),
     Refuse(16, "the topic[%RETRY%G] sending message is forbidden")),
    ("no record", ASKED, replace(SEEN, source=None), Refuse(1, "look message by offset failed, 100")),
    ("the topic's name is too long", replace(ASKED, group=LONG, delay_level=-1), SEEN, Refuse(1, "MESSAGE_ILLEGAL")),
    ("the topic's name is too long", replace(ASKED, group="g" * 249), SEEN, Refuse(1, "MESSAGE_ILLEGAL")),
    ("a retry", ASKED, SEEN, retry(3)),
    ("a retry", replace(ASKED, group=LONG), SEEN, Store("%RETRY%" + LONG, 3, 2)),
    ("a retry", replace(ASKED, delay_level=7), SEEN, retry(7)),
    ("a retry", ASKED, replace(SEEN, source=Source(15)), retry(18)),
    ("a retry", ASKED, replace(SEEN, source=Source(15), group=GroupRetry(2, NO_LIMIT)), retry(18)),
    ("a retry", replace(ASKED, times_max=20), replace(SEEN, source=Source(16)), retry(19)),
    ("a retry", ASKED, replace(SEEN, source=Source(-4)), retry(-1)),
    ("a retry", replace(ASKED, times_max=(1 << 31) - 1),
     replace(SEEN, source=Source((1 << 31) - 2)), retry(-(1 << 31) + 1)),
    ("what is missing may be made", replace(ASKED, delay_level=-1), SEEN, Make(dead=True)),
    ("no dead letter topic", replace(ASKED, delay_level=-1), replace(SEEN, asked=BOTH),
     Refuse(1, "topic[%DLQ%G] not exist")),
    ("a dead letter", replace(ASKED, delay_level=-1), replace(SEEN, has_dead_letter_topic=True), DEAD),
    ("a dead letter", ASKED, replace(SEEN, source=Source(16), has_dead_letter_topic=True), DEAD),
    ("a dead letter", replace(ASKED, times_max=0, delay_level=5), replace(SEEN, has_dead_letter_topic=True), DEAD),
    ("a dead letter", replace(ASKED, times_max=-1), replace(SEEN, has_dead_letter_topic=True), DEAD),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked", "seen", "outcome"), ROWS)
def test_a_case(name: str, asked: SendBack, seen: Seen, outcome: Outcome) -> None:
    assert next(case.name for case in CASES if case.applies(asked, seen)) == name
    found = decide(asked, seen)
    if isinstance(outcome, Refuse):
        assert isinstance(found, Refuse) and found.code == outcome.code and found.remark.startswith(outcome.remark)
    else:
        assert found == outcome


def test_every_case_has_a_row() -> None:
    assert {name for name, *_ in ROWS} == {case.name for case in CASES}


@pytest.mark.parametrize(("version", "times_max"), [(-1, None), (0, None), (120, None), (121, 16), (485, 16)])
def test_the_version_decides_about_the_limit_of_a_request(version: int, times_max: int | None) -> None:
    fields = {"offset": "1", "group": "G", "delayLevel": "0", "maxReconsumeTimes": "16"}
    row = ffi.new("struct rmq_send_back *")
    fill_record(row, TABLE.decode(fields, version))
    assert asked_of_row(row).times_max == times_max


def test_a_delayed_copy_follows_the_rule_of_delayed_sends() -> None:
    rule = Rule(
        RuleKind.REDIRECT, b"DELAY", When.POSITIVE, topic_id=9, queue_from=QueueFrom.LEVEL, queue_id=18,
        pairs=(
            RulePair(b"REAL_TOPIC", ValueFrom.TOPIC), RulePair(b"REAL_QID", ValueFrom.QUEUE),
            RulePair(b"DELAY", ValueFrom.LEVEL), RulePair(b"TIMER_DELAY_MS", ValueFrom.CUT),
            RulePair(b"WHY", ValueFrom.TEXT, b"because"),
        ),
    )  # fmt: skip
    timer = Rule(RuleKind.REFUSE, b"TIMER_DELAY_MS")
    assert delay_rule((timer, rule)) is rule and delay_rule((timer,)) is None
    moved = redirect(rule, 30, "%RETRY%G", 1)
    assert (moved.topic_id, moved.queue_id) == (9, 17)
    assert moved.edits == (
        PairEdit(EditKind.SET, b"REAL_TOPIC", b"%RETRY%G"),
        PairEdit(EditKind.SET, b"REAL_QID", 1),
        PairEdit(EditKind.SET, b"DELAY", 18),
        PairEdit(EditKind.REMOVE, b"TIMER_DELAY_MS"),
        PairEdit(EditKind.SET, b"WHY", b"because"),
    )
