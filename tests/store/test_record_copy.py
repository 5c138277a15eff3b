"""Record copies: C and Python agree byte for byte, and a copy without edits is the record."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.native import ffi, lib
from ringmq.store import layout, record_copy
from ringmq.store import record as records
from ringmq.store.native_copies import NativeCopies
from ringmq.store.record_copy import (
    Cause,
    CopiedRequest,
    CopyLimits,
    CopyRefused,
    EditKind,
    From,
    PairEdit,
    RecordCopy,
    copy_record,
)
from tests.store.copy_kit import LIMITS, both, encoded, log_records, parsed, random_copy, stored

SET, REMOVE, RENAME, DEFAULT, ADD = EditKind.SET, EditKind.REMOVE, EditKind.RENAME, EditKind.DEFAULT, EditKind.ADD
ALL_KINDS = (
    PairEdit(REMOVE, b"DELAY"),
    PairEdit(RENAME, b"TAGS", b"OLD_TAGS"),
    PairEdit(SET, b"KEYS", From.MESSAGE_ID),
    PairEdit(DEFAULT, b"UNIQ_KEY", b"none"),
    PairEdit(DEFAULT, b"RETRY_TOPIC", From.TOPIC),
    PairEdit(SET, b"place", From.QUEUE_OFFSET),
    PairEdit(ADD, b"TRANSACTION_CHECK_TIMES", 1),
)


def one(raw: bytes, *edits: PairEdit, limits: CopyLimits = LIMITS) -> CopiedRequest:
    """The copy of a record, which has to be made."""
    (copy,) = both([RecordCopy(raw, edits=edits)], limits)
    assert isinstance(copy, CopiedRequest), copy
    return copy


def refused(copy: RecordCopy, limits: CopyLimits = LIMITS) -> CopyRefused:
    """Why a copy is refused."""
    (outcome,) = both([copy], limits)
    assert isinstance(outcome, CopyRefused)
    return outcome


def edited(properties: bytes, *edits: PairEdit) -> bytes:
    """The properties of a copy of a record with these."""
    return one(stored(properties=properties), *edits).properties


def test_numbers_are_those_of_the_c_core() -> None:
    assert [getattr(lib, f"RMQ_COPY_{cause.name}") for cause in Cause] == list(Cause)
    assert [getattr(lib, f"RMQ_EDIT_{kind.name}") for kind in EditKind] == list(EditKind)
    assert [getattr(lib, f"RMQ_FROM_{source.name}") for source in From] == list(From)
    assert (lib.RMQ_EDITS_MAX, lib.RMQ_PROPERTIES_BYTES_MAX) == (
        record_copy.EDITS_MAX,
        record_copy.PROPERTIES_BYTES_MAX,
    )
    assert ffi.sizeof("struct rmq_record_copy") == 112


# -- every golden record -----------------------------------------------------------------------------------


NO_VALUE = b"TRACE_CONTEXT\x01\x02"
"""Stock stores it with the message that recalls a timer; stock's own copies lack it, too."""


def check_all(raws: list[bytes]) -> Counter[int]:
    """A copy without edits is the record; with edits of all kinds, C and Python agree. Counts the causes."""
    sources = [parsed(raw) for raw in raws]
    plain = [
        RecordCopy(
            raw,
            queue_id=source.queue_id,
            check_crc=True,
            prepared_transaction_offset=source.prepared_transaction_offset,
        )
        for raw, source in zip(raws, sources, strict=True)
    ]
    causes: Counter[int] = Counter()
    for raw, source, copy in zip(raws, sources, both(plain), strict=True):
        causes[copy.cause if isinstance(copy, CopyRefused) else 0] += 1
        if isinstance(copy, CopiedRequest):
            assert copy.properties == source.properties_raw.replace(NO_VALUE, b"")
            again = encoded(copy, source.topic_raw, raw)
            assert (
                again == raw
                if copy.properties == source.properties_raw
                else parsed(again).properties == source.properties
            )
    both([RecordCopy(raw, edits=ALL_KINDS, reconsume_times_added=1) for raw in raws])
    return causes


def test_golden_records(golden_basic: Path) -> None:
    raws = log_records(golden_basic)
    assert len(raws) == 4302
    assert {parsed(raw).magic for raw in raws} == {layout.MAGIC_V1, layout.MAGIC_V2}
    assert check_all(raws) == {0: 4302 - 120, Cause.INNER_BATCH: 120}


def test_golden_records_of_pop(pop_copy: Path) -> None:
    causes = check_all(log_records(pop_copy))
    assert set(causes) == {0} and causes[0] > 100


@pytest.mark.parametrize("variant", ["crash-kill9", "crash-torn", "crash-torn-body"])
def test_golden_records_of_a_killed_broker(variant: str, crashed_copy: Callable[[str], Path]) -> None:
    causes = check_all(log_records(crashed_copy(variant)))
    assert causes[0] > 100


# -- random records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_random_copies(seed: int) -> None:
    dice = random.Random(seed)
    met: Counter[int] = Counter()
    for _ in range(20):
        for outcome in both([random_copy(dice) for _ in range(100)]):
            met[outcome.cause if isinstance(outcome, CopyRefused) else 0] += 1
    assert met[0] > 500
    assert not [cause for cause in Cause if not met[cause] and cause not in (Cause.BODY, Cause.PROPERTIES)]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from([b"A", b"B", b""]), st.sampled_from([b"\x01", b"", b"\x01\x01"]),
                       st.sampled_from([b"1", b"", b"x", b"\0"]), st.sampled_from([b"\x02", b"", b"\x02\x02"]))),
    st.lists(st.tuples(st.sampled_from(EditKind), st.sampled_from([b"A", b"B", b"C"])), max_size=4),
)  # fmt: skip
def test_any_pairs(pieces: list[tuple[bytes, ...]], kinds: list[tuple[EditKind, bytes]]) -> None:
    values = {REMOVE: b"", RENAME: b"C", SET: b"new", DEFAULT: 7, ADD: 2}
    edits = tuple(PairEdit(kind, name, values[kind]) for kind, name in kinds)
    both([RecordCopy(stored(properties=b"".join(b"".join(piece) for piece in pieces)), edits=edits)])


@settings(max_examples=150)
@given(st.data())
def test_damaged_records(data: st.DataObject) -> None:
    raw = bytearray(
        stored(properties=b"TAGS\x01a\x02DELAY\x013\x02", topic=b"t" * data.draw(st.sampled_from([1, 127, 255])))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    both([RecordCopy(cut, edits=ALL_KINDS), RecordCopy(bytes(raw), edits=ALL_KINDS, check_crc=True)])


# -- edits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "properties", "wanted"),
    [
        (PairEdit(REMOVE, b"B"), b"A\x011\x02B\x012\x02C\x013\x02", b"A\x011\x02C\x013\x02"),
        (PairEdit(REMOVE, b"B"), b"B\x012\x02A\x011\x02B\x013", b"A\x011\x02"),
        (PairEdit(REMOVE, b"B"), b"B\x012\x02", b""),
        (PairEdit(REMOVE, b"B"), b"BB\x012\x02", b"BB\x012\x02"),
        (PairEdit(REMOVE, b"B"), b"", b""),
        (PairEdit(SET, b"B", b"9"), b"B\x012\x02A\x011", b"A\x011\x02B\x019\x02"),
        (PairEdit(SET, b"B", -3), b"", b"B\x01-3\x02"),
        (PairEdit(SET, b"B", b"x\x01y"), b"", b"B\x01x\x01y\x02"),
        (PairEdit(DEFAULT, b"B", 9), b"B\x012\x02A\x011\x02", b"B\x012\x02A\x011\x02"),
        (PairEdit(DEFAULT, b"B", 9), b"A\x011\x02", b"A\x011\x02B\x019\x02"),
        (PairEdit(DEFAULT, b"B", 9), b"B\x01\x02", b"B\x019\x02"),
        (PairEdit(RENAME, b"B", b"N"), b"B\x012\x02A\x011\x02B\x01x\x01y", b"N\x012\x02A\x011\x02N\x01x\x01y\x02"),
        (PairEdit(ADD, b"B", 1), b"A\x011\x02", b"A\x011\x02B\x011\x02"),
        (PairEdit(ADD, b"B", 2), b"B\x0140\x02A\x011\x02", b"A\x011\x02B\x0142\x02"),
        (PairEdit(ADD, b"B", 1), b"B\x0140\x02B\x015\x02", b"B\x016\x02"),
        (PairEdit(ADD, b"B", 1), b"B\x01nine\x02", b"B\x011\x02"),
        (PairEdit(ADD, b"B", 1), b"B\x012147483648\x02", b"B\x011\x02"),
    ],
)  # fmt: skip
def test_an_edit(edit: PairEdit, properties: bytes, wanted: bytes) -> None:
    assert edited(properties, edit) == wanted


def test_untouched_pairs_keep_bytes_and_order() -> None:
    pairs = b"Z\x011\x02A\x01x\x01y\x02Z\x012\x02\xff\x01\xfe\x02"
    assert edited(pairs) == pairs
    assert edited(pairs[:-1]) == pairs
    assert edited(pairs + b"DELAY\x013\x02", PairEdit(REMOVE, b"DELAY")) == pairs
    assert records.parse_properties(pairs)["Z"] == "2"


def test_pieces_that_are_no_pairs_are_left_out() -> None:
    assert edited(b"\x02A\x011\x02name\x02name\x01\x02\x01value\x02\x02B\x012\x02tail") == b"A\x011\x02B\x012\x02"


def test_edits_append_in_their_order() -> None:
    edits = [PairEdit(SET, b"C", 3), PairEdit(DEFAULT, b"B", 2), PairEdit(ADD, b"A", 1)]
    assert edited(b"X\x01x\x02A\x011\x02", *edits) == b"X\x01x\x02C\x013\x02B\x012\x02A\x012\x02"


def test_edits_look_at_stored_pairs_alone() -> None:
    edits = [PairEdit(RENAME, b"A", b"B"), PairEdit(REMOVE, b"B")]
    assert edited(b"A\x011\x02B\x012\x02", *edits) == b"B\x011\x02"


def test_values_of_the_record() -> None:
    raw = stored(topic=b"t" * 255, queue_id=7, queue_offset=1 << 40, physical_offset=258, store_host=bytes(range(16)))
    edits = [PairEdit(SET, source.name.encode(), source) for source in From]
    pairs = records.parse_properties(one(raw, *edits).properties)
    assert pairs == {
        "TOPIC": "t" * 255, "QUEUE_ID": "7", "QUEUE_OFFSET": str(1 << 40), "MESSAGE_ID": records.offset_message_id(
            records.parse_record(raw, 258)[1]),  # type: ignore[arg-type]
    }  # fmt: skip


# -- limits and refusals -----------------------------------------------------------------------------------


def test_full_properties() -> None:
    full = b"F\x01" + b"f" * 32764 + b"\x02"
    assert len(full) == 32767 and edited(full) == full
    unended = full[:-1] + b"f"
    assert refused(RecordCopy(stored(properties=unended))) == CopyRefused(Cause.PROPERTIES, 32768)
    swapped = PairEdit(REMOVE, b"G"), PairEdit(SET, b"H", b"1")
    fitting = b"G\x011\x02F\x01" + b"f" * 32760 + b"\x02"
    assert len(edited(fitting, *swapped)) == 32767
    assert refused(RecordCopy(stored(properties=fitting), edits=swapped[1:])) == CopyRefused(Cause.PROPERTIES, 32771)
    small = CopyLimits(100, properties_bytes_max=4)
    assert one(stored(properties=b"A\x011\x02"), limits=small).properties == b"A\x011\x02"
    assert refused(RecordCopy(stored(properties=b"A\x0112\x02")), small) == CopyRefused(Cause.PROPERTIES, 5)
    assert refused(RecordCopy(stored(properties=unended)), CopyLimits(9, 99999)).cause == Cause.PROPERTIES


def test_body_over_the_limit() -> None:
    assert one(stored(body=b"12345"), limits=CopyLimits(5)).body == b"12345"
    assert refused(RecordCopy(stored(body=b"123456")), CopyLimits(5)) == CopyRefused(Cause.BODY, 6)


def test_damaged_body_is_met_when_asked_for() -> None:
    raw = stored(body=b"the body").replace(b"the body", b"tHe body")
    assert one(raw).body == b"tHe body"
    assert refused(RecordCopy(raw, check_crc=True)) == CopyRefused(Cause.DAMAGED, records.BAD_CRC)
    assert refused(RecordCopy(raw[:-1])) == CopyRefused(Cause.DAMAGED, records.SHORT)
    assert refused(RecordCopy(b"")) == CopyRefused(Cause.DAMAGED, records.SHORT)


def test_a_record_of_another_place_is_refused() -> None:
    raw = stored(physical_offset=1 << 40)
    (copy,) = both([RecordCopy(raw, position=1 << 40)])
    assert isinstance(copy, CopiedRequest)
    assert refused(RecordCopy(raw, position=0)) == CopyRefused(Cause.PLACE, 1 << 40)


def test_inner_batches_are_refused() -> None:
    assert refused(RecordCopy(stored(sys_flag=0xC0))).cause == Cause.INNER_BATCH
    assert refused(RecordCopy(stored(sys_flag=0xC0), sys_flag_clear=0xC0)).cause == Cause.INNER_BATCH
    assert refused(RecordCopy(stored(), sys_flag_set=0x80)).cause == Cause.INNER_BATCH


def test_a_nul_is_refused() -> None:
    raw = stored(properties=b"A\x011\x02B\x01x\0y\x02")
    assert refused(RecordCopy(raw)) == CopyRefused(Cause.NUL, 7)
    assert refused(RecordCopy(raw, edits=(PairEdit(REMOVE, b"B"),))) == CopyRefused(Cause.NUL, 7)


def test_a_topic_that_is_no_value_is_refused() -> None:
    edit = PairEdit(SET, b"REAL_TOPIC", From.TOPIC)
    for topic in (b"", b"a\x02b", b"a\0b"):
        assert refused(RecordCopy(stored(topic=topic), edits=(edit,))).cause == Cause.TOPIC
        assert one(stored(topic=topic)).properties == b""
    assert one(stored(topic=b"a\x01b"), edit).properties == b"REAL_TOPIC\x01a\x01b\x02"


@pytest.mark.parametrize(
    "edit",
    [PairEdit(SET, b"", 1), PairEdit(SET, b"a\x01", 1), PairEdit(SET, b"a\x02", 1), PairEdit(SET, b"a\0", 1),
     PairEdit(SET, b"a"), PairEdit(SET, b"a", b"\x02"), PairEdit(DEFAULT, b"a", b"\0"), PairEdit(RENAME, b"a"),
     PairEdit(RENAME, b"a", b"b\x01c"), PairEdit(REMOVE, b"good")],
)  # fmt: skip
def test_malformed_edits_are_refused(edit: PairEdit) -> None:
    edits = (PairEdit(REMOVE, b"good"), edit)
    assert refused(RecordCopy(stored(), edits=edits)) == CopyRefused(Cause.EDIT, 1)


def test_too_many_edits_are_refused() -> None:
    edits = tuple(PairEdit(SET, b"N%d" % number, number) for number in range(33))
    assert refused(RecordCopy(stored(), edits=edits)) == CopyRefused(Cause.EDIT, 32)
    assert one(stored(), *edits[:32]).properties.count(b"\x02") == 32


def test_an_edit_out_of_its_texts_is_refused() -> None:
    native = NativeCopies([RecordCopy(stored(), edits=(PairEdit(SET, b"a", b"b"),))], LIMITS, bytearray(100), 0, 100)
    edit = ffi.cast("struct rmq_pair_edit *", native.batch.edits)
    for field, value in (
        ("name_at", 2),
        ("name_at", 0xFFFFFFFF),
        ("value_length", 2),
        ("kind", 0),
        ("kind", 6),
        ("value_from", 6),
    ):
        kept = getattr(edit, field)
        setattr(edit, field, value)
        assert native.run() == 1
        assert (native.copies[0].cause, native.copies[0].detail) == (Cause.EDIT, 0), (field, value)
        setattr(edit, field, kept)
    for start, count in ((0, 2), (2, 0), (1, 0xFFFFFFFF)):
        native.copies[0].edits_from, native.copies[0].edits_count = start, count
        assert native.run() == 1
        assert (native.copies[0].cause, native.copies[0].detail) == (Cause.EDIT, 32)


# -- other fields ------------------------------------------------------------------------------------------


def test_fields_are_kept_or_replaced() -> None:
    raw = stored(sys_flag=0x305, flag=9, reconsume_times=3, prepared=77, born_host=bytes(range(16)), born_port=1)
    kept, changed = both(
        [
            RecordCopy(raw),
            RecordCopy(
                raw, 1, 2, 3, no_wait=True, sys_flag_clear=0xC, sys_flag_set=8, flag=0, reconsume_times=0,
                born_time_ms=5, born_host=(b"\1\2\3\4", 80), prepared_transaction_offset=1234,
            ),
        ]
    )  # fmt: skip
    body = b"body"
    assert kept == CopiedRequest(
        body, b"", 0, 0, 0, 9, 0x305, 3, 0, 1_700_000_000_000, bytes(range(16)), 1, no_wait=False
    )
    assert changed == CopiedRequest(body, b"", 1, 2, 3, 0, 0x309, 0, 1234, 5, b"\1\2\3\4", 80, no_wait=True)


@pytest.mark.parametrize(("stored_times", "added", "wanted"), [(3, 1, 4), (0x7FFFFFFF, 1, -(1 << 31)), (-1, 1, 0)])
def test_reconsume_times_count_as_in_java(stored_times: int, added: int, wanted: int) -> None:
    (copy,) = both([RecordCopy(stored(reconsume_times=stored_times), reconsume_times_added=added)])
    assert isinstance(copy, CopiedRequest) and copy.reconsume_times == wanted


# -- room --------------------------------------------------------------------------------------------------


def test_a_batch_goes_on_where_its_arena_had_no_room() -> None:
    copies = [RecordCopy(stored(body=bytes([n]) * 50, properties=b"A\x01b\x02"), queue_id=n) for n in range(20)]
    copies[7] = RecordCopy(b"damaged")
    arena, first, made = bytearray(200), 0, 0
    native = NativeCopies(copies, LIMITS, arena, 0, 170)
    while first < 20:
        native.batch.arena_at = 0
        done = native.run(first)
        assert done - first - (first <= 7 < done) == (3 if done < 20 else 19 - made)
        assert native.batch.needed == (54 if done < 20 else 0)
        assert not any(arena[170:])
        for number in range(first, done):
            request = native.requests[number]
            if number == 7:
                assert (request.kind, native.copies[7].cause) == (0, Cause.DAMAGED)
                continue
            assert arena[request.body_at : request.body_at + 54] == bytes([number]) * 50 + b"A\x01b\x02"
            made += 1
        first = done
    assert made == 19


@pytest.mark.parametrize("room", range(63))
def test_no_byte_is_written_beyond_the_room(room: int) -> None:
    arena = bytearray(b"\xa5" * 100)
    copy = RecordCopy(
        stored(body=b"b" * 40, properties=b"A\x011\x02B\x012\x02"), edits=(PairEdit(SET, b"NEW", b"12345678"),)
    )
    native = NativeCopies([copy], LIMITS, arena, 10, 10 + room)
    needed = 40 + 8 + 13
    assert native.run() == (room >= needed)
    assert native.batch.needed == (needed if room < needed else 0)
    assert arena[10 + room :] == b"\xa5" * (90 - room) and arena[:10] == b"\xa5" * 10


def test_room_of_nothing() -> None:
    native = NativeCopies([RecordCopy(stored())], LIMITS, bytearray(8), 8, 2)
    assert (native.run(), native.batch.needed) == (0, 4)
    wanted = copy_record(RecordCopy(stored()), LIMITS)
    assert isinstance(wanted, CopiedRequest) and wanted.bytes_needed == 4
