"""The half messages that ends name, one C call for a batch of ends (`native/src/services/named_halves.h`).

`judge` is the same rule in Python. An end that is not sound takes the slow way: `ends.refusal` finds its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ringmq.native import ffi, lib
from ringmq.remoting import properties
from ringmq.services.transactions import records
from ringmq.services.transactions.ends import End
from ringmq.store.queue_reader import QueueReader

NO_QUEUE = -1
QUEUE_DIGITS_MAX = 9


class NamedHalf(NamedTuple):
    """The half message of a sound end."""

    position: int
    """Place in the log."""
    first: int
    """Half-queue offset of the first half of its transaction."""
    topic: str
    """REAL_TOPIC. Empty if the record names no topic."""
    queue_id: int
    """REAL_QID. NO_QUEUE if the record names no queue."""


class NamedHalves:
    """Reads the half queue in this slot."""

    def __init__(self, reader: QueueReader, queue_slot: int, room: int) -> None:
        self._reader, self._slot = reader, queue_slot
        self._rows = ffi.new("struct rmq_named_half[]", room)

    def of(self, ends: Sequence[End]) -> list[NamedHalf | None]:
        """The half of each sound end, None for the others. The constructor's `room` limits the number of ends."""
        rows, texts = self._rows, bytearray()
        for row, end in zip(rows, ends, strict=False):
            fill_end(row, end, texts)
        held = ffi.from_buffer(bytes(texts) or b"\0")
        lib.rmq_named_halves(self._reader.native, self._slot, rows, len(ends), held)
        return [half_of(row) for row, _ in zip(rows, ends, strict=False)]


def fill_end(row: Any, end: End, texts: bytearray) -> None:
    """Set the fields of a struct rmq_named_half that describe the end. Its texts are added to `texts`."""
    group = end.producer_group.encode()
    row.queue_offset, row.position = end.queue_offset, end.position
    row.group_at, row.group_length = len(texts), len(group)
    texts += group


def half_of(row: Any) -> NamedHalf | None:
    """The result in a struct rmq_named_half."""
    if not row.is_sound:
        return None
    return NamedHalf(
        row.position, records.first_of_mark(row.prepared_transaction_offset, row.queue_offset),
        bytes(ffi.buffer(row.topic, row.topic_length)).decode("utf-8", "replace"), row.target_queue_id,
    )  # fmt: skip


def judge(end: End, data: bytes | memoryview) -> NamedHalf | None:
    """The half of an end whose record is in `data`, None if the end is not sound. The twin of the C loop's rule."""
    record = records.half_at(data, end.position)
    if record is None or record.queue_offset != end.queue_offset:
        return None
    pieces = (piece.partition(b"\x01") for piece in record.properties_raw.split(b"\x02"))
    pairs = {name: value for name, _, value in pieces if name and value}
    group = pairs.get(properties.PGROUP.encode())
    if (
        group is None
        or group != end.producer_group.encode()
        or properties.CHECK_IMMUNITY_TIME_IN_SECONDS.encode() in pairs
    ):
        return None
    topic, queue_id = pairs.get(properties.REAL_TOPIC.encode(), b""), pairs.get(properties.REAL_QID.encode(), b"")
    return NamedHalf(
        end.position,
        records.first_of(record),
        topic.decode("utf-8", "replace") if len(topic) <= lib.RMQ_NAMED_TOPIC_BYTES_MAX else "",
        int(queue_id) if queue_id.isdigit() and len(queue_id) <= QUEUE_DIGITS_MAX else NO_QUEUE,
    )
