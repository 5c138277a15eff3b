"""Records of transactions: what a half message says, read fast and in full."""

import random

import pytest

from ringmq.ipc.ports import mark_of
from ringmq.native import ffi
from ringmq.services.transactions import records
from ringmq.services.transactions.half_table import NO_IMMUNITY, DoneHalves, Half, HalfTable
from ringmq.store.queue_reader import RecordBatch
from tests.store.copy_kit import parsed, stored

TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"


HALF_MARK = mark_of(records.ROLE, records.HALF_LANE, 4)
KEPT: list[object] = []
"""The bytes that batches point at."""


def batch_of(raw: list[bytes], offsets: tuple[int, ...] = ()) -> RecordBatch:
    """These bytes as records that a queue reader holds, with these queue offsets, or those from 0 on."""
    batch = RecordBatch(len(raw))
    KEPT.extend(kept := [ffi.from_buffer("uint8_t *", record) for record in raw])
    for number, record in enumerate(raw):
        batch.records[number].at = kept[number]
        batch.units[number].queue_offset = offsets[number] if offsets else number
        batch.units[number].size = len(record)
    return batch


def halves_of(table: HalfTable) -> list[Half]:
    """All halves of the table."""
    return list(table.following(0, 1 << 20))


def some_records(dice: random.Random) -> list[bytes]:
    """Halves of producers and copies, with properties of all kinds, and bytes that are no record."""
    raw = []
    for number in range(60):
        value = dice.choice(("0", "90", "-1", "x", "9" * 18, "9" * 19, "7\x00"))
        name = dice.choice(("CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"))
        pairs = f"A\x011\x02{name}\x01{value}\x02" * dice.randrange(2) + f"{name}\x01\x02PGROUP\x01{name}\x02"
        prepared = dice.choice((0, 0, 0, HALF_MARK, 7, mark_of(records.ROLE, records.OP_LANE, 4)))
        record = stored(
            topic=TOPIC, properties=pairs.encode(), queue_offset=number, body=dice.randbytes(9), prepared=prepared,
            born_host=dice.randbytes(dice.choice((4, 16))),
        )  # fmt: skip
        raw.append(record if dice.random() < 0.9 else dice.randbytes(80))
    return raw


@pytest.mark.parametrize("seed", range(20))
def test_halves_of_producers_beside_their_twin(seed: int) -> None:
    raw, table, twin = some_records(random.Random(seed)), HalfTable(), HalfTable()
    table.arrive(batch_of(raw), len(raw))
    for record in raw:
        half = records.parse_record(record)[1]
        if half is not None and not half.prepared_transaction_offset:  # the table knows copies
            twin.add(records.half_record(half).half._replace(checks=0))
    assert halves_of(table) == halves_of(twin) and len(table) > 5


@pytest.mark.parametrize("seed", range(20))
def test_staged_halves_beside_their_twin(seed: int) -> None:
    raw, table, twin = some_records(random.Random(seed)), HalfTable(), HalfTable()
    done, damaged = DoneHalves(0, 50), []
    done.add(range(0, 50, 3))
    for number, record in enumerate(raw[:50]):
        half = records.parse_record(record)[1]
        if half is None:
            damaged.append(number)
            continue
        read = records.half_record(half)
        twin.stage_half(read.half, done, is_stock_copy=read.is_stock_copy)
    assert table.stage(batch_of(raw), len(raw), done) == damaged
    assert table.has_stock_copies == twin.has_stock_copies
    assert list(table.settle()) == list(twin.settle())
    assert halves_of(table) == halves_of(twin) and len(table) > 5


def test_a_damaged_body_is_found_at_a_start() -> None:
    raw, table = stored(topic=TOPIC, body=b"body"), HalfTable()
    assert table.stage(batch_of([raw.replace(b"body", b"bodx")]), 1, DoneHalves(0, 1)) == [0]
    assert len(table) == 0


def test_halves_come_in_their_order() -> None:
    offsets, table = (4, 6, 6), HalfTable()
    raw = [stored(topic=TOPIC, queue_offset=offset) for offset in offsets]
    with pytest.raises(ValueError, match="comes behind 6"):
        table.arrive(batch_of(raw, offsets), 3)
    assert [half.first for half in halves_of(table)] == [4, 6]


@pytest.mark.parametrize("bit", range(64))
def test_a_wrong_queue_offset_in_a_record_stops_no_later_half(bit: int) -> None:
    """No checksum covers the queue offset of a record. The unit of the queue has it, too."""
    raw, table, started = [stored(topic=TOPIC, queue_offset=offset) for offset in range(3)], HalfTable(), HalfTable()
    flipped = bytearray(raw[1])
    flipped[27 - bit // 8] ^= 1 << bit % 8
    raw[1] = bytes(flipped)
    assert started.stage(batch_of(raw[:2]), 2, DoneHalves(0, 2)) == [1]
    started.settle()
    started.arrive(batch_of(raw[2:], (2,)), 1)
    table.arrive(batch_of(raw), 3)
    assert [half.first for half in halves_of(table)] == [half.first for half in halves_of(started)] == [0, 2]


@pytest.mark.parametrize("bit", range(48))
def test_a_wrong_mark_in_a_copy_stops_no_later_half(bit: int) -> None:
    """Nor does one cover the mark. A copy that names a later half is a half of its own."""
    raw, table = stored(topic=TOPIC, queue_offset=9, prepared=HALF_MARK ^ 1 << bit), HalfTable()
    assert table.stage(batch_of([raw], (9,)), 1, DoneHalves(9, 10)) == []
    table.settle()
    table.arrive(batch_of([stored(topic=TOPIC, queue_offset=10)], (10,)), 1)
    first, later = halves_of(table)
    assert first == records.half_record(parsed(raw)).half and first.first <= 9 and later.first == 10


def test_a_copy_names_its_first_half() -> None:
    assert records.first_of(parsed(stored(topic=TOPIC, queue_offset=9, prepared=HALF_MARK))) == 4


@pytest.mark.parametrize("prepared", [0, 77, mark_of(records.ROLE, records.OP_LANE, 4), mark_of(30, 0, 4)])
def test_other_marks_name_no_first_half(prepared: int) -> None:
    assert records.first_of(parsed(stored(topic=TOPIC, queue_offset=9, prepared=prepared))) == 9


def test_a_stock_copy() -> None:
    for pair, is_copy in (("TRANSACTION_CHECK_TIMES\x013\x02", True), ("TRAN_PREPARED_QUEUE_OFFSET\x013\x02", True),
                          ("TRANSACTION_CHECK_TIMES\x01x\x02", False), ("A\x01b\x02", False)):  # fmt: skip
        read = records.half_record(parsed(stored(topic=TOPIC, queue_offset=9, properties=pair.encode())))
        assert (read.is_stock_copy, read.half.first, read.half.immunity_s) == (is_copy, 9, NO_IMMUNITY)


@pytest.mark.parametrize(
    ("body", "position", "is_its"),
    [(b"half", 0, True), (b"other", 0, False), (b"half", 400, True), (b"other", 400, True)],
)
def test_a_copy_that_names_no_half_ends_none(body: bytes, position: int, is_its: bool) -> None:
    """A consumer's send-back of a committed message keeps the bits of the commit, with the offset 0."""
    half = stored(topic=TOPIC, body=b"half", physical_offset=position)
    log = {position: half, 900: stored(body=body, sys_flag=8, prepared=position, physical_offset=900)}
    found = records.half_of_commit(log.get, position, 900)
    assert (found == parsed(half)) if is_its else found is None
    assert records.half_of_commit({}.get, position, 900) is None
    assert records.half_of_commit({position: log[900]}.get, position, 900) is None, "it is no half"


def test_op_records() -> None:
    body = records.op_body([3, 1, 1 << 47])
    assert (body, records.offsets_of_op(body)) == (b"3,1,140737488355328,", [3, 1, 1 << 47])
    assert records.offsets_of_op(b"5,,x,-1,\xff, 7,8") == [5, 8]
    assert records.low_of_op(parsed(stored(prepared=records.op_mark(12)))) == 12
    assert records.low_of_op(parsed(stored())) is None
