"""Tables of fields: C and Python make the same record of a frame, and refuse the same field.

The tables are those of 36 and 37, and those of the codes of POP, whose fields have to fit.
"""

import random
import struct
from dataclasses import replace
from typing import Any

import pytest

from ringmq.ipc.plain_requests import Record, Table, text_at
from ringmq.native import ffi, lib
from ringmq.remoting.codes import RequestCode, SerializeType
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.errors import RequestError
from tests.native.plain_kit import ODD, READ, TEXTS, both, made_table, native, twin
from tests.native.test_frame_header import recorded_frames

INT32, INT64, BOOL = lib.RMQ_FIELD_INT32, lib.RMQ_FIELD_INT64, lib.RMQ_FIELD_BOOL
CHOICE, TEXT, UNKEPT = lib.RMQ_FIELD_CHOICE, lib.RMQ_FIELD_TEXT, lib.RMQ_FIELD_UNKEPT
NAMES = (("consumerGroup", TEXT, True, 255), ("topic", TEXT, True, 255), ("queueId", INT32, True, 0))
RECEIPT = (*NAMES, ("extraInfo", TEXT, True, 1024), ("offset", INT64, True, 0))
POLL = (
    ("pollTime", INT64, True, 0), ("bornTime", INT64, True, 0), ("expType", TEXT, False, 16),
    ("exp", TEXT, False, 32768), ("order", BOOL, False, 0), ("attemptId", TEXT, False, 255),
)  # fmt: skip
BACK, END = int(RequestCode.CONSUMER_SEND_MSG_BACK), int(RequestCode.END_TRANSACTION)
SERVED = (
    (Table.of(lib.rmq_send_back_table), lib.rmq_send_back_table),
    (Table.of(lib.rmq_end_table), lib.rmq_end_table),
)
MADE = (
    made_table(
        "PopMessageRequestHeader", 200050,
        (
            *NAMES, ("maxMsgNums", INT32, True, 0), ("invisibleTime", INT64, True, 0), ("initMode", INT32, True, 0),
            *POLL,
        ),
    ),
    made_table("AckMessageRequestHeader", 200051, RECEIPT),
    made_table("ChangeInvisibleTimeRequestHeader", 200053, (*RECEIPT, ("invisibleTime", INT64, True, 0))),
    made_table("NotificationRequestHeader", 200054, (*NAMES, *POLL)),
    made_table("PollingInfoRequestHeader", 200055, NAMES),
    made_table("Small", 7, (("c", CHOICE, True, 1 << 0 | 1 << 63), ("u", UNKEPT, False, 0), ("t", TEXT, False, 0))),
)  # fmt: skip
TABLES = (*SERVED, *((table, of[0]) for table, of in MADE))
ANSWER = made_table(
    "PopMessageResponseHeader", 0,
    (
        ("popTime", INT64, True, 0), ("invisibleTime", INT64, True, 0), ("reviveQid", INT32, True, 0),
        ("restNum", INT64, True, 0), ("startOffsetInfo", TEXT, False, 4096), ("msgOffsetInfo", TEXT, False, 4096),
        ("orderCountInfo", TEXT, False, 4096), ("isLast", BOOL, False, 0), ("mode", CHOICE, False, 3),
    ),
)  # fmt: skip
IDS = [table.header for table, _ in TABLES]


def fields_of(table: Table, dice: random.Random, chance: float = 0.0) -> dict[str, str]:
    """Sound fields in any order, each replaced or left out by chance."""
    found = {}
    for field in dice.sample(table.fields, len(table.fields)):
        choices = [str(number) for number in range(64) if field.limit >> number & 1]
        sound = {INT32: "-7", INT64: str(1 << 40), BOOL: "true", TEXT: "T0%_x"[: field.limit], UNKEPT: "0A"}
        text = dice.choice(choices) if field.type == CHOICE else sound[field.type]
        text = dice.choice(TEXTS) if dice.random() < chance else text
        if dice.random() >= chance / 4:
            found[field.name] = text
    return found


def frame_of(code: int, fields: dict[str, str], kind: SerializeType = SerializeType.JSON, **changes: Any) -> bytes:
    """A request; its code is set afterwards, because a binary header has no room for some."""
    command = replace(RemotingCommand.request(0, fields, opaque=41, serialize_type=kind), **changes)
    return encode_frame(replace(command, code=code if kind == SerializeType.JSON or code < 1 << 15 else 0))


@pytest.mark.parametrize(("table", "of"), TABLES, ids=IDS)
def test_a_record_has_room_for_its_fields(table: Table, of: Any) -> None:
    assert table.record_bytes <= lib.RMQ_PLAIN_RECORD_BYTES_MAX and len(table.fields) <= lib.RMQ_PLAIN_FIELDS_MAX
    texts = sum(field.limit for field in table.fields if field.type == TEXT)
    assert texts == of.text_bytes_max <= lib.RMQ_PLAIN_TEXT_BYTES_MAX
    taken = bytearray(table.record_bytes)
    for field in table.fields:
        size = {INT64: 8, UNKEPT: 0}.get(field.type, 4)
        assert len(field.name) <= lib.RMQ_PLAIN_NAME_BYTES_MAX and (size == 0 or field.at % size == 0)
        assert size == 0 or 8 <= field.at <= table.record_bytes - size
        assert not any(taken[field.at : field.at + size])
        taken[field.at : field.at + size] = b"\1" * size
    assert len({field.name for field in table.fields}) == len(table.fields)


@pytest.mark.parametrize(
    ("struct_name", "served"), [("rmq_send_back_fields", SERVED[0]), ("rmq_end_fields", SERVED[1])]
)
def test_a_table_describes_its_struct(struct_name: str, served: tuple[Table, Any]) -> None:
    members = dict(ffi.typeof(f"struct {struct_name}").fields)
    places = {member.offset for name, member in members.items() if name != "head"}
    assert places == {field.at for field in served[0].fields if field.type != UNKEPT}
    assert ffi.sizeof(f"struct {struct_name}") == served[0].record_bytes


def test_the_bit_of_times_max() -> None:
    names = [field.name for field in SERVED[0][0].fields]
    assert 1 << names.index("maxReconsumeTimes") == lib.RMQ_SEND_BACK_TIMES_MAX


def test_golden_requests_are_plain() -> None:
    """Every recorded request with one of the codes. Those with another code are odd."""
    read = dict.fromkeys((table.code for table, _ in TABLES), 0)
    for frame in recorded_frames():
        command = decode_frame(frame)
        for table, of in TABLES:
            result = both(table, of, frame)
            is_asked = command.code == table.code and not command.is_response
            assert result == (READ if is_asked else ODD)
            read[table.code] += is_asked
    assert min(read[code] for code in (BACK, END, 200050, 200051)) > 0


@pytest.mark.parametrize(("table", "of"), TABLES, ids=IDS)
def test_random_requests(table: Table, of: Any) -> None:
    dice = random.Random(table.code)
    results: dict[str, int] = {}
    for _ in range(1500):
        kind = dice.choice(list(SerializeType)) if table.code < 1 << 15 else SerializeType.JSON
        fields = fields_of(table, dice, dice.choice((0.0, 0.2, 0.5)))
        changes = {"flag": dice.choice((0, 2, 4)), "opaque": dice.randrange(-(1 << 31), 1 << 31)}
        result = both(table, of, frame_of(table.code, fields, kind, version=dice.choice((0, 120, 485, -1)), **changes))
        results[result] = results.get(result, 0) + 1
    assert results[READ] > 300 and results[ODD] > 20
    assert {field.name for field in table.fields if field.required and field.type != UNKEPT} <= results.keys()


PIECES = (
    b'"', b"\\", b"{", b"}", b",", b":", b"\0", b" ", b"7", b"-", b".0", b"e1", b"null", b"true", b"NaN", b"\xff",
    b"\x7f",
    b'"offset":7,', b'"group":9,', b'"commitOrRollback":8.0,', b"\\u0041", b"9" * 20, b"\xc3\xa9",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_damaged_frames(seed: int) -> None:
    dice, results = random.Random(seed), {READ: 0, ODD: 0}
    for _ in range(4000):
        table, of = dice.choice(TABLES)
        kind = dice.choice(list(SerializeType)) if table.code < 1 << 15 else SerializeType.JSON
        frame = bytearray(frame_of(table.code, fields_of(table, dice), kind))
        for _ in range(dice.choice((1, 1, 2, 4))):
            at = dice.randrange(8, len(frame))
            if kind == SerializeType.JSON and dice.random() < 0.8:
                frame[at : at + dice.choice((0, 0, 1, 4))] = dice.choice(PIECES)
            else:
                frame[at] = dice.randrange(256)
        frame[:8] = struct.pack(">II", len(frame) - 4, int(kind) << 24 | len(frame) - 8)
        data = bytes(frame[: dice.randrange(len(frame))] if dice.random() < 0.05 else frame)
        result = both(table, of, data)
        results[result] = results.get(result, 0) + 1
    assert results[READ] > 300 and results[ODD] > 300 and len(results) > 10


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (b'"900"', b"900", READ),
        (b'"900"', b'"+900"', READ),
        (b'"900"', b"9e2", ODD),
        (b'"900"', b'"9e2"', "offset"),
        (b'"900"', b'"9223372036854775808"', "offset"),
        (b'"900"', b"null", "offset"),
        (b'"0"', b'"2147483648"', "delayLevel"),
        (b'"G"', b"7", READ),
        (b'"G"', b"07", ODD),
        (b'"G"', b"true", READ),
        (b'"G"', b'""', READ),
        (b'"G"', b'"\\u0047"', ODD),
        (b'"G"', b'"' + b"G" * 256 + b'"', "group"),
        (b'"true"', b"1", READ),
        (b'"x":"y"', b'"x":1', READ),
        (b'"x":"y"', b'"x":1a', ODD),
        (b'"extFields":', b'"extFields":{"y":1a},"extFields":', ODD),
        (b'"flag":0', b'"flag":0,"y":null,"z":[]', ODD),
        (b'"flag":0', b'"flag":0,"y":{"z":z}', ODD),
        (b'"flag":0', b'"flag":0,"y":1a', ODD),
        (b'"flag":0', b'"flag":0,"y":1,"z":null', READ),
        (b'"x":"y"', b'"x":"\\u0079"', ODD),
        (b'"x":"y"', b'"x":"\\q"', ODD),
        (b'"x":"y"', b'"x":{}', ODD),
        (b'"x":"y"', b'"\\u0078":"y"', ODD),
        (b'"x":"y"', b'"group":"H"', ODD),
        (b'"x":"y"', b'"x":"\xc3\xa9"', ODD),
        (b'"x":"y"', b'"x":"\x7f"', ODD),
    ],
)
def test_json_in_other_words(old: bytes, new: bytes, result: str) -> None:
    fields = {"offset": "900", "group": "G", "delayLevel": "0", "unitMode": "true", "x": "y"}
    plain = frame_of(BACK, fields)
    header = plain[8:].replace(old, new, 1)
    assert header != plain[8:]
    table, of = SERVED[0]
    assert both(table, of, struct.pack(">II", 4 + len(header), len(header)) + header) == result


@pytest.mark.parametrize(
    ("number", "changes", "code", "remark"),
    [
        (0, {"group": "G" * 256}, 26, "subscription group not exist: group has 256 bytes, the limit is 255"),
        (0, {"group": "\xe9" * 128}, 26, "subscription group not exist: group has 256 bytes, the limit is 255"),
        (0, {"delayLevel": "x"}, 1, "ConsumerSendMsgBackRequestHeader: the field delayLevel = 'x' is not an integer in "
         "-2147483648..2147483647"),
        (0, {"offset": None}, 1, "ConsumerSendMsgBackRequestHeader: the required field offset is missing"),
        (1, {"producerGroup": "P" * 300}, 1, "The producer group wrong: producerGroup has 300 bytes, the limit is 255"),
        (1, {"commitOrRollback": "4"}, 1,
         "EndTransactionRequestHeader: the field commitOrRollback = '4' is not one of 0, 8, 12"),
        (1, {"msgId": None}, 1, "EndTransactionRequestHeader: the required field msgId is missing"),
    ],
)  # fmt: skip
def test_a_refusal_names_field_and_limit(number: int, changes: dict[str, str | None], code: int, remark: str) -> None:
    table, _ = SERVED[number]
    sound = fields_of(table, random.Random(1))
    fields = {name: text for name, text in (sound | changes).items() if text is not None}
    with pytest.raises(RequestError) as refused:
        table.decode(fields, 485)
    assert (refused.value.code, str(refused.value)) == (code, remark)
    assert refused.value.field in changes and both(table, SERVED[number][1], frame_of(table.code, fields)) in (
        refused.value.field, ODD,
    )  # fmt: skip


def test_odd_text_becomes_utf8() -> None:
    """Half a character becomes `?`, as in the bytes of a Java string."""
    table, _ = SERVED[0]
    record = table.decode({"offset": "1", "group": "\xe9\ud800x", "delayLevel": "0"}, 485)
    fields = ffi.from_buffer("struct rmq_send_back_fields *", record.data)
    assert record.text == "\xe9?x".encode() and text_at(fields.group, record.text) == "\xe9?x"
    assert fields.head.present == 0b111 and fields.head.text_bytes == 4


@pytest.mark.parametrize(("table", "of"), TABLES, ids=IDS)
def test_a_record_gives_its_fields_back(table: Table, of: Any) -> None:
    dice = random.Random(3)
    for _ in range(50):
        result, _, record = native(of, frame_of(table.code, fields_of(table, dice)))
        assert result == lib.RMQ_PLAIN_READ
        kept = {field.name for field in table.fields if field.type != UNKEPT}
        assert twin(table, frame_of(table.code, table.ext_fields(record) | {"msgId": "1"}))[1].text == record.text
        assert table.ext_fields(record).keys() <= kept


@pytest.mark.parametrize("kind", SerializeType)
def test_answers_out_of_records(kind: SerializeType) -> None:
    """C writes what Python answers."""
    table, _ = ANSWER
    dice = random.Random(5)
    for number in range(300):
        given = {name: text for name, text in fields_of(table, dice).items() if dice.random() < 0.8 or number == 0}
        given |= {"startOffsetInfo": dice.choice(("", "0 1 5", 'a"\\\x02\xe9', "x" * 4096))}
        needed = dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "-1")
        record = table.decode(needed | given, 0)
        assert put(record, kind) == decode_frame(
            encode_frame(
                RemotingCommand.response_to(
                    RemotingCommand(1, 79, serialize_type=kind), 210, "no\n", table.ext_fields(record)
                )
            )
        ).ext_fields  # fmt: skip
        assert table.ext_fields(record) == {name: text for name, text in (needed | given).items() if text}
    assert put(Record(bytes(table.record_bytes), b""), kind) == {}


def put(record: Record, kind: SerializeType) -> dict[str, str]:
    """The fields of the answer that C makes."""
    _, of = ANSWER
    head, remark = ffi.new("struct rmq_answer_head *"), ffi.new("char[]", b"no\n")
    head.code, head.opaque, head.serialise, head.remark_length, head.remark = 210, 79, int(kind), 3, remark
    bound = lib.rmq_fields_answer_bound(head, of, ffi.from_buffer(record.data))
    frame = ffi.new("uint8_t[]", bound)
    text = ffi.from_buffer(record.text or b"\0")
    length = lib.rmq_fields_answer_put(frame, head, of, ffi.from_buffer(record.data), text)
    assert length <= bound
    answer = decode_frame(bytes(ffi.buffer(frame, length)))
    assert (answer.code, answer.opaque, answer.remark, answer.is_response) == (210, 79, "no\n", True)
    return answer.ext_fields
