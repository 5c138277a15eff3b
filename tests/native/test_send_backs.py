"""Send-backs out of an inbox: C takes what Python decodes alike, and finds the same sources and cases."""

import random
from dataclasses import replace
from typing import Any

import pytest

from ringmq.broker.requests.records import request_of
from ringmq.broker.requests.request import Request
from ringmq.ipc.asks import Ask
from ringmq.ipc.plain_requests import fill_record
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, SerializeType, encode_frame
from ringmq.services.send_back.cases import SendBack
from ringmq.services.send_back.rows import (
    TABLE,
    Rows,
    asked_of_row,
    request_of_row,
)
from ringmq.services.send_back.service import HIDDEN_TOPICS
from ringmq.services.send_back.source_twin import sound_source
from tests.native.plain_kit import HOST, TEXTS, ask, record_of
from tests.store.copy_kit import random_record, stored

BACK = 36
FIELDS = {
    "offset": "900", "group": "G", "delayLevel": "0", "originMsgId": "0A", "originTopic": "T", "unitMode": "false",
    "maxReconsumeTimes": "16",
}  # fmt: skip
REQUIRED = ("offset", "group", "delayLevel")


ROWS_OF_PYTHON = Rows(())


def native(of: Ask) -> tuple[Request, SendBack] | None:
    record, _kept = record_of(of)
    row = ffi.new("struct rmq_send_back *")
    return (request_of_row(row, 1, 9), asked_of_row(row)) if lib.rmq_send_back_read(record, row) else None


def decoded(of: Ask) -> tuple[Request, SendBack]:
    """The same by the service in Python."""
    request = request_of(of, HOST, 9)
    row = ffi.new("struct rmq_send_back *")
    fill_record(row, TABLE.decode(request.command.ext_fields, request.command.version))
    return request, asked_of_row(row)


def needed(found: tuple[Request, SendBack]) -> tuple[object, ...]:
    """What the service and the answer need of a request."""
    request, asked = found
    command = request.command
    return (
        asked, command.code, command.opaque, command.is_oneway, command.is_response, command.serialize_type,
        request.connection, request.pending, request.now_ms, request.received_mono_ns, request.frame_bytes,
    )  # fmt: skip


def both(of: Ask) -> bool:
    """True if C takes the request. Python decodes what C takes, and alike."""
    taken = native(of)
    if taken is not None:
        assert needed(taken) == needed(decoded(of)) == needed(added(of))
    return taken is not None


def added(of: Ask) -> tuple[Request, SendBack]:
    """The same as a row that Python has filled."""
    request = request_of(of, HOST, 9)
    assert ROWS_OF_PYTHON.add(request, of.role, TABLE.decode(request.command.ext_fields, request.command.version))
    (slot,) = ROWS_OF_PYTHON.take_ready()
    row = ROWS_OF_PYTHON.native.rows[slot]
    lib.rmq_send_backs_release(ROWS_OF_PYTHON.native, slot)
    assert (row.record.role, row.tried, row.case_number) == (of.role, 0, lib.RMQ_SEND_BACK_NO_CASE)
    return request_of_row(row, 1, 9), asked_of_row(row)


def frame(serialize: SerializeType, fields: dict[str, str], **changes: Any) -> bytes:
    return encode_frame(replace(RemotingCommand.request(BACK, fields, opaque=41, serialize_type=serialize), **changes))


@pytest.mark.parametrize("serialize", SerializeType)
def test_plain_send_backs(serialize: SerializeType) -> None:
    assert both(ask(frame(serialize, FIELDS)))
    assert both(ask(frame(serialize, {name: FIELDS[name] for name in REQUIRED}, flag=2)))
    assert both(ask(frame(serialize, FIELDS | {"delayLevel": "-1", "unitMode": "TRUE", "group": "G" * 255})))
    assert both(ask(frame(serialize, FIELDS, version=120))), "an old client's maxReconsumeTimes does not count"
    assert both(
        ask(frame(serialize, FIELDS | {"offset": "+900", "delayLevel": "007", "maxReconsumeTimes": "0" * 40 + "1"}))
    )


@pytest.mark.parametrize("serialize", SerializeType)
def test_send_backs_for_python(serialize: SerializeType) -> None:
    for name in REQUIRED:
        assert not both(ask(frame(serialize, {key: value for key, value in FIELDS.items() if key != name})))
    for changed in (
        {"delayLevel": "2147483648"}, {"offset": "x"}, {"group": "g\xe9"}, {"group": "G" * 256},
        {"maxReconsumeTimes": "1e3"},
    ):  # fmt: skip
        assert not both(ask(frame(serialize, FIELDS | changed)))
    assert not both(ask(frame(SerializeType.JSON, FIELDS | {"originMsgId": "n\xf6te"})))
    assert not both(ask(frame(serialize, FIELDS, flag=1)))
    assert not both(ask(frame(serialize, FIELDS, code=37)))
    assert not both(ask(frame(serialize, FIELDS)[:30]))
    assert not both(ask(frame(serialize, FIELDS), lib.RMQ_INBOX_CLOSED))


@pytest.mark.parametrize("seed", range(4))
def test_random_send_backs(seed: int) -> None:
    dice = random.Random(seed)
    taken = 0
    for _ in range(3000):
        fields = dict(FIELDS)
        for name in dice.sample(list(FIELDS), dice.choice((0, 1, 1, 2))):
            fields[name] = dice.choice(TEXTS)
        order = list(fields)
        dice.shuffle(order)
        changes = {
            "flag": dice.choice((0, 0, 0, 1, 2, 3, 4)), "opaque": dice.randrange(-(1 << 31), 1 << 31),
            "version": dice.choice((0, 120, 121, 485, -1)),
        }  # fmt: skip
        data = frame(dice.choice(list(SerializeType)), {name: fields[name] for name in order}, **changes)
        if dice.random() < 0.05:
            data = data[: dice.randrange(len(data))]
        taken += both(ask(data))
    assert taken > 500


@pytest.mark.parametrize("seed", range(3))
def test_random_sources(seed: int) -> None:
    dice = random.Random(seed)
    hidden = [*HIDDEN_TOPICS, "T", ""]
    rows, times, sound = Rows(hidden), ffi.new("int32_t *"), 0
    for _ in range(1500):
        raw = bytearray(random_record(dice))
        if raw and dice.random() < 0.3:
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        offset = int.from_bytes(raw[28:36], "big", signed=True) + dice.choice((0, 0, 0, 1))
        found = lib.rmq_send_back_is_sound(rows.native, ffi.from_buffer(raw), len(raw), offset, times)
        twin = sound_source(bytes(raw), offset, hidden)
        assert bool(found) == (twin is not None), raw.hex()
        if twin is not None:
            assert twin.reconsume_times == times[0]
            sound += 1
    assert 100 < sound < 1400


@pytest.mark.parametrize(("hidden", "is_sound"), [((), True), (("T",), False), (("Tx", "xT", "t", ""), True)])
def test_topics_that_no_consumer_reads_are_hidden(hidden: tuple[str, ...], is_sound: bool) -> None:
    raw, times = stored(topic=b"T", physical_offset=5), ffi.new("int32_t *")
    rows = Rows(hidden)  # C reads the names in its memory
    found = lib.rmq_send_back_is_sound(rows.native, ffi.from_buffer(raw), len(raw), 5, times)
    assert bool(found) == (sound_source(raw, 5, hidden) is not None) == is_sound
