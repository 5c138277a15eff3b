"""What becomes of a send: native/src/admission/admission.c by example, and against its twin."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from reader_kit import request

from ringmq.ipc.admission import ANY_TRANSACTION, QueueFrom, Rule, RuleKind, RulePair, ValueFrom, When, rules_struct
from ringmq.ipc.admission_twin import Admitted, Limits, Reason, Send, TopicState, Verdict, added_pairs, admit
from ringmq.native import ffi, lib
from ringmq.remoting.codes import SerializeType

LIMITS = Limits(message_bytes_max=1000, additions_length=50, made_key_length=42)
TOPIC = TopicState(live=True, send_cold=False, read_queues=4, write_queues=8)
REAL = (RulePair(b"REAL_TOPIC", ValueFrom.TOPIC), RulePair(b"REAL_QID", ValueFrom.QUEUE))
DELAY = Rule(
    RuleKind.REDIRECT, b"DELAY", When.POSITIVE, topic_id=5, queue_from=QueueFrom.LEVEL, queue_id=18,
    pairs=(*REAL, RulePair(b"DELAY", ValueFrom.LEVEL)),
)  # fmt: skip
HALF = Rule(
    RuleKind.REDIRECT, b"TRAN_MSG", When.TRUE, transaction=ANY_TRANSACTION, topic_id=6, sys_flag_clear=0xC,
    pairs=(*REAL, RulePair(b"__transactionId__", ValueFrom.UNIQ_KEY)),
)  # fmt: skip
NO_TIMER = Rule(RuleKind.REFUSE, b"TIMER_DELAY_MS", code=13, remark="no timer")
RULES = (HALF, DELAY, NO_TIMER)
NOW = 1_795_208_563_180
TIMER = Rule(
    RuleKind.TIMER, topic_id=9, pairs=(*REAL, RulePair(b"TIMER_OUT_MS", ValueFrom.OUT_MS)), precision_ms=1000,
    delay_max_ms=259_200_000, slot_messages_max=2**31 - 1,
)  # fmt: skip


def in_c(
    send: Send,
    limits: Limits,
    topic: TopicState,
    rules: tuple[Rule, ...],
    *,
    approved: bool = False,
    turn: int = 0,
    now_ms: int = 0,
) -> Admitted:
    """The C core's verdict over a frame that says this."""
    fields = {"a": "PG", "b": send.topic.decode(), "e": str(send.queue_id), "f": str(send.sys_flag), "g": "1", "h": "0"}
    fields |= {"i": send.properties.decode(), "j": str(send.reconsume_times), "m": str(send.batch).lower()}
    frame = request(310, fields, b"x" * send.body_length, serialise=SerializeType.JSON)
    buffer, home = ffi.from_buffer(bytearray(frame)), ffi.new("uint8_t[]", lib.RMQ_PROPERTIES_JSON_MAX)
    header, s = ffi.new("struct rmq_frame_header *"), ffi.new("struct rmq_send *")
    assert lib.rmq_frame_header_parse(buffer, len(frame), header) == 0
    assert lib.rmq_send_decode(header, s)
    bounds = ffi.new("struct rmq_admission_limits *", (limits.message_bytes_max, limits.additions_length,
                                                       limits.made_key_length))  # fmt: skip
    flags = lib.RMQ_TOPIC_LIVE * topic.live | lib.RMQ_TOPIC_SEND_COLD * topic.send_cold
    config = flags << 40 | topic.write_queues << 24 | topic.read_queues << 8 | 6
    reason = lib.rmq_admit_head(s, send.body_length, bounds, bool(rules))
    reason = reason or lib.rmq_admit_target(s, config, turn, approved)
    if reason:
        return Admitted(Verdict.ASK, Reason(reason))
    s.topic_id = topic.topic_id
    assert not s.properties_escaped or lib.rmq_send_unescape(s, home)
    if not lib.rmq_send_scan(s):
        return Admitted(Verdict.ASK, Reason.NUL)
    out = ffi.new("struct rmq_admitted *")
    lib.rmq_admit_pairs(s, bounds, rules_struct(rules) if rules else ffi.NULL, approved, now_ms, out)
    return Admitted(
        Verdict(out.verdict), Reason(out.reason), out.rule, out.queue_id, out.level, out.time_fault, out.out_ms
    )


def both(send: Send, rules: tuple[Rule, ...] = RULES, topic: TopicState = TOPIC, **more: Any) -> Admitted:
    """What the two agree on."""
    found = in_c(send, LIMITS, topic, rules, **more)
    assert found == admit(send, LIMITS, topic, rules, **more)
    return found


def sent(properties: bytes = b"", **fields: Any) -> Send:
    """A plain send but for these."""
    return Send(**{"topic": b"T", "queue_id": 1, "sys_flag": 0, "batch": False, "body_length": 5,
                   "properties": properties, **fields})  # fmt: skip


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        (sent(), Reason.NOTHING), (sent(sys_flag=0x80), Reason.SYS_FLAG), (sent(sys_flag=0x40), Reason.SYS_FLAG),
        (sent(sys_flag=8), Reason.SYS_FLAG), (sent(body_length=0), Reason.BODY), (sent(body_length=1001), Reason.BODY),
        (sent(queue_id=8), Reason.QUEUE), (sent(queue_id=7), Reason.NOTHING), (sent(queue_id=-1), Reason.NOTHING),
        (sent(batch=True, topic=b"t" * 128), Reason.BATCH_TOPIC), (sent(b"a\x01b\0\x02"), Reason.NUL),
        (sent(b"POP_CK\x01x\x02"), Reason.NOTHING), (sent(b"INNER_NUM\x01x\x02"), Reason.PAIR),
        (sent(b"DELAY\x01x\x02"), Reason.VALUE), (sent(b"DELAY\x01" + b"0" * 9000 + b"\x02"), Reason.NOTHING),
        (sent(b"DELAY\x010\x02"), Reason.NOTHING),
        (sent(b"DELAY\x01\x02"), Reason.NOTHING),
        (sent(b"DELAY\x013\x02", batch=True), Reason.PAIR), (sent(b"k\x01" + b"v" * 32672), Reason.NOTHING),
        (sent(b"k\x01" + b"v" * 32673), Reason.PROPERTIES),
    ],
)  # fmt: skip
def test_why_control_is_asked(send: Send, reason: Reason) -> None:
    assert both(send) == Admitted(Verdict.ASK if reason else Verdict.PLAIN, reason)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (TopicState(False, False, 4, 4), Reason.TOPIC), (TopicState(True, True, 4, 4), Reason.TOPIC_COLD),
        (TopicState(True, False, 4, 0), Reason.WRITE_QUEUES), (TopicState(True, False, 1, 1), Reason.QUEUE),
    ],
)  # fmt: skip
def test_topics_that_control_has_to_look_at(topic: TopicState, reason: Reason) -> None:
    assert both(sent(), topic=topic) == Admitted(Verdict.ASK, reason)
    assert both(sent(), topic=topic, approved=True).verdict == (reason != Reason.TOPIC_COLD) * Verdict.ASK


def test_without_rules_reserved_pairs_go_to_control_and_are_stored_once_it_approves() -> None:
    for pair in (b"DELAY\x013\x02", b"TRAN_MSG\x01true\x02", b"TIMER_DELAY_MS\x011\x02", b"INNER_BASE\x01x\x02"):
        assert both(sent(pair), ()) == Admitted(Verdict.ASK, Reason.PAIR)
        assert both(sent(pair), (), approved=True) == Admitted(Verdict.PLAIN)
    assert both(sent(sys_flag=4), ()) == Admitted(Verdict.ASK, Reason.SYS_FLAG)
    assert both(sent(sys_flag=4), (), approved=True) == Admitted(Verdict.ASK, Reason.SYS_FLAG)


def test_redirects() -> None:
    for number in (b"3", b"+3", b"0" * 30 + b"3"):
        assert both(sent(b"DELAY\x01" + number + b"\x02")) == Admitted(Verdict.REDIRECT, rule=1, queue_id=2, level=3)
    assert both(sent(b"DELAY\x0199\x02")) == Admitted(Verdict.REDIRECT, rule=1, queue_id=17, level=18)
    assert both(sent(b"DELAY\x013\x02a\x01b\x02DELAY\x014\x02")).level == 4
    assert both(sent(b"TRAN_MSG\x01True\x02", sys_flag=4)) == Admitted(Verdict.REDIRECT, rule=0)
    assert both(sent(b"TRAN_MSG\x01true\x02")) == Admitted(Verdict.REDIRECT, rule=0)
    assert both(sent(b"TRAN_MSG\x01true\x02"), (structs.replace(HALF, transaction=4),)).verdict == Verdict.PLAIN
    assert both(sent(b"TRAN_MSG\x01no\x02", sys_flag=4)) == Admitted(Verdict.ASK, Reason.SYS_FLAG)
    assert both(sent(b"TIMER_DELAY_MS\x011\x02")) == Admitted(Verdict.REFUSE, rule=2)
    long_key = b"TRAN_MSG\x01true\x02UNIQ_KEY\x01" + b"k" * 65 + b"\x02"
    assert both(sent(long_key, sys_flag=4)) == Admitted(Verdict.ASK, Reason.VALUE)


RETRIED = Rule(
    RuleKind.REDIRECT, b"DELAY", When.POSITIVE, transaction=ANY_TRANSACTION, topic_id=5, queue_from=QueueFrom.LEVEL,
    queue_id=18, with_name=b"TRAN_MSG", with_when=When.TRUE, is_retried=True,
)  # fmt: skip
DELAYED_HALF = Rule(
    RuleKind.REFUSE, b"TRAN_MSG", When.TRUE, transaction=ANY_TRANSACTION, code=13, with_name=b"DELAY",
    with_when=When.POSITIVE,
)  # fmt: skip


@pytest.mark.parametrize(
    ("pairs", "times", "rule"),
    [
        (b"TRAN_MSG\x01true\x02DELAY\x013\x02", 1, 0), (b"TRAN_MSG\x01true\x02DELAY\x013\x02", 0, 1),
        (b"TRAN_MSG\x01true\x02DELAY\x010\x02", 1, 2), (b"TRAN_MSG\x01true\x02", 1, 2),
        (b"DELAY\x013\x02", 1, 3), (b"TRAN_MSG\x01no\x02DELAY\x013\x02", 1, 3),
        (b"TRAN_MSG\x01true\x02DELAY\x01x\x02", 1, None), (b"TRAN_MSG\x01true\x02DELAY\x01x\x02", 0, None),
    ],
)  # fmt: skip
def test_a_rule_for_two_pairs_and_for_retried_messages(pairs: bytes, times: int, rule: int | None) -> None:
    found = both(sent(pairs, reconsume_times=times), (RETRIED, DELAYED_HALF, HALF, DELAY))
    if rule is None:
        assert found == Admitted(Verdict.ASK, Reason.VALUE)
    else:
        assert found.rule == rule and found.verdict in (Verdict.REDIRECT, Verdict.REFUSE)


def test_redirected_properties_have_the_same_limit() -> None:
    pair = b"DELAY\x013\x02"
    added = 42 + len(added_pairs(DELAY, b"T", 1, 3, b""))
    for room_bytes in (0, 83):
        room = 32767 - 50 - 1 - added - len(pair) - room_bytes
        rules = (structs.replace(DELAY, room_bytes=room_bytes),)
        for length, verdict in ((room, Verdict.REDIRECT), (room + 1, Verdict.ASK)):
            assert both(sent(pair + b"k\x01" + b"v" * (length - 3) + b"\x02"), rules).verdict == verdict


NAMES = st.sampled_from([
    b"TIMER_DELAY_SEC", b"TIMER_DELIVER_MS", b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY",
    b"DELAY", b"TRAN_MSG", b"TIMER_DELAY_MS", b"TIMER_", b"INNER_NUM", b"INNER", b"POP_CK", b"UNIQ_KEY", b"KEYS",
    b"CLUSTER", b"TRACE_ON", b"DELAYS", b"", b"WAIT",
])  # fmt: skip
VALUES = st.sampled_from([
    b"3", b"0", b"-1", b"18", b"19", b"2147483647", b"2147483648", b"+3", b"true", b"TRUE", b"x", b"", b"a\x01b",
    b"100000", b"100001", b"-9223372036854775808", b"9223372036854775808", b"-", b"%d" % (NOW + 5000), b"%d" % NOW,
    b"k" * 64, b"k" * 65, b"v" * 32500, b"00000000000000000000007",
])  # fmt: skip
ENDS = st.sampled_from([b"\x02"] * 8 + [b"", b"\0", b"\x02\x02"])
PIECES = st.tuples(NAMES, st.sampled_from([b"\x01"] * 6 + [b""]), VALUES, ENDS).map(b"".join)
SENDS = st.builds(
    Send,
    topic=st.sampled_from([b"T", b"t" * 127, b"t" * 128, b"t" * 255]), queue_id=st.integers(-2, 9),
    sys_flag=st.sampled_from([0, 0, 0, 1, 4, 8, 12, 0x40, 0x80, 0x31]),
    batch=st.sampled_from([False, False, False, True]),
    body_length=st.sampled_from([5, 5, 5, 0, 1000, 1001]), properties=st.lists(PIECES, max_size=11).map(b"".join),
    reconsume_times=st.sampled_from([0, 0, 1, -1, 2**31 - 1]),
)  # fmt: skip
PAIRS = st.lists(
    st.builds(RulePair, st.sampled_from([b"REAL_TOPIC", b"REAL_QID", b"DELAY", b"KEYS"]),
              st.sampled_from([way for way in ValueFrom if way is not ValueFrom.OUT_MS]), st.just(b"fixed")),
    max_size=4,
).map(tuple)  # fmt: skip
KINDS = st.sampled_from([RuleKind.REDIRECT, RuleKind.REDIRECT, RuleKind.REFUSE])
TRANSACTIONS = st.sampled_from([0, 0, 4, 8, ANY_TRANSACTION])
NAMED = st.builds(
    Rule, KINDS, st.sampled_from([b"DELAY", b"TRAN_MSG", b"TIMER_DELAY_MS", b"INNER_NUM", b"INNER"]),
    st.sampled_from(When), TRANSACTIONS, topic_id=st.just(3),
    queue_from=st.sampled_from([QueueFrom.FIXED, QueueFrom.ORIGINAL]), queue_id=st.integers(0, 30), pairs=PAIRS,
    with_name=st.sampled_from([b"", b"", b"DELAY", b"TRAN_MSG"]), with_when=st.sampled_from(When),
    is_retried=st.booleans(), room_bytes=st.sampled_from([0, 99, 32000]),
)  # fmt: skip
LEVELS = st.builds(
    Rule, KINDS, st.sampled_from([b"DELAY", b"TIMER_DELAY_MS"]), st.just(When.POSITIVE), TRANSACTIONS,
    topic_id=st.just(3),
    queue_from=st.just(QueueFrom.LEVEL), queue_id=st.integers(1, 30), pairs=PAIRS,
    with_name=st.sampled_from([b"", b"TRAN_MSG"]), with_when=st.sampled_from([When.PRESENT, When.TRUE]),
    is_retried=st.booleans(),
)  # fmt: skip
TIMERS = st.builds(
    Rule, st.just(RuleKind.TIMER), st.sampled_from([b"", b"", b"TRAN_MSG"]), st.just(When.PRESENT),
    st.sampled_from([0, 0, 8]), topic_id=st.sampled_from([3, 9]), queue_id=st.integers(0, 2),
    pairs=st.sampled_from([(), TIMER.pairs]), precision_ms=st.sampled_from([0, 100, 1000]),
    delay_max_ms=st.sampled_from([1, 100_000, 1 << 60]), slot_messages_max=st.sampled_from([0, 1 << 30]),
    room_bytes=st.sampled_from([0, 99, 32000]),
)  # fmt: skip
BITS = st.builds(Rule, KINDS, transaction=st.sampled_from([4, 8, 12]), topic_id=st.just(3), queue_id=st.integers(0, 30))
RULE_SETS = st.lists(NAMED | LEVELS | BITS | TIMERS, max_size=5).map(tuple)
TOPICS = st.builds(
    TopicState, st.sampled_from([True] * 6 + [False]), st.sampled_from([False] * 4 + [True]), st.integers(0, 9),
    st.integers(0, 9), st.sampled_from([0, 3]),
)  # fmt: skip


@settings(max_examples=500)
@given(send=SENDS, rules=RULE_SETS, topic=TOPICS, approved=st.booleans(), turn=st.sampled_from([0, 1, 77, 2**32 - 1]))
def test_the_c_core_and_its_twin_agree(
    send: Send, rules: tuple[Rule, ...], topic: TopicState, approved: bool, turn: int
) -> None:
    both(send, rules, topic, approved=approved, turn=turn, now_ms=NOW)
