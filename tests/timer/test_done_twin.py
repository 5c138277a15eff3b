"""What was delivered or rolled before a start, and of which precision a wheel is: C and Python agree."""

from __future__ import annotations

import random
from array import array
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringmq.ipc.ports import mark_of
from ringmq.native import ffi, lib
from ringmq.timer.placement import place
from ringmq.timer.rolled_copies import NO_NAME, DoneBefore, name_of, rolled_source
from ringmq.timer.survey import wheel_precision
from ringmq.timer.timer_files import TimerFiles
from ringmq.timer.timer_log import Magic, TimerLog
from ringmq.timer.timer_record import TimerRecord, timer_record
from ringmq.timer.timer_wheel import PRECISIONS_MS, TimerWheel
from tests.timer.kit import SECRET, MemoryFiles, encode, held, joined

ROLE, NOW_MS, COUNT = lib.RMQ_ROLE_TIMER, 1_800_000_000_000, 400
WINDOW = 20


def random_record(dice: random.Random, queue_offset: int) -> bytes:
    """Few keys and times, so copies of stock name earlier records."""
    out_ms = NOW_MS + dice.randrange(-20, 40) * 500
    pairs = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "UNIQ_KEY": f"k{dice.randrange(40)}"}
    pairs |= dice.choice(({}, {"TIMER_DELAY_SEC": "3"}, {"TIMER_DELIVER_MS": str(out_ms + dice.randrange(1, 1001))}))
    if dice.random() < 0.2:
        pairs["TIMER_DEL_UNIQKEY"] = f"T+k{dice.randrange(40)}"
    mark = 0
    if dice.random() < 0.4:
        pairs["TIMER_ROLL_TIMES"] = dice.choice(("1", "1", "2", "x", "0", "-4", "4294967296"))
        mark = dice.choice((0, mark_of(ROLE, 0, dice.randrange(COUNT)), mark_of(ROLE + 1, 0, dice.randrange(COUNT))))
    for name in ("UNIQ_KEY", "TIMER_OUT_MS"):
        if dice.random() < 0.05:
            del pairs[name]
    store_ms = out_ms - dice.randrange(100, 30_000)
    born_ms = NOW_MS - dice.randrange(2)
    return encode(queue_offset, 1000 * queue_offset, joined(pairs), store_ms=store_ms, mark=mark, born_ms=born_ms)


def hashed(record: TimerRecord) -> int | None:
    if not record.key:
        return None
    found = ffi.new("uint64_t[2]")
    lib.rmq_siphash128(record.key, len(record.key), SECRET, found)
    return int(found[0])


def sources_in_c(records: list[bytes], role: int) -> array[int]:
    units, of, _kept = held(records)
    found = ffi.new("uint64_t[]", len(records))
    count = lib.rmq_timer_rolled_sources(role, of, units, len(records), SECRET, found)
    return array("Q", found[0:count])


def read(data: bytes, coarsest_ms: int) -> TimerRecord:
    record = timer_record(data, coarsest_ms)
    assert record is not None
    return record


def test_sources_of_rolled_copies_are_alike() -> None:
    dice = random.Random(13)
    records = [random_record(dice, number) for number in range(COUNT)]
    expected = []
    for record in (read(data, 1) for data in records):
        source = rolled_source(record, hashed(record), ROLE)
        expected += [] if source is None else [source]
    found = list(sources_in_c(records, ROLE))
    assert found == expected
    by_mark = sum(source < COUNT for source in found)
    assert by_mark > 20 and len(found) - by_mark > 40, "of both kinds"


def done_in_c(
    files: MemoryFiles, records: list[bytes], rolled: array[int], done: DoneBefore, coarsest_ms: int
) -> list[bool]:  # fmt: skip
    kept: Any = ffi.from_buffer("uint64_t[]", rolled)
    work = ffi.new("struct rmq_timer_enqueue *", {
        "write_ms": NOW_MS, "open_ms": NOW_MS, "known_offset": done.known_offset, "known_ms": done.known_ms,
        "known_coarsest_ms": coarsest_ms, "rolled": kept, "rolled_count": len(rolled), "rolled_end": done.rolled_end,
    })  # fmt: skip
    work.index.secret, work.index.is_listed, work.index.until_ns = SECRET, 1, 1 << 62
    units, of, _records = held(records)
    found = []
    for number in range(len(records)):
        before = work.tally.done_before
        assert lib.rmq_timer_enqueue(files.struct, of + number, units + number, 1, work) == 1
        found.append(work.tally.done_before > before)
    return found


def sources(*records: bytes) -> tuple[list[int], list[int]]:
    """Sources that C names, and the names of the records themselves."""
    names = []
    for record in (read(data, 1) for data in records):
        key = hashed(record)
        assert key is not None
        names.append(name_of(key, record, record.rolls))
    return list(sources_in_c([*records], ROLE)), names


def test_a_rolled_message_is_told_from_others_of_its_key_and_time() -> None:
    """Its recall names its key for the same second, and a client may send TIMER_ROLL_TIMES."""
    pairs = {"TIMER_OUT_MS": str(NOW_MS), "REAL_TOPIC": "T", "UNIQ_KEY": "k"}
    recall = {**pairs, "UNIQ_KEY": "d", "TIMER_DEL_UNIQKEY": "T+k"}
    rolled = {"TIMER_ROLL_TIMES": "1"}
    message, withdrawn = encode(0, 0, joined(pairs), born_ms=7), encode(1, 500, joined(recall), born_ms=7)
    other = encode(2, 1000, joined(pairs), born_ms=8)
    copy, of_client = (encode(3, 1500, joined(pairs | rolled), born_ms=born_ms) for born_ms in (7, 9))
    found, names = sources(message, withdrawn, other, copy)
    assert found == names[:1] and len({*names}) == 4
    (of_client_alone,), _ = sources(of_client)
    assert of_client_alone not in names, "it was born at another time"
    (of_recall,), _ = sources(encode(4, 2000, joined(recall | rolled), born_ms=7))
    assert of_recall == names[1], "the recall was rolled, too"


@pytest.mark.parametrize("rolls", [{}, {"TIMER_ROLL_TIMES": "0"}, {"TIMER_ROLL_TIMES": "-4"}])
def test_a_mark_of_the_timer_tells_a_rolled_copy_whatever_a_client_has_counted(rolls: dict[str, str]) -> None:
    pairs = joined({"TIMER_OUT_MS": str(NOW_MS), "REAL_TOPIC": "T", "UNIQ_KEY": "k", **rolls})
    assert list(sources_in_c([encode(9, 0, pairs, mark=mark_of(ROLE, 0, 4))], ROLE)) == [4]


def test_what_was_done_before_is_alike() -> None:
    dice, counts = random.Random(45), {True: 0, False: 0}
    for _ in range(24):
        precision_ms = dice.choice(PRECISIONS_MS)
        coarsest_ms, known_coarsest_ms = max(precision_ms, dice.choice(PRECISIONS_MS)), dice.choice(PRECISIONS_MS)
        files = MemoryFiles(1, 1 << 20, window_slots=WINDOW, precision_ms=precision_ms)
        files.struct.coarsest_ms = coarsest_ms
        records = [random_record(dice, number) for number in range(COUNT)]
        rolled = array("Q", sorted(set(sources_in_c(records, ROLE))))
        done = DoneBefore(
            set(rolled), dice.randrange(COUNT), dice.randrange(COUNT), NOW_MS + dice.randrange(-5000, 5000)
        )
        found = done_in_c(files, records, rolled, done, known_coarsest_ms)
        for number, data in enumerate(records):
            record = read(data, coarsest_ms)
            if record.out_ms is None:
                assert not found[number]
                continue
            slot = place(
                record.exact_ms - 1, write_ms=record.store_ms - record.store_ms % precision_ms, open_ms=0,
                is_delete=False, window_slots=WINDOW, precision_ms=precision_ms,
            )  # fmt: skip
            key = hashed(record)
            name = NO_NAME if key is None else name_of(key, record, record.rolls)
            exact_ms = read(data, known_coarsest_ms).exact_ms
            expected = done.has(number, exact_ms=exact_ms, slot_ms=slot.slot_ms, name=name)
            assert found[number] == expected, (number, precision_ms, coarsest_ms, known_coarsest_ms)
            counts[expected] += 1
    assert min(counts.values()) > 1000


def test_the_precision_of_a_wheel_is_told_alike(tmp_path: Path) -> None:
    """The newest unit tells, also if it is delivered. Stock leaves slots of the precision before a change."""
    with closing(TimerFiles(tmp_path, 1000, WINDOW, 10_240)) as files:
        log, wheel = TimerLog(tmp_path, 10_240), TimerWheel(tmp_path, 1000)
        assert lib.rmq_timer_wheel_precision(files.struct) == wheel_precision(wheel, log) == 0
        for made_ms in (100, 1000, 200):
            files.struct.precision_ms = made_ms
            files.make_room(2)
            for number in range(2):
                unit = ffi.new("struct rmq_timer_unit *", {
                    "enqueue_ms": NOW_MS, "slot_ms": NOW_MS + (2 - number) * made_ms, "magic": int(Magic.DEFAULT),
                    "commit_log_offset": 1000 * number, "size": 100,
                })  # fmt: skip
                assert lib.rmq_timer_append(files.struct, unit) == 1
            log = TimerLog(tmp_path, 10_240)
            assert lib.rmq_timer_wheel_precision(files.struct) == wheel_precision(wheel, log) == made_ms
        wheel.close()
