"""Requests of clients as records, decoded by tables of fields. Twin: native/src/codec/plain_requests.c.

C reads plain requests, and `Table.decode` reads the others into the same bytes. An answerer reads both by the C struct
of its table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ringmq.native import ffi, lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import BadField, MissingField, RequestError
from ringmq.remoting.java_numbers import INT32, INT64, java_integer

CHOICE_MAX = 63
_BOOL, _CHOICE, _INT64 = lib.RMQ_FIELD_BOOL, lib.RMQ_FIELD_CHOICE, lib.RMQ_FIELD_INT64
_TEXT, _UNKEPT = lib.RMQ_FIELD_TEXT, lib.RMQ_FIELD_UNKEPT
_RANGES = {lib.RMQ_FIELD_INT32: INT32, _INT64: INT64}
_HEAD_BYTES = 8
_FORMATS = {lib.RMQ_FIELD_INT32: "i", _INT64: "q", _BOOL: "I", _CHOICE: "i", _TEXT: "HH"}
"""Of `struct`, in the order of RMQ_FIELD_*. A text has two values: its place and its length."""


class Record(NamedTuple):
    """The bytes of a record, and its texts behind each other."""

    data: bytes
    text: bytes


class Field(NamedTuple):
    """A struct rmq_plain_field."""

    name: str
    type: int
    at: int
    required: bool
    limit: int = 0
    refusal: str | None = None
    refusal_code: int = 0
    version_min: int = 0

    def reader(self) -> Callable[[str], int | bytes]:
        """A function that returns the number or the UTF-8 of a text, and raises ValueError for one that is refused."""
        if self.type == _TEXT:
            return self._text
        if self.type == _CHOICE:
            return self._choice
        if self.type == _BOOL:
            return _is_true
        if self.type == _UNKEPT:
            return lambda text: 0
        low, high = _RANGES[self.type]
        return partial(java_integer, low=low, high=high)

    def refused(self, header: str, text: str) -> RequestError:
        """The error for a text that the reader has refused."""
        if self.type != _TEXT:
            low, high = _RANGES.get(self.type, INT32)
            wanted = f"one of {self._choices()}" if self.type == _CHOICE else f"an integer in {low}..{high}"
            return BadField(header, self.name, text, wanted)
        length = len(_utf8(text))
        remark = f"{self.refusal or header}: {self.name} has {length} bytes, the limit is {self.limit}"
        code = self.refusal_code or ResponseCode.SYSTEM_ERROR
        return RequestError(remark, field=self.name, code=code, limit=self.limit)

    def _text(self, text: str) -> bytes:
        data = _utf8(text)
        if len(data) > self.limit:
            raise ValueError(f"{len(data)} bytes")
        return data

    def _choice(self, text: str) -> int:
        number = java_integer(text, 0, CHOICE_MAX)
        if not self.limit >> number & 1:
            raise ValueError(f"{number} is no choice")
        return number

    def _choices(self) -> str:
        return ", ".join(str(number) for number in range(CHOICE_MAX + 1) if self.limit >> number & 1)


def _utf8(text: str) -> bytes:
    """Half a character becomes `?`, as in Java."""
    return text.encode("utf-8", "replace")


def _is_true(text: str) -> int:
    return int(text.lower() == "true")


class Table:
    """A struct rmq_plain_table. `header` is the name of the request's header in stock."""

    def __init__(self, header: str, code: int, record_bytes: int, fields: Sequence[Field]) -> None:
        self.header, self.code, self.record_bytes, self.fields = header, code, record_bytes, tuple(fields)
        self._format, places = _format_of(self.fields, record_bytes)
        self._steps = tuple(
            (1 << bit, field.name, field, field.reader(), field.version_min, places.get(field))
            for bit, field in enumerate(self.fields)
        )
        self._values = 2 + sum(len(_FORMATS[field.type]) for field in places)

    @classmethod
    def of(cls, native: Any) -> Table:
        """The table of an answerer, such as `lib.rmq_send_back_table`."""
        fields = [_field_of(native.fields[number]) for number in range(native.field_count)]
        return cls(ffi.string(native.header).decode(), int(native.code), int(native.record_bytes), fields)

    def decode(self, ext_fields: Mapping[str, str], version: int) -> Record:
        """The record of a request from a client with this version.

        Raises RequestError for the first field that is missing, cannot be read or is beyond its limit.
        """
        values, text, present = [0] * self._values, b"", 0
        for bit, name, field, read, version_min, place in self._steps:
            found = ext_fields.get(name)
            if found is None:
                if field.required:
                    raise MissingField(self.header, name)
                continue
            try:
                value = read(found)
            except ValueError as error:
                raise field.refused(self.header, found) from error
            if version_min and version < version_min:
                continue
            present |= bit
            if place is None:
                continue
            if isinstance(value, int):
                values[place] = value
            else:
                values[place], values[place + 1] = len(text), len(value)
                text += value
        values[0], values[1] = present, len(text)
        return Record(self._format.pack(*values), text)

    def ext_fields(self, record: Record) -> dict[str, str]:
        """The fields of a record, for a request or an answer. Twin: `rmq_fields_answer_put` of answer.c."""
        values = self._format.unpack(record.data)
        found = (
            (name, _text_of(field, values, place, record.text))
            for bit, name, field, _, _, place in self._steps
            if values[0] & bit and place is not None
        )
        return {name: text for name, text in found if text}


def texts_of(row: Any) -> bytes:
    """The texts of a record that C has read into the members `fields` and `text` of a struct."""
    return bytes(ffi.buffer(row.text, row.fields.head.text_bytes))


def fill_record(row: Any, record: Record) -> None:
    """Set the members `fields` and `text` of a struct to a record that its table has decoded."""
    ffi.memmove(ffi.addressof(row, "fields"), record.data, len(record.data))
    ffi.memmove(row.text, record.text, len(record.text))


def text_at(place: Any, texts: bytes) -> str:
    """The text at a struct rmq_plain_text."""
    at = place.at
    return texts[at : at + place.length].decode()


def _format_of(fields: Sequence[Field], record_bytes: int) -> tuple[struct.Struct, dict[Field, int]]:
    """The format of a record, and the number of the first value of each field that is kept."""
    text, at, number, places = "=II", _HEAD_BYTES, 2, {}
    for field in sorted((field for field in fields if field.type != _UNKEPT), key=lambda field: field.at):
        form = _FORMATS[field.type]
        text += f"{field.at - at}x{form}"
        places[field] = number
        number += len(form)
        at = field.at + struct.calcsize("=" + form)
    return struct.Struct(f"{text}{record_bytes - at}x"), places


def _field_of(native: Any) -> Field:
    return Field(
        ffi.string(native.name).decode(), int(native.type), int(native.at), bool(native.required), int(native.limit),
        None if native.refusal == ffi.NULL else ffi.string(native.refusal).decode(), int(native.refusal_code),
        int(native.version_min),
    )  # fmt: skip


def _text_of(field: Field, values: tuple[int, ...], place: int, texts: bytes) -> str:
    value = values[place]
    if field.type == _TEXT:
        return texts[value : value + values[place + 1]].decode()
    if field.type == _BOOL:
        return "true" if value else "false"
    return str(value)
