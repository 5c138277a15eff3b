"""From log bytes to two tables of places: one row per record, by the C scan; and a plain-Python twin for tests.

`rows` has the fields of `struct rmq_record_view` (record.h), `keys` those of `struct rmq_row_keys` (columns.h).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringmq.native import ffi, lib
from ringmq.store import layout
from ringmq.store import record as records

ROWS_MAX = 32_768

ROW = np.dtype(
    [
        *((name, "<i8") for name in ("position", "queue_offset", "physical_offset", "born_time_ms", "store_time_ms")),
        ("prepared_transaction_offset", "<i8"),
        *((name, "<u4") for name in ("total_size", "magic", "body_crc")),
        *((name, "<i4") for name in ("queue_id", "flag", "sys_flag", "reconsume_times")),
        *((name, "<u4") for name in ("born_host_at", "store_host_at", "body_at", "body_length")),
        *((name, "<u4") for name in ("topic_at", "topic_length", "properties_at", "properties_length", "reserved")),
    ]
)
KEYS = np.dtype([(f"{name}_{part}", "<u4") for name in ("tags", "keys", "uniq_key") for part in ("at", "length")])

if (ROW.itemsize, KEYS.itemsize) != (ffi.sizeof("struct rmq_record_view"), ffi.sizeof("struct rmq_row_keys")):
    raise ImportError("row layouts of the C core differ from ringmq.spark_bridge.scan: rebuild it")

Table = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Scan:
    """Records found; `stopped_at` is the place in the bytes behind the last one, `reason` why it ended there."""

    rows: Table
    keys: Table
    stopped_at: int
    reason: int


def scan_log(data: Any, begin: int, end: int, data_start: int, *, check_crc: bool = False) -> Scan:
    """Scan `data[begin:end]`, whose first byte has commit-log offset `data_start`. `data` is any buffer."""
    rows = np.empty(ROWS_MAX, ROW)
    view = ffi.cast("struct rmq_record_view *", ffi.from_buffer(rows))
    buffer = ffi.from_buffer("uint8_t[]", data)
    at, reason = ffi.new("uint64_t *"), ffi.new("int *")
    count = lib.rmq_log_scan(buffer, begin, end, data_start, int(check_crc), view, ROWS_MAX, at, reason)
    keys = np.empty(count, KEYS)
    lib.rmq_rows_keys(buffer, data_start, view, count, ffi.cast("struct rmq_row_keys *", ffi.from_buffer(keys)))
    return Scan(rows[:count], keys, int(at[0]), int(reason[0]))


def scan_log_plainly(data: Any, begin: int, end: int, data_start: int) -> Scan:
    """What `scan_log` means, record by record; the tests hold both equal."""
    view = memoryview(data)
    rows: list[tuple[int, ...]] = []
    keys: list[tuple[int, ...]] = []
    at, reason = begin, records.END
    while at < end:
        result, record = records.parse_record(view[at:end], data_start + at, check_crc=False)
        if result != records.OK or record is None:
            reason = result
            break
        if record.physical_offset != data_start + at:
            reason = records.BAD_PLACE
            break
        store_host_at = (56 if not record.sys_flag & 0x10 else 68) + 8
        body_at = store_host_at + (8 if not record.sys_flag & 0x20 else 20) + 16
        topic_length = len(record.topic.encode())
        topic_at = body_at + len(record.body) + (1 if record.magic == layout.MAGIC_V1 else 2)
        properties_at = topic_at + topic_length + 2
        rows.append(
            (
                data_start + at, record.queue_offset, record.physical_offset, record.born_time_ms,
                record.store_time_ms, record.prepared_transaction_offset, record.size, record.magic,
                record.body_crc, record.queue_id, record.flag, record.sys_flag, record.reconsume_times,
                48, store_host_at, body_at, len(record.body), topic_at, topic_length, properties_at,
                len(record.properties_raw), 0,
            )
        )  # fmt: skip
        keys.append(_places(record.properties_raw, properties_at))
        at += record.size
    return Scan(np.array(rows, ROW), np.array(keys, KEYS), at, reason)


def _places(properties: bytes, properties_at: int) -> tuple[int, ...]:
    found = {b"TAGS": (0, 0), b"KEYS": (0, 0), b"UNIQ_KEY": (0, 0)}
    at = properties_at
    for pair in properties.split(b"\x02"):
        name, separator, value = pair.partition(b"\x01")
        if separator and value and name in found:
            found[name] = (at + len(name) + 1, len(value))
        at += len(pair) + 1
    return found[b"TAGS"] + found[b"KEYS"] + found[b"UNIQ_KEY"]
