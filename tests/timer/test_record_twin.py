"""Fields of timer records: C and Python agree, and so do both with SipHash's own figures."""

import random

import pytest
from msgspec.structs import replace

from ringmq.ipc.ports import mark_of
from ringmq.native import ffi, lib
from ringmq.timer.placement import place
from ringmq.timer.timer_record import TimerRecord, timer_record
from tests.store.copy_kit import stored
from tests.timer.kit import SECRET, MemoryFiles, encode, joined

NAMES = (
    "TIMER_OUT_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY",
    "REAL_TOPIC", "UNIQ_KEY", "TIMER_OUT", "TAGS",
)  # fmt: skip
VALUES = (
    "1800000000000", "1800000005123", "0", "007", "5", "-5", "+5", "1.5", "abc", " 5", "٣", "Topic", "日本", "T+key",
    "Topic+key", "",
    "9223372036854775807", "9223372036854775808", "4611686018427387903", "4611686018427387904", "99999999999999999999",
)  # fmt: skip
DELETE = "TIMER_OUT_MS\x011800000000000\x02REAL_TOPIC\x01Topic\x02TIMER_DEL_UNIQKEY\x01Topic+key\x02"
FILES = MemoryFiles(0, 10_240)


def in_c(data: bytes, precision_ms: int) -> TimerRecord | None:
    found = ffi.new("struct rmq_timer_record *")
    if not lib.rmq_timer_record_read(data, len(data), precision_ms, SECRET, found):
        return None
    has_time = found.out_ms != lib.RMQ_TIMER_NO_TIME
    return TimerRecord(
        found.queue_offset, found.store_time_ms, found.out_ms if has_time else None, found.exact_ms,
        found.topic_hash, bool(found.is_delete), bytes(ffi.buffer(found.key)) if found.has_key else b"",
        bytes(ffi.buffer(found.target_key, found.target_key_length)) if found.target_key else b"", found.rolls,
        found.born_time_ms, found.prepared_transaction_offset,
    )  # fmt: skip


def hashed(key: bytes) -> bytes:
    result = ffi.new("uint64_t[2]")
    lib.rmq_siphash128(key, len(key), SECRET, result)
    return bytes(ffi.buffer(result))


def test_random_records_are_read_alike() -> None:
    dice, keys, times, targets = random.Random(30), 0, 0, 0
    for number in range(20_000):
        pairs = "".join(f"{dice.choice(NAMES)}\x01{dice.choice(VALUES)}\x02" for _ in range(dice.randrange(7)))
        if number % 10 == 0:
            pairs = f"{DELETE}{pairs}"
        precision_ms = dice.choice((100, 200, 500, 1000))
        data = encode(number, 0, pairs.encode(), store_ms=1_800_000_000_000 + number)
        expected, found = timer_record(data, precision_ms), in_c(data, precision_ms)
        assert expected is not None and found is not None
        key = hashed(expected.key) if expected.key else b""
        assert found == replace(expected, key=key), pairs
        targets += bool(expected.target_key)
        keys += bool(key)
        times += expected.out_ms is not None
    assert keys > 500 and times > 1000 and targets > 500


def test_a_damaged_record_is_none() -> None:
    data = encode(7, 0, joined({"TIMER_OUT_MS": "1000"}))
    for cut in range(len(data)):
        assert in_c(data[:cut], 1000) is None and timer_record(data[:cut], 1000) is None


def test_the_latest_slots_of_copies_are_those_of_delivered_and_of_rolled_messages() -> None:
    """Records of others and damaged bytes do not count. Each record has the store time 1,700,000,000,123."""
    dice, role, store_ms = random.Random(7), lib.RMQ_ROLE_TIMER, 1_700_000_000_123
    own = mark_of(role, 0, 5)
    for precision_ms in (100, 1000):
        file, expected = b"", [(0, 0, 0)]
        for number in range(200):
            topic, mark = dice.choice((b"T", b"rmq_sys_wheel_timer")), dice.choice((0, own, mark_of(role + 1, 0, 5)))
            out_ms = dice.choice((None, store_ms + dice.randrange(-(10**6), 10**6 if number > 150 else 0)))
            pairs = joined({"KEYS": "k"} if out_ms is None else {"TIMER_OUT_MS": str(out_ms)})
            file += dice.randbytes(dice.choice((0, 0, 9)))
            file += stored(topic=topic, properties=pairs, prepared=mark, physical_offset=1000 + len(file))
            _, delivered_ms, rolled_ms = expected[-1]
            slot_ms = 0 if mark != own or out_ms is None else out_ms - out_ms % precision_ms
            if topic == b"T":
                delivered_ms = max(delivered_ms, slot_ms)
            else:
                rolled_ms = max(rolled_ms, min(slot_ms, store_ms))
            expected.append((len(file), delivered_ms, rolled_ms))
        assert expected[-1][1] > store_ms == expected[-1][2]
        for limit, *latest_ms in expected:
            found = ffi.new("int64_t[2]")
            lib.rmq_timer_latest_copies(role, file, 0, limit, len(file), 1000, precision_ms, found)
            assert list(found) == latest_ms


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")],
)
def test_the_hash_is_siphash(length: int, expected: str) -> None:
    """The vectors of the authors: key 00 01 .. 0f, input 00 01 .."""
    result = ffi.new("uint64_t[2]")
    lib.rmq_siphash128(bytes(range(length)), length, SECRET, result)
    assert (int(result[0]).to_bytes(8, "little") + int(result[1]).to_bytes(8, "little")).hex() == expected


def test_random_places_are_alike() -> None:
    dice = random.Random(31)
    for _ in range(50_000):
        precision_ms, window = dice.choice((100, 200, 500, 1000)), dice.choice((2, 3, 20, 172_800, 604_740))
        files = FILES.struct
        files.precision_ms, files.window_slots = precision_ms, window
        now_ms = 1_800_000_000_000 + dice.randrange(10**6)
        span_ms = dice.choice((1000, 10**6, window * precision_ms * 3))
        out_ms, open_ms = now_ms + dice.randrange(-span_ms, span_ms), now_ms + dice.randrange(-5000, 5000)
        write_ms, open_ms = now_ms - now_ms % precision_ms, open_ms - open_ms % precision_ms
        is_delete = dice.random() < 0.5
        expected = place(
            out_ms,
            write_ms=write_ms,
            open_ms=open_ms,
            is_delete=is_delete,
            window_slots=window,
            precision_ms=precision_ms,
        )
        found = lib.rmq_timer_place(files, out_ms, write_ms, open_ms, is_delete)
        assert (found.slot_ms, found.magic) == (expected.slot_ms, expected.magic)
