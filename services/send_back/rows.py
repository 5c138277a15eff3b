"""Requests 36 as rows of C (struct rmq_send_back), whichever way they came.

C reads plain requests out of the inbox, Python decodes the others into the same record and adds them.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntFlag
from typing import Any

from ringmq.broker.requests.records import fill_plain_request, plain_request
from ringmq.broker.requests.request import Request
from ringmq.ipc.plain_requests import Record, Table, fill_record, text_at, texts_of
from ringmq.native import ffi, lib
from ringmq.services.send_back.cases import Make, SendBack

ROWS = 8192
"""Requests without an answer."""
TABLE = Table.of(lib.rmq_send_back_table)


class Tried(IntFlag):
    """Bits of a row: the things that were done for it before."""

    MADE = 1
    """Control has made what a retry needs,"""
    MADE_DEAD = 2
    """or what a dead letter needs."""
    STORED = 4
    """A copy was refused, because its topic was deleted just then."""


_MAKES = {Tried.MADE: Make(dead=False), Tried.MADE_DEAD: Make(dead=True)}


class Rows:
    """A struct rmq_send_backs with its arrays. `hidden`: topics whose records no consumer gets."""

    def __init__(self, hidden: Collection[str]) -> None:
        names = b"".join(bytes([len(name)]) + name for name in (topic.encode() for topic in hidden))
        self.native = native = ffi.new("struct rmq_send_backs *")
        native.capacity = native.unused_count = ROWS
        native.rows, *lists = self._kept = (
            ffi.new("struct rmq_send_back[]", ROWS), *(ffi.new("uint32_t[]", ROWS) for _ in range(6)),
        )  # fmt: skip
        native.unused, native.open, native.ready, native.taken, native.copied, native.left = lists
        native.unused[0:ROWS] = range(ROWS - 1, -1, -1)
        self._hidden = ffi.from_buffer(names)
        native.hidden, native.hidden_bytes = self._hidden, len(names)

    def __len__(self) -> int:
        return ROWS - int(self.native.unused_count)

    def add(self, request: Request, role: int, record: Record) -> bool:
        """Add a request that was decoded into a record of TABLE. `role`: of its read worker. False if there is no
        room."""
        slot = lib.rmq_send_backs_claim(self.native)
        if slot == lib.RMQ_NONE:
            return False
        row = self.native.rows[slot]
        fill_plain_request(request, role, row.record, row.asked)
        fill_record(row, record)
        row.tried = 0
        lib.rmq_send_backs_ready(self.native, slot)
        return True

    def take_ready(self) -> list[int]:
        """The slots of all rows that wait for a batch. They wait no more."""
        count, self.native.ready_count = int(self.native.ready_count), 0
        return list(self.native.ready[0:count])


def request_of_row(row: Any, reader: int, now_ms: int) -> Request:
    """The request in a struct rmq_send_back."""
    return plain_request(row.record, row.asked, reader, now_ms)


def asked_of_row(row: Any) -> SendBack:
    """The send-back in a struct rmq_send_back."""
    fields, texts = row.fields, texts_of(row)
    times_max = fields.times_max if fields.head.present & lib.RMQ_SEND_BACK_TIMES_MAX else None
    return SendBack(text_at(fields.group, texts), fields.offset, fields.delay_level, bool(fields.unit_mode), times_max)


def made_of(tried: int) -> frozenset[Make]:
    """The outcomes Make that control has answered for a row."""
    return frozenset(make for bit, make in _MAKES.items() if tried & bit)
