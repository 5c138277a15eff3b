"""Records of transactions: what a half message says, read fast and in full."""

import random

import pytest

from ringmq.ipc.ports import mark_of
from ringmq.native import ffi, lib
from ringmq.services.transactions import records
from ringmq.services.transactions.half_table import NO_IMMUNITY, Half
from tests.store.copy_kit import parsed, stored

TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"


def fast(raw: bytes) -> Half | None:
    """`sent_half` of these bytes."""
    view, at = ffi.new("struct rmq_record_view *"), ffi.from_buffer("uint8_t *", raw)
    assert lib.rmq_record_parse(at, len(raw), 1, view) == lib.RMQ_RECORD_OK
    return records.sent_half(view, at)


@pytest.mark.parametrize("seed", range(50))
def test_a_sent_half_read_fast_and_in_full(seed: int) -> None:
    dice = random.Random(seed)
    value = dice.choice(("0", "90", "-1", "x", "9" * 30))
    immunity = dice.choice(("", f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{value}\x02"))
    pairs = f"A\x011\x02{immunity}UNIQ_KEY\x01K\x02PGROUP\x01CHECK_IMMUNITY_TIME_IN_SECONDS\x02"
    raw = stored(
        topic=TOPIC, properties=pairs.encode(), queue_offset=dice.randrange(1 << 40), body=dice.randbytes(9),
        born_host=dice.randbytes(dice.choice((4, 16))),
    )  # fmt: skip
    assert fast(raw) == records.half_record(parsed(raw)).half


def sent_halves(raw: list[bytes]) -> list[Half]:
    """The halves of these records: those that C reads, and those that it leaves to `sent_half`."""
    held, units = ffi.new("struct rmq_held_record[]", len(raw)), ffi.new("struct rmq_queue_unit[]", len(raw))
    kept = [ffi.from_buffer("uint8_t *", record) for record in raw]
    for number, record in enumerate(raw):
        held[number].at, units[number].size = kept[number], len(record)
    firsts, born, at = ffi.new("int64_t[]", len(raw)), ffi.new("int64_t[]", len(raw)), ffi.new("uint32_t *")
    found = []
    while at[0] < len(raw):
        count = lib.rmq_sent_halves(held, units, len(raw), at, firsts, born)
        found += [Half(firsts[number], firsts[number], born[number], NO_IMMUNITY, 0) for number in range(count)]
        if at[0] < len(raw):
            half = fast(raw[at[0]])
            assert half is not None and b"CHECK_IMMUNITY_TIME_IN_SECONDS" in raw[at[0]]
            found.append(half)
            at[0] += 1
    return found


@pytest.mark.parametrize("seed", range(10))
def test_sent_halves_beside_their_twin(seed: int) -> None:
    dice = random.Random(seed)
    raw = []
    for number in range(30):
        immunity = dice.choice((b"", b"", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x0190\x02"))
        prepared = dice.choice((0, 0, 0, mark_of(records.ROLE, records.HALF_LANE, 4), 7))
        raw.append(stored(topic=TOPIC, queue_offset=number, properties=b"A\x011\x02" + immunity, prepared=prepared))
        if dice.random() < 0.1:
            raw.append(dice.randbytes(80))
    halves = [parsed(record) for record in raw if records.parse_record(record)[1] is not None]
    wanted = [records.half_record(half).half for half in halves if not half.prepared_transaction_offset]
    assert sent_halves(raw) == wanted and len(wanted) > 5


def test_a_copy_is_no_sent_half() -> None:
    raw = stored(topic=TOPIC, queue_offset=9, prepared=mark_of(records.ROLE, records.HALF_LANE, 4))
    assert fast(raw) is None
    assert records.first_of(parsed(raw)) == 4


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
