"""Frames that a stock broker and its client have exchanged: C and Python read the same records of them, and the answers
are written byte by byte as stock writes them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ringmq.native import ffi, lib
from ringmq.pop.batch_acks import read_batch_ack
from ringmq.pop.native_desk import TABLES
from ringmq.pop.receipts import read_receipt
from ringmq.remoting.command import RemotingCommand, decode_frame

FRAMES = Path(__file__).parent.parent / "golden" / "pop" / "frames.jsonl"
POP, ACK, BATCH_ACK, CHANGE = 200050, 200051, 200151, 200053
NATIVE = {POP: lib.rmq_pop_table, ACK: lib.rmq_pop_ack_table, CHANGE: lib.rmq_pop_change_table}


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
    """Requests of POP with their answers. Orderly ones are left out."""
    open_: dict[tuple[int, int], tuple[str, bytes]] = {}
    found = []
    for line in FRAMES.read_text().splitlines():
        row = json.loads(line)
        frame = bytes.fromhex(row["hex"])
        command = decode_frame(frame)
        key = row["part"], command.opaque
        if row["dir"] == "req" and row["code"] in (*NATIVE, BATCH_ACK):
            open_[key] = row["scenario"], frame
        elif row["dir"] == "resp" and key in open_:
            name, request = open_.pop(key)
            if not name.startswith("order-"):
                found.append(Pair(f"{row['part']}-{name}", request, frame))
    return found


PAIRS = pairs()


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
    kept = [ffi.from_buffer(fields.get(name, "").encode()) for name in ("startOffsetInfo", "msgOffsetInfo")]
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
