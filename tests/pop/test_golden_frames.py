"""Frames that a stock broker and its client have exchanged: C and Python read the same records of them, and the answers
are written byte by byte as stock writes them."""

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ringmq.broker.requests.request import Connection, Request
from ringmq.native import ffi, lib
from ringmq.pop.batch_acks import read_batch_ack
from ringmq.pop.look_frames import Seen, nothing_found, peeked, polling_info
from ringmq.pop.native_desk import TABLES
from ringmq.pop.receipts import read_receipt
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame

FRAMES = Path(__file__).parent.parent / "golden" / "pop" / "frames.jsonl"
POP, ACK, BATCH_ACK, CHANGE = 200050, 200051, 200151, 200053
PEEK, NOTIFICATION, POLLING_INFO = 200052, 200054, 200055
NATIVE = {
    POP: lib.rmq_pop_table, ACK: lib.rmq_pop_ack_table, CHANGE: lib.rmq_pop_change_table,
    NOTIFICATION: lib.rmq_pop_notification_table,
}  # fmt: skip


class Pair(NamedTuple):
    """A request of the recording, and the answer to it."""

    name: str
    request: bytes
    answer: bytes

    @property
    def asked(self) -> RemotingCommand:
        return decode_frame(self.request)

    @property
    def answered(self) -> RemotingCommand:
        return decode_frame(self.answer)


def pairs() -> list[Pair]:
    """Requests of POP with their answers."""
    open_: dict[tuple[int, int], tuple[str, bytes]] = {}
    found = []
    for line in FRAMES.read_text().splitlines():
        row = json.loads(line)
        frame = bytes.fromhex(row["hex"])
        command = decode_frame(frame)
        key = row["part"], command.opaque
        if row["dir"] == "req" and row["code"] in (*NATIVE, BATCH_ACK, PEEK, POLLING_INFO):
            open_[key] = row["scenario"], frame
        elif row["dir"] == "resp" and key in open_:
            name, request = open_.pop(key)
            found.append(Pair(f"{row['part']}-{name}", request, frame))
    return found


PAIRS = pairs()
_INFOS = ("startOffsetInfo", "msgOffsetInfo", "orderCountInfo")


def header(frame: bytes) -> bytes:
    """The frame without its body."""
    return frame[: 8 + int.from_bytes(frame[5:8])]


def test_the_recording_has_all_of_it() -> None:
    codes = [pair.asked.code for pair in PAIRS]
    assert len(PAIRS) > 120
    assert {code: codes.count(code) > 1 for code in (*NATIVE, BATCH_ACK)} == dict.fromkeys((*NATIVE, BATCH_ACK), True)


@pytest.mark.parametrize("code", NATIVE)
def test_c_and_python_read_the_same_record(code: int) -> None:
    table, native = TABLES[code], NATIVE[code]
    frames = [pair.request for pair in PAIRS if pair.asked.code == code]
    assert frames
    for frame in frames:
        asked = ffi.new("struct rmq_plain_asked *")
        record, text = ffi.new("uint64_t[16]"), ffi.new("uint8_t[]", lib.RMQ_POP_TEXT_BYTES_MAX)
        result = lib.rmq_plain_decode(ffi.addressof(native), frame, len(frame), asked, record, text)
        assert result == lib.RMQ_PLAIN_READ, frame
        command = decode_frame(frame)
        wanted = table.decode(command.ext_fields, command.version)
        assert bytes(ffi.buffer(record, len(wanted.data))) == wanted.data
        assert bytes(ffi.buffer(text, len(wanted.text))) == wanted.text
        assert (asked.code, asked.opaque) == (code, command.opaque)


def test_receipts_are_read() -> None:
    texts = {pair.asked.ext_fields.get("extraInfo") for pair in PAIRS if pair.asked.code in (ACK, CHANGE)}
    assert len(texts) > 30
    unread = {text for text in texts if text is not None and read_receipt(text) is None}
    assert unread == {"a b"}


def test_batches_are_read() -> None:
    bodies = [pair.asked.body for pair in PAIRS if pair.asked.code == BATCH_ACK]
    found = [ack for body in bodies for ack in read_batch_ack(body).acks]
    assert {ack.bits for ack in found} >= {b"\x06", b"\x03\x02"}
    assert {ack.flag for ack in found} == {"0", "7"}


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.asked.code in (POP, CHANGE)], ids=lambda pair: pair.name
)
def test_answers_have_the_bytes_of_stock(pair: Pair) -> None:
    command = pair.answered
    fields, remark = command.ext_fields, (command.remark or "").encode()
    kept = [ffi.from_buffer(fields.get(name, "").encode()) for name in _INFOS]
    text: Any = ffi.from_buffer(remark)
    has_infos = "startOffsetInfo" in fields
    answer = ffi.new("struct rmq_pop_answer *", {
        "head": {
            "code": command.code, "opaque": command.opaque, "serialise": lib.RMQ_SERIALISE_JSON, "remark": text,
            "remark_length": len(remark),
        },
        "pop_time_ms": int(fields["popTime"]), "invisible_ms": int(fields["invisibleTime"]),
        "rest": int(fields.get("restNum", -1)), "revive_queue": int(fields["reviveQid"]),
        "starts": kept[0] if has_infos else ffi.NULL, "offsets": kept[1] if has_infos else ffi.NULL,
        "counts": kept[2] if "orderCountInfo" in fields else ffi.NULL, "counts_length": len(kept[2]),
        "starts_length": len(kept[0]), "offsets_length": len(kept[1]), "body_length": len(command.body),
    })  # fmt: skip
    out = ffi.new("uint8_t[]", lib.rmq_pop_answer_bound(answer))
    size = lib.rmq_pop_answer_put(out, answer)
    assert bytes(ffi.buffer(out, size)) == header(pair.answer)


def test_answers_to_acks_have_the_bytes_of_stock() -> None:
    answers = [pair for pair in PAIRS if pair.asked.code in (ACK, BATCH_ACK) and not pair.answered.remark]
    assert len(answers) > 40
    for pair in answers:
        head = ffi.new("struct rmq_answer_head *", {"code": pair.answered.code, "opaque": pair.answered.opaque})
        out = ffi.new("uint8_t[]", lib.rmq_error_answer_bound(head, ffi.NULL))
        size = lib.rmq_error_answer_put(out, head, ffi.NULL)
        assert bytes(ffi.buffer(out, size)) == pair.answer


def test_answers_to_notifications_have_the_bytes_of_stock() -> None:
    answers = {pair.name: pair.answer for pair in PAIRS if pair.asked.code == NOTIFICATION}
    assert {name: decode_frame(frame).ext_fields["hasMsg"] for name, frame in answers.items()} == {
        "1-notification-none": "false", "1-notification-timeout": "false", "1-notification-arrival": "true",
        "1-notification-has": "true", "1-notification-unknown-topic": "false",
        "2-order-notification-blocked": "false",
    }  # fmt: skip
    for frame in answers.values():
        command = decode_frame(frame)
        remark = ffi.from_buffer((command.remark or "").encode())
        answer = ffi.new("struct rmq_notification_answer *", {
            "head": {
                "code": command.code, "opaque": command.opaque, "serialise": lib.RMQ_SERIALISE_JSON,
                "remark": ffi.cast("char *", remark), "remark_length": len(remark),
            },
            "has_message": command.ext_fields["hasMsg"] == "true",
            "is_full": command.ext_fields["pollingFull"] == "true",
        })  # fmt: skip
        out = ffi.new("uint8_t[]", lib.rmq_notification_answer_bound(answer))
        size = lib.rmq_notification_answer_put(out, answer)
        assert bytes(ffi.buffer(out, size)) == frame


def look_header(pair: Pair) -> bytes:
    """The header that RingMQ writes for the answer to a look."""
    answer, request = pair.answered, Request(pair.asked, Connection(0, 1, 2, 3, "127.0.0.1", 4321), 0)
    if pair.asked.code == POLLING_INFO:
        return encode_frame(polling_info(request, int(answer.ext_fields["pollingNum"])))
    rest = int(answer.ext_fields["restNum"])
    if not answer.body:
        return encode_frame(nothing_found(request, rest))
    size = len(answer.body)
    payload = peeked(request, Seen(2, 2, size, rest, [struct.pack("=QII", 4096, size, 2)]))
    pieces, _, _, header_bytes = struct.unpack_from("=IIQI", payload)
    at = 8 + 16 * pieces
    return payload[at : at + header_bytes]


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.asked.code in (PEEK, POLLING_INFO)], ids=lambda pair: pair.name
)
def test_answers_to_looks_have_the_bytes_of_stock(pair: Pair) -> None:
    """But for the language, which Python tells."""
    found, stock = look_header(pair), header(pair.answer)
    assert found[8:].replace(b'"PYTHON"', b'"JAVA"') == stock[8:]
    assert int.from_bytes(found[:4]) == len(found) - 4 + len(pair.answered.body)


def test_looks_of_each_kind_are_recorded() -> None:
    names = {pair.name for pair in PAIRS if pair.asked.code in (PEEK, POLLING_INFO)}
    assert names == {
        "1-peek", "1-peek-empty", "1-polling-info", "1-polling-info-none", "3-order-polling-info",
    }  # fmt: skip
