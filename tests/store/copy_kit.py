"""Record copies made twice, by the C core and by its Python twin, and compared; stored records of any shape."""

import random
import struct
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ringmq.native import ffi, lib
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

LIMITS = CopyLimits(body_bytes_max=4 << 20)
NO_TARGETS = (CopyRefused(Cause.NO_PAIR, 1), CopyRefused(Cause.NO_TOPIC), CopyRefused(Cause.NO_QUEUE, 5))
GUARD = b"\xa5" * 64
NAMES = (b"A", b"BB", b"DELAY", b"TAGS", b"KEYS", b"UNIQ_KEY", b"REAL_TOPIC", b"REAL_QID", b"N\xc3\xa4me")


def stored(
    *, topic: bytes = b"T", body: bytes = b"body", properties: bytes = b"", sys_flag: int = 0, flag: int = 0,
    queue_id: int = 0, queue_offset: int = 0, physical_offset: int = 0, reconsume_times: int = 0, prepared: int = 0,
    born_host: bytes = b"\x0a\0\0\1", born_port: int = 5555, store_host: bytes = b"\x7f\0\0\1", store_port: int = 10911,
) -> bytes:  # fmt: skip
    """A stored record, byte for byte: nothing is added to the properties. The hosts decide about their bits."""
    sys_flag |= 0x10 * (len(born_host) == 16) | 0x20 * (len(store_host) == 16)
    v2 = len(topic) > 127
    tail = struct.pack(">iqi", reconsume_times, prepared, len(body)) + body
    tail += struct.pack(">H" if v2 else ">B", len(topic)) + topic + struct.pack(">H", len(properties)) + properties
    hosts = struct.pack(">q", 1_700_000_000_000) + born_host + struct.pack(">I", born_port)
    hosts += struct.pack(">q", 1_700_000_000_123) + store_host + struct.pack(">I", store_port)
    numbers = struct.pack(">IiiqqI", records.crc32(body), queue_id, flag, queue_offset, physical_offset, sys_flag)
    size = 8 + len(numbers) + len(hosts) + len(tail)
    return struct.pack(">II", size, 0xDAA320AB if v2 else 0xDAA320A7) + numbers + hosts + tail


def parsed(raw: bytes) -> records.Record:
    """The record that stands in `raw`, its CRC checked."""
    result, record = records.parse_record(raw)
    assert record is not None, records.REASONS[result]
    return record


def log_records(root: Path) -> list[bytes]:
    """All whole records of the CommitLog files of a store."""
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while (size := _size_at(data, at)) and records.parse_record(data[at : at + size])[0] == records.OK:
            found.append(data[at : at + size])
            at += size
    return found


def _size_at(data: bytes, at: int) -> int:
    size, magic = struct.unpack_from(">II", data, at) if at + 8 <= len(data) else (0, 0)
    return size if magic in (0xDAA320A7, 0xDAA320AB) else 0


def made(request: Any, arena: bytes | bytearray) -> CopiedRequest:
    """What a struct rmq_request says, as the twin says it."""
    assert request.kind == lib.RMQ_APPEND_SINGLE
    assert (request.extra_length, request.received_mono_ns) == (0, 0)
    host_bytes = 16 if request.flags & lib.RMQ_APPEND_FLAG_BORN_V6 else 4
    return CopiedRequest(
        body=bytes(arena[request.body_at : request.body_at + request.body_length]),
        properties=bytes(arena[request.properties_at : request.properties_at + request.properties_length]),
        topic_id=request.topic_id, queue_slot=request.queue_slot, queue_id=request.queue_id, flag=request.flag,
        sys_flag=request.sys_flag, reconsume_times=request.reconsume_times,
        prepared_transaction_offset=request.prepared_transaction_offset, born_time_ms=request.born_time_ms,
        born_host=bytes(ffi.buffer(request.born_host))[:host_bytes], born_port=request.born_port,
        no_wait=bool(request.flags & lib.RMQ_APPEND_FLAG_NO_WAIT),
    )  # fmt: skip


def both(copies: Sequence[RecordCopy], limits: CopyLimits = LIMITS) -> list[CopiedRequest | CopyRefused]:
    """The copies, which C and Python make alike in an arena that has just room for them."""
    wanted = [copy_record(copy, limits) for copy in copies]
    room = sum(copy.bytes_needed for copy in wanted if isinstance(copy, CopiedRequest))
    arena = bytearray(GUARD + bytes(room) + GUARD)
    native = NativeCopies(copies, limits, arena, len(GUARD), len(GUARD) + room)
    assert native.run() == len(copies)
    assert (native.batch.arena_at, native.batch.needed) == (len(GUARD) + room, 0)
    assert arena[: len(GUARD)] == arena[-len(GUARD) :] == GUARD
    for number, outcome in enumerate(wanted):
        copy, request = native.copies[number], native.requests[number]
        if isinstance(outcome, CopyRefused):
            assert (copy.cause, copy.detail) == (outcome.cause, outcome.detail), number
            assert not any(bytes(ffi.buffer(native.requests + number, ffi.sizeof("struct rmq_request")))), number
        else:
            assert (copy.cause, copy.detail) == (lib.RMQ_COPY_MADE, 0), number
            assert made(request, arena) == outcome, number
    return wanted


def encoded(copy: CopiedRequest, topic: bytes, like: bytes) -> bytes:
    """The record that `rmq_record_encode` makes of it; place, store time and store host are those of `like`."""
    source, value = parsed(like), ffi.new("struct rmq_record_in *")
    kept = [ffi.from_buffer(copy.body), ffi.from_buffer(topic), ffi.from_buffer(copy.properties)]
    value.body, value.topic, value.properties[0] = kept
    value.body_length, value.topic_length, value.properties_length[0] = map(len, (copy.body, topic, copy.properties))
    value.queue_offset, value.physical_offset = source.queue_offset, source.physical_offset
    value.born_time_ms, value.store_time_ms = copy.born_time_ms, source.store_time_ms
    value.prepared_transaction_offset = copy.prepared_transaction_offset
    value.queue_id, value.flag, value.reconsume_times = copy.queue_id, copy.flag, copy.reconsume_times
    value.sys_flag = copy.sys_flag | 0x10 * (len(copy.born_host) == 16) | source.sys_flag & 0x20
    host, _, port = source.store_host.rpartition(":")
    value.born_host, value.born_port = copy.born_host.ljust(16, b"\0"), copy.born_port - (copy.born_port >> 31 << 32)
    value.store_host, value.store_port = ip_address(host.strip("[]")).packed.ljust(16, b"\0"), int(port)
    size = lib.rmq_record_size(value)
    room = ffi.new("uint8_t[]", size)
    assert lib.rmq_record_encode(room, size, value) == size
    return bytes(ffi.buffer(room))


# -- random records ----------------------------------------------------------------------------------------


def random_properties(dice: random.Random) -> bytes:
    """Pairs, with all that decoders have to bear: broken ones, 01 in values, repeated names, no last 02, NULs."""
    pieces = []
    for _ in range(dice.choice((0, 1, 3, 8, 20))):
        name, value = (
            dice.choice(NAMES),
            dice.choice((b"1", b"-5", b"+7", b"value", b"x\x01y", b"\x01", b"9" * 30, b"w" * 200)),
        )
        shape = dice.randrange(24)
        broken = {0: name, 1: name + b"\x01", 2: b"\x01" + value, 3: b""}
        pieces.append(broken.get(shape, name + b"\x01" + value))
    raw = b"".join(piece + b"\x02" for piece in pieces)
    if raw and not dice.randrange(4):
        raw = raw[:-1]
    if raw and not dice.randrange(12):
        at = dice.randrange(len(raw))
        raw = raw[:at] + b"\0" + raw[at + 1 :]
    if not dice.randrange(30):  # full
        raw += b"F\x01" + b"f" * (32767 - len(raw) - 3) + b"\x02"
    return raw


def random_record(dice: random.Random) -> bytes:
    """A stored record; one in eight damaged, cut or followed by the next one."""
    raw = stored(
        topic=dice.choice((b"T", b"t" * 127, b"t" * 128, b"t" * 255, b"", b"T\x02", b"T\x01", b"n\0l")),
        body=dice.randbytes(dice.choice((0, 1, 16, 300))), properties=random_properties(dice),
        sys_flag=dice.choice((0, 0, 1, 4, 8, 12, 0x301, 0x40, 0xC0)), flag=dice.choice((0, 7, -1)),
        queue_id=dice.choice((0, 3, -1)), queue_offset=dice.choice((0, 1 << 40, -1)),
        physical_offset=dice.choice((0, 123456789, -1)), reconsume_times=dice.choice((0, 5, 0x7FFFFFFF, -1)),
        prepared=dice.choice((0, 99)), born_host=dice.randbytes(dice.choice((4, 16))),
        store_host=dice.randbytes(dice.choice((4, 16))), born_port=dice.choice((0, 65535, 0xFFFFFFFF)),
    )  # fmt: skip
    match dice.randrange(24):
        case 0:
            at = dice.randrange(len(raw))
            return raw[:at] + dice.randbytes(1) + raw[at + 1 :]
        case 1:
            return raw[: dice.randrange(len(raw))]
        case 2:
            return raw + dice.randbytes(9)
    return raw


def random_edits(dice: random.Random) -> tuple[PairEdit, ...]:
    """Edits with different names; one list in twenty is malformed."""
    edits = []
    for name in dice.sample((*NAMES, b"NEW", b"NEW2"), dice.choice((0, 1, 2, 5))):
        kind = dice.choice(tuple(EditKind))
        value = dice.choice((b"text", b"a\x01b", 0, -(1 << 63), (1 << 63) - 1, *From))
        if kind == EditKind.RENAME:
            value = dice.choice((b"R", b"DELAY", b"r" * 300))
        elif kind == EditKind.ADD:
            value = dice.choice((1, -1, (1 << 63) - 1))
        edits.append(PairEdit(kind, name, value))
    if edits and not dice.randrange(20):
        wrong = (b"", b"n\0", b"n\x01", b"n\x02", edits[0].name)
        edits.append(PairEdit(EditKind.REMOVE, dice.choice(wrong)))
    if not dice.randrange(40):
        edits.append(PairEdit(EditKind.SET, b"WRONG", dice.choice((b"", b"v\x02", b"v\0"))))
    if not dice.randrange(100):
        edits += [PairEdit(EditKind.SET, b"MANY%d" % number, number) for number in range(dice.choice((20, 33)))]
    return tuple(edits)


def random_copy(dice: random.Random) -> RecordCopy:
    """Any copy of any record."""
    return RecordCopy(
        random_record(dice), dice.randrange(9), dice.randrange(9), dice.randrange(9), random_edits(dice),
        position=dice.choice((None, None, None, 0)),
        check_crc=dice.random() < 0.5, no_wait=dice.random() < 0.5, sys_flag_clear=dice.choice((0, 0xC, 0xFFFFFFFF)),
        sys_flag_set=dice.choice((0, 0, 8, 0x30, 0x80)), flag=dice.choice((None, 3, -3)),
        reconsume_times=dice.choice((None, None, 0, 16)), reconsume_times_added=dice.choice((0, 1)),
        born_time_ms=dice.choice((None, 5)),
        born_host=dice.choice((None, (b"\1\2\3\4", 80), (bytes(range(16)), 0xFFFFFFFF))),
        prepared_transaction_offset=dice.choice((0, 1 << 50)), no_target=dice.choice((None,) * 20 + NO_TARGETS),
    )  # fmt: skip
