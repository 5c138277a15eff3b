"""The half messages of ends: C and Python agree, and a sound end is one that Python accepts."""

import random
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit

from ringmq.native import ffi, lib
from ringmq.services.transactions import ends, records
from ringmq.services.transactions.ends import End
from ringmq.services.transactions.ends_twin import judge
from ringmq.store.queue_reader import QueueReader
from tests.store.copy_kit import stored

HALF = b"RMQ_SYS_TRANS_HALF_TOPIC"
MARK = lib.RMQ_ROLE_TRANSACTIONS << lib.RMQ_MARK_RANGE_SHIFT
PAIRS = b"PGROUP\x01G\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02"
PLAIN = End("G", 7, 900, ends.COMMIT)
GROUPS = (b"G", b"G\xc3\xa9", b"H", b"", b"\xff", "\ufffd".encode())


def row_of(end: End, texts: bytearray) -> Any:
    """The struct rmq_named_half of an end. Its texts are added to `texts`."""
    group = end.producer_group.encode()
    row = ffi.new("struct rmq_named_half *")
    row.queue_offset, row.position = end.queue_offset, end.position
    row.group_at, row.group_length = len(texts), len(group)
    texts += group
    return row


def first_of(row: Any) -> int | None:
    """The result in a struct rmq_named_half."""
    return records.first_of_mark(row.prepared_transaction_offset, row.queue_offset) if row.is_sound else None


def native(end: End, data: bytes) -> int | None:
    texts = bytearray()
    row = row_of(end, texts)
    lib.rmq_named_half_judge(row, bytes(texts), data, len(data))
    return first_of(row)


def both(end: End, data: bytes) -> int | None:
    """First offset of the half, on which C and Python agree. Nothing refuses the end of one that is sound."""
    found = native(end, data)
    assert found == judge(end, data)
    if found is not None:
        half = records.half_at(data, end.position)
        assert half is not None
        assert ends.refusal(end, half, 1, half.born_time_ms + (1 << 40)) is None
        assert found == records.first_of(half)
    return found


def half(pairs: bytes = PAIRS, *, topic: bytes = HALF, offset: int = 7, place: int = 900, prepared: int = 0) -> bytes:
    return stored(topic=topic, properties=pairs, queue_offset=offset, physical_offset=place, prepared=prepared)


def test_a_sound_end() -> None:
    assert both(PLAIN, half()) == 7
    assert both(PLAIN, half(prepared=MARK | 5)) == 5
    assert both(PLAIN, half(prepared=MARK | 1 << lib.RMQ_MARK_LANE_SHIFT | 5)) == 7
    assert both(PLAIN, half(b"PGROUP\x01G\x02")) == 7
    assert both(PLAIN, half(b"PGROUP\x01F\x02" + PAIRS)) == 7


@pytest.mark.parametrize(
    ("end", "data"),
    [
        (PLAIN, half(offset=8)),
        (PLAIN, half(place=901)),
        (PLAIN, half(topic=b"T")),
        (PLAIN, half()[:-1]),
        (PLAIN, half().replace(b"body", b"bodx")),
        (PLAIN, half(PAIRS + b"PGROUP\x01H\x02")),
        (PLAIN, half(b"REAL_TOPIC\x01T\x02")),
        (PLAIN, half(PAIRS + b"CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02")),
        (PLAIN._replace(producer_group=""), half(b"")),
        (PLAIN._replace(producer_group="\ufffd"), half(b"PGROUP\x01\xff\x02")),
    ],
)
def test_ends_that_are_not_sound(end: End, data: bytes) -> None:
    assert both(end, data) is None


@pytest.mark.parametrize("seed", range(4))
def test_random_ends(seed: int) -> None:
    dice = random.Random(seed)
    sound = 0
    for _ in range(3000):
        pairs = [b"PGROUP\x01" + dice.choice(GROUPS[:3] + GROUPS)]
        pairs += [b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01" + dice.choice((b"", b"5", b"x"))] * (dice.random() < 0.1)
        pairs += [dice.choice(pairs), b"OTHER\x01G", b"G"][: dice.randrange(4)]
        dice.shuffle(pairs)
        data = half(
            b"\x02".join(pairs), topic=HALF if dice.random() < 0.95 else b"T", offset=dice.choice((7, 7, 7, 8)),
            place=dice.choice((900, 900, 900, 0)), prepared=dice.choice((0, 1, MARK | 5, (MARK | 5) + (1 << 60))),
        )  # fmt: skip
        if dice.random() < 0.1:
            at = dice.randrange(len(data))
            data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        group = dice.choice(GROUPS[:3] * 2 + GROUPS).decode("utf-8", "replace")
        sound += both(PLAIN._replace(producer_group=group), data) is not None
    assert sound > 100


COUNT = 40


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """A half queue with COUNT halves in slot 0, another queue beside it."""
    kit = Kit(tmp_path)
    topic, other = kit.topic(HALF), kit.topic(b"T", 4)
    with kit.writer() as write, kit.dispatcher() as dispatch:
        for number in range(COUNT):
            kit.request(topic, 0, b"%04d" % number, properties=PAIRS)
            kit.request(other, 1, b"%04d" % number, properties=PAIRS)
            write()
            kit.completions()
        while kit.marks.dispatched_offset < kit.marks.append_offset:
            dispatch()
    return kit


def test_ends_of_a_stored_queue(kit: Kit) -> None:
    """Honest ends are sound. Ends with the place of another record, or behind the queue, are not."""
    slot = int(lib.rmq_queue_find(kit.plane, lib.rmq_topic_find(kit.plane, HALF, len(HALF)), 0))
    with QueueReader(kit.plane, 4, 4) as reader:
        units = reader.units(slot, 0, COUNT).units
        assert len(units) == COUNT
        honest = [
            PLAIN._replace(queue_offset=offset, position=unit.commit_log_offset) for offset, unit in enumerate(units)
        ]
        places = [unit.commit_log_offset for unit in units]
        lying = [
            *(end._replace(queue_offset=end.queue_offset + 1) for end in honest),
            *(end._replace(position=end.position + units[0].size) for end in honest),
            *(PLAIN._replace(queue_offset=offset, position=places[0]) for offset in (-1, COUNT, 1 << 62)),
            *(honest[0]._replace(position=place) for place in (-1, -(1 << 63), (1 << 63) - 1)),
            *(end._replace(producer_group="H") for end in honest),
        ]
        assert [held(reader, slot, end) for end in honest] == list(range(COUNT))
        assert [held(reader, slot, end) for end in lying] == [None] * len(lying)


def held(reader: QueueReader, slot: int, end: End) -> int | None:
    texts, record, size = bytearray(), ffi.new("struct rmq_held_record *"), ffi.new("uint32_t *")
    row = row_of(end, texts)
    is_held = lib.rmq_named_half_hold(reader.native, slot, row, bytes(texts) or b"\0", record, size)
    assert bool(is_held) == bool(row.is_sound)
    if is_held:
        lib.rmq_queue_reader_release(record)
    return first_of(row)
