"""Positions in the log that clients name: bytes that a client has made up there are read no further than their header.

The body of a message may hold the head of a record that claims all of the log behind it.
"""

import mmap
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.broker.store_view import StoreView
from ringmq.services.send_back.source_twin import sound_source
from ringmq.services.transactions.halves import HalfReader
from ringmq.services.transactions.records import half_at
from ringmq.store.layout import HALF_TOPIC
from ringmq.store.record import OK, parse_record
from tests.store.test_torn_tail import encode

CLAIMED_BYTES = 96 << 20
ALLOCATED_MAX = 1 << 20
FIXED_BYTES = 88


class Log:
    """A log that is one made-up record, as LogView and as MessageStore."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.commit_log = self

    def record(self, position: int) -> memoryview:
        return self._data

    def raw_at(self, offset: int, readable_offset: int) -> memoryview:
        return self._data


class Plane:
    def confirm_offset(self) -> int:
        return CLAIMED_BYTES


def made_up(topic: bytes) -> memoryview:
    """A sound record over the whole mapping. Its body are the bytes of others, here zeros."""
    small = encode(0, 0, b"", b"", topic)
    body_bytes = CLAIMED_BYTES - len(small)
    head = bytearray(small[:FIXED_BYTES])
    head[:4] = CLAIMED_BYTES.to_bytes(4, "big")
    head[84:88] = body_bytes.to_bytes(4, "big")
    data = mmap.mmap(-1, CLAIMED_BYTES)
    data[:FIXED_BYTES], data[FIXED_BYTES + body_bytes :] = head, small[FIXED_BYTES:]
    return memoryview(data)


def half_reader(data: memoryview) -> HalfReader:
    reader = object.__new__(HalfReader)
    reader._log = Log(data)  # type: ignore[assignment]
    reader.position = lambda queue_offset: None  # type: ignore[method-assign]
    return reader


READS: dict[str, Callable[[memoryview], Any]] = {
    "send-back": lambda data: sound_source(data, 0, ()),
    "end of a transaction": lambda data: half_reader(data).named(0) is None,
    "view by id": lambda data: StoreView(Plane(), Log(data)).view(0) is None,  # type: ignore[arg-type]
}


@pytest.mark.parametrize("read", READS)
def test_no_client_has_a_large_part_of_the_log_copied(read: str) -> None:
    data = made_up(HALF_TOPIC.encode())
    assert half_at(data, 0, with_body=False) is not None, "it is a sound record but for its checksum"
    tracemalloc.start()
    try:
        assert READS[read](data)
        assert tracemalloc.get_traced_memory()[1] < ALLOCATED_MAX
    finally:
        tracemalloc.stop()


def test_a_record_without_its_body() -> None:
    data = encode(3, 700, b"x" * 900, b"KEYS\x01k\x02", b"T")
    (whole, some), (result, record) = parse_record(data), parse_record(data, with_body=False)
    assert whole == result == OK and some is not None and record is not None
    assert (record.body, record.properties, record.topic) == (b"", some.properties, some.topic)
    negative = bytearray(data)
    negative[84:88] = (-1).to_bytes(4, "big", signed=True)
    assert parse_record(negative, with_body=False)[1] is None
