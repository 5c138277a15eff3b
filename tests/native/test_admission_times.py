"""Timer messages in admission: times, faults and remarks, in C and in the twin. Cases of golden/timer."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from test_admission import DELAY, HALF, NOW, TIMER, both, sent

from ringmq.ipc.admission import Rule, When
from ringmq.ipc.admission_time import CHANCES, TimeAsked, slot_refuses, time_asked, time_remark
from ringmq.ipc.admission_twin import Admitted, Reason, TopicState, Verdict, added_pairs
from ringmq.native import ffi, lib
from ringmq.timer.timer_wheel import FILE_BYTES, SLOT, SLOT_BYTES, SLOTS

TOPIC = TopicState(live=True, send_cold=False, read_queues=4, write_queues=8)
SECOND = NOW // 1000 * 1000
DAYS_3 = 259_200


def pair(name: str, value: object) -> bytes:
    return f"{name}\x01{value}\x02".encode()


@pytest.mark.parametrize(
    ("properties", "outcome"),
    [
        (pair("TIMER_DELAY_SEC", 5), SECOND + 5000),
        (pair("TIMER_DELAY_MS", 7300), (NOW + 7300) // 1000 * 1000),
        (pair("TIMER_DELAY_MS", "+7300"), (NOW + 7300) // 1000 * 1000),
        (pair("TIMER_DELIVER_MS", SECOND + 9456), SECOND + 9000),
        (pair("TIMER_DELIVER_MS", SECOND + 9000), SECOND + 8000),
        (pair("TIMER_DELIVER_MS", SECOND + 1000), SECOND),
        (pair("TIMER_DELAY_MS", 1), SECOND),
        (pair("TIMER_DELIVER_MS", NOW), None),
        (pair("TIMER_DELIVER_MS", NOW - 5000), None),
        (pair("TIMER_DELAY_SEC", 0), None),
        (pair("TIMER_DELAY_MS", -3000), None),
        (pair("TIMER_DELAY_SEC", -(1 << 63)), None),
        (pair("TIMER_DELAY_SEC", ""), None),
        (pair("TIMER_DELAY_SEC", "abc"), TimeAsked.NO_NUMBER),
        (pair("TIMER_DELIVER_MS", "12x"), TimeAsked.NO_NUMBER),
        (pair("TIMER_DELAY_SEC", "1.5"), TimeAsked.NO_NUMBER),
        (pair("TIMER_DELAY_SEC", 1 << 63), TimeAsked.NO_NUMBER),
        (pair("TIMER_DELAY_SEC", DAYS_3), SECOND + DAYS_3 * 1000),
        (pair("TIMER_DELAY_SEC", DAYS_3 + 1), TimeAsked.TOO_FAR),
        (pair("TIMER_DELAY_SEC", (1 << 63) - 1), TimeAsked.TOO_FAR),
        (pair("TIMER_DELIVER_MS", 4_102_444_800_000), TimeAsked.TOO_FAR),
        (pair("TIMER_DELIVER_MS", SECOND + 13_000) + pair("TIMER_DELAY_MS", 11_000) + pair("TIMER_DELAY_SEC", 4),
         SECOND + 4000),
        (pair("TIMER_DELIVER_MS", SECOND + 13_000) + pair("TIMER_DELAY_MS", 11_000), SECOND + 11_000),
        (pair("TIMER_DELAY_SEC", 0) + pair("TIMER_DELAY_MS", 11_000), None),
        (pair("TIMER_DELAY_SEC", 5) + pair("TIMER_OUT_MS", 1), None),
        (pair("DELAY", 0) + pair("TIMER_DELAY_SEC", 8), SECOND + 8000),
        (pair("TIMER_DEL_UNIQKEY", "GT+X") + pair("TIMER_DELIVER_MS", SECOND + 12_345), SECOND + 12_000),
        (pair("TIMER_DEL_UNIQKEY", "GT+X") + pair("TIMER_DELIVER_MS", NOW - 1), TimeAsked.DELETES_PASSED),
        (pair("TIMER_DEL_UNIQKEY", "GT+X"), None),
        (pair("TIMER_ENQUEUE_MS", 1) + pair("TIMER_DEQUEUE_MS", 2) + pair("TIMER_ROLL_TIMES", 1), None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("batch", [False, True])
def test_times_asked_for(properties: bytes, outcome: int | TimeAsked | None, batch: bool) -> None:
    found = both(sent(properties, batch=batch), (TIMER,) if batch else (DELAY, TIMER), now_ms=NOW)
    if batch and b"DELAY\x010" in properties:
        assert found == Admitted(Verdict.ASK, Reason.PAIR)
    elif outcome is None:
        assert found == Admitted(Verdict.PLAIN)
    elif isinstance(outcome, TimeAsked):
        assert (found.verdict, found.time_fault) == (Verdict.REFUSE, outcome)
    else:
        assert (found.verdict, found.out_ms, found.queue_id) == (Verdict.REDIRECT, outcome, 0)


def test_order_of_rules_and_the_timer_topic_itself() -> None:
    timed = pair("TIMER_DELAY_SEC", 5)
    assert both(sent(pair("DELAY", 3) + timed), (DELAY, TIMER), now_ms=NOW).rule == 0
    in_wheel = structs.replace(TOPIC, topic_id=TIMER.topic_id)
    assert both(sent(timed), (TIMER,), in_wheel, now_ms=NOW) == Admitted(Verdict.PLAIN)
    half = structs.replace(TIMER, name=b"TRAN_MSG", when=When.TRUE, transaction=-1)
    timed_half = sent(timed + pair("TRAN_MSG", "true"), sys_flag=4)
    assert both(timed_half, (half, HALF, TIMER), now_ms=NOW).out_ms == SECOND + 5000
    passed = sent(pair("TIMER_DELAY_SEC", 0) + pair("TRAN_MSG", "true"), sys_flag=4)
    assert both(passed, (half, HALF, TIMER), now_ms=NOW) == Admitted(Verdict.REDIRECT, rule=1)


def test_stored_pairs_and_their_limit() -> None:
    added = added_pairs(TIMER, b"T", 1, 0, b"", SECOND)
    assert added == pair("REAL_TOPIC", "T") + pair("REAL_QID", 1) + pair("TIMER_OUT_MS", SECOND)
    timed = pair("TIMER_DELAY_SEC", 5)
    room = 32767 - 50 - 1 - 42 - len(added) - len(timed)
    for length, verdict in ((room, Verdict.REDIRECT), (room + 1, Verdict.ASK)):
        send = sent(timed + b"k\x01" + b"v" * (length - 3) + b"\x02")
        assert both(send, (TIMER,), now_ms=NOW).verdict == verdict


def remark_in_c(rule: Rule, pairs: dict[bytes, bytes], fault: TimeAsked, messages: int) -> str:
    """The C core's remark."""
    s, admitted, struct = ffi.new("struct rmq_send *"), ffi.new("struct rmq_admitted *"), rule_struct(rule)
    kept = [(ffi.from_buffer(name), ffi.from_buffer(value)) for name, value in pairs.items()]
    for number, (name, value) in enumerate(kept):
        s.reserved[number] = (name, value, len(name), len(value))
    s.reserved_count = len(kept)
    lib.rmq_time_asked(s, struct, NOW, admitted)
    admitted.time_fault, admitted.slot_messages = fault, messages
    text = ffi.new("char[]", lib.RMQ_TIME_REMARK_MAX)
    lib.rmq_time_remark(text, s, struct, admitted)
    return ffi.string(text).decode("ascii")


def rule_struct(rule: Rule) -> object:
    return ffi.new("struct rmq_admission_rule *", {
        "precision_ms": rule.precision_ms, "delay_max_ms": rule.delay_max_ms,
        "slot_messages_max": rule.slot_messages_max,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "stock", "asked"),
    [
        (TimeAsked.DISABLED, "accurate timer message is not enabled, timerWheelEnable is false", ""),
        (TimeAsked.NO_NUMBER, "timer message illegal, the delay time should not be bigger than the max delay "
         "259200000ms; or if set del msg, the delay time should be bigger than the current time",
         " is no whole number of 64 bits"),
        (TimeAsked.TOO_FAR, "max delay 259200000ms", " is too far"),
        (TimeAsked.DELETES_PASSED, "bigger than the current time", " has passed"),
        (TimeAsked.SLOT_FULL, "timer message is under flow control, max num limit is 10 or the current value is "
         "greater than 5 and less than 10, trigger random flow control", " asks for a slot of 7 messages"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [b"77", "\u00e9".encode() * 40 + b'"\x01'])
def test_remarks_say_what_was_asked_and_what_is_allowed(fault: TimeAsked, stock: str, asked: str, value: bytes) -> None:
    rule, pairs = structs.replace(TIMER, slot_messages_max=5), {b"TIMER_DELAY_SEC": value}
    text = remark_in_c(rule, pairs, fault, 7)
    assert text == time_remark(fault, pairs, rule, 7)
    shown = "77" if value == b"77" else "?" * 32
    assert stock in text and text.endswith(f": TIMER_DELAY_SEC = {shown}{asked}")
    assert lib.rmq_time_code(fault) == (1 if fault in (TimeAsked.DISABLED, TimeAsked.SLOT_FULL) else 13)


@settings(max_examples=200)
@given(
    limit=st.one_of(st.integers(0, 9), st.integers(0, 2**31 - 1)), messages=st.integers(-5, 2**31 - 1),
    near=st.booleans(), chance=st.integers(0, CHANCES - 1),
)  # fmt: skip
def test_full_slots(limit: int, messages: int, near: bool, chance: int) -> None:
    messages = min(messages % (2 * limit + 2), 2**31 - 1) if near else messages
    rule, admitted = structs.replace(TIMER, slot_messages_max=limit), ffi.new("struct rmq_admitted *")
    admitted.verdict = lib.RMQ_ADMIT_REDIRECT
    lib.rmq_admit_slot(rule_struct(rule), messages, chance, admitted)
    refused = slot_refuses(rule, messages, chance)
    assert admitted.verdict == (lib.RMQ_ADMIT_REFUSE if refused else lib.RMQ_ADMIT_REDIRECT)
    assert admitted.time_fault == (TimeAsked.SLOT_FULL if refused else 0)
    assert refused or messages < 2 * limit or messages <= limit


def test_refusal_gets_likelier_as_a_slot_fills() -> None:
    rule = structs.replace(TIMER, slot_messages_max=100)
    refused = [sum(slot_refuses(rule, count, chance) for chance in range(CHANCES)) for count in range(99, 202)]
    assert refused[:2] == [0, 0] and refused[-2:] == [CHANCES, CHANCES]
    assert refused == sorted(refused) and refused[51] == CHANCES // 2


@given(value=st.binary(max_size=24), name=st.sampled_from([b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS"]))
def test_any_bytes_are_a_number_or_none_in_both(value: bytes, name: bytes) -> None:
    s, out = ffi.new("struct rmq_send *"), ffi.new("struct rmq_admitted *")
    kept = ffi.from_buffer(name), ffi.from_buffer(value)
    s.reserved[0], s.reserved_count = (*kept, len(name), len(value)), 1
    found = lib.rmq_time_asked(s, rule_struct(TIMER), NOW, out)
    assert (found, out.out_ms) == time_asked({name: value}, TIMER, NOW)


def test_counts_of_the_wheel_file(tmp_path: Path) -> None:
    counts, root = ffi.new("struct rmq_slot_counts *"), str(tmp_path).encode()
    lib.rmq_slot_counts_open(counts)

    def count(slot_ms: int, now_ms: int, precision_ms: int = 1000) -> int:
        return lib.rmq_slot_count(counts, root, slot_ms, precision_ms, now_ms)

    assert count(SECOND, NOW) == 0
    time, path = SECOND // 1000, tmp_path / "timerwheel"
    make_sparse(path)
    put(path, time, SLOT.pack(time, 0, 52, 7, 0))
    put(path, time + 1, SLOT.pack(time + 1 - SLOTS, 0, 52, 8, 0))
    put(path, time + 2, SLOT.pack(time + 2, 0, 52, -1, 0))
    assert count(SECOND, NOW + 999) == 0  # it looks for the file once a second
    assert [count(SECOND + ms, NOW + 1000) for ms in (0, 999, 1000, 2000, 3000)] == [7, 7, 0, -1, 0]
    put(path, time, SLOT.pack(time, 0, 104, 9, 0))
    assert count(SECOND, NOW + 1000) == 9  # stores of the worker show at once
    path.unlink()
    assert count(SECOND, NOW + 1500) == 9
    assert count(SECOND, NOW - 5) == 0  # also after the clock was set back
    lib.rmq_slot_counts_close(counts)


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(FILE_BYTES)


def put(path: Path, time: int, slot: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(time % SLOTS * SLOT_BYTES)
        file.write(slot)
