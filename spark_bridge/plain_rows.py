"""The C core's walks and columns in plain Python: for hosts without the core, and for tests to compare with."""

from typing import Any

import pyarrow as pa

from ringmq.client.system_properties import SYSTEM_PROPERTIES
from ringmq.spark_bridge.fallback_record import RowMessage, StoredRecord, clean_properties
from ringmq.spark_bridge.rows import (
    ANYWHERE,
    FALLBACK,
    FOREIGN_QUEUE,
    NO_UNIT,
    OUTSIDE,
    BatchShape,
    Stop,
    WantedQueue,
    WantedRows,
)
from ringmq.spark_bridge.schema import COLUMNS, LOG_APPEND_TIME, arrow_schema
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.record import Record, offset_message_id, parse_properties, parse_record

COMPRESSED = 0x1
TEXT_COLUMNS = frozenset({"tags", "msg_id", "headers", "properties"})


class PlainRows:
    """`Rows` as lists of Python values."""

    def __init__(self, shape: BatchShape, wanted: WantedRows) -> None:
        self.wanted = wanted
        self.count = 0
        self._shape = shape
        self.wants_value = "value" in shape.columns
        self._values: dict[str, list[Any]] = {name: [] for name in shape.columns}
        self._bytes = 0
        self._bytes_max = shape.batch_bytes

    def grow(self) -> None:
        """Double the space for rows."""
        self._bytes_max *= 2

    def take(self) -> pa.RecordBatch:
        """See `Rows`."""
        arrays = [pa.array(values, COLUMNS[name][1]) for name, values in self._values.items()]
        self._values = {name: [] for name in self._shape.columns}
        self.count = self._bytes = 0
        self._bytes_max = self._shape.batch_bytes
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._shape.columns))

    def from_log(self, data: Any, begin: int, end: int, data_start: int) -> Stop:
        """See `Rows`."""
        view = memoryview(data)
        while begin < end:
            place = None if data_start == ANYWHERE else data_start + begin
            result, record = parse_record(view[begin:end], place, check_crc=False)
            if record is None:
                return Stop(begin, result)
            if record.commit_log_offset != record.physical_offset:
                return Stop(begin, records.BAD_PLACE)
            if self._is_wanted(record):
                reason, stored = self._put_record(record, bytes(view[begin : begin + record.size]))
                if reason != records.OK:
                    return Stop(begin, reason, stored)
            begin += record.size
        return Stop(begin, records.END)

    def from_units(self, queue: int, units: bytes, begin: int, unit_offset: int, data: Any, data_start: int) -> Stop:
        """See `Rows`."""
        wanted = self.wanted.queues[queue]
        count = len(units) // layout.CONSUME_QUEUE_UNIT.size
        for number in range(begin, count):
            unit = layout.CONSUME_QUEUE_UNIT.unpack_from(units, number * layout.CONSUME_QUEUE_UNIT.size)
            position, size, _ = unit
            if position < 0 or size <= 0 or (position, size) == (0, layout.FILLER_SIZE):
                return Stop(number, NO_UNIT)
            if data is None:
                if not self._put_unit(wanted, unit_offset + number, position):
                    return Stop(number, records.FULL)
                continue
            at = position - data_start
            if at < 0 or at + size > len(data):
                return Stop(number, OUTSIDE)
            reason, stored = self._put_at(
                wanted, unit_offset + number, bytes(memoryview(data)[at : at + size]), position
            )
            if reason != records.OK:
                return Stop(number, reason, stored)
        return Stop(count, records.END)

    def _put_at(
        self, wanted: WantedQueue, queue_offset: int, raw: bytes, position: int
    ) -> tuple[int, StoredRecord | None]:
        result, record = parse_record(raw, check_crc=False)
        if record is None:
            return result, None
        found = (record.size, record.physical_offset, record.topic, record.queue_id, record.queue_offset)
        if found != (len(raw), position, wanted.topic, wanted.queue_id, queue_offset):
            return FOREIGN_QUEUE, None
        if _is_held_back(record) or not self._is_in_time(record):
            return records.OK, None
        return self._put_record(record, raw)

    def _is_in_time(self, record: Record) -> bool:
        times = self.wanted.times
        return (times.begin_ms is None or record.store_time_ms >= times.begin_ms) and (
            times.end_ms is None or record.store_time_ms < times.end_ms
        )

    def _is_wanted(self, record: Record) -> bool:
        queue = self.wanted.by_name.get((record.topic, record.queue_id))
        if queue is None or _is_held_back(record) or not self._is_in_time(record):
            return False
        is_behind = record.queue_offset >= queue.begin or bool(record.sys_flag & layout.INNER_BATCH)
        return is_behind and record.queue_offset < queue.end and record.physical_offset >= queue.log_begin

    def _put_record(self, record: Record, raw: bytes) -> tuple[int, StoredRecord | None]:
        if self.count == self._shape.batch_rows:
            return records.FULL, None
        if self.wanted.check_crc and record.body and records.crc32(record.body) != record.body_crc:
            return records.BAD_CRC, None
        stored = _stored(record, raw)
        if record.sys_flag & layout.INNER_BATCH or (record.sys_flag & COMPRESSED and self.wants_value):
            return FALLBACK, stored
        properties = record.properties_raw
        if TEXT_COLUMNS & self._values.keys():
            properties = clean_properties(properties)
        message = RowMessage(record.queue_offset, record.body, properties)
        return (records.OK, None) if self._add(record, message) else (records.FULL, None)

    def put(self, record: StoredRecord, message: RowMessage) -> bool:
        """See `Rows`."""
        _, parsed = parse_record(record.raw, check_crc=False)
        assert parsed is not None  # it was parsed before
        return self._add(parsed, message)

    def _put_unit(self, queue: WantedQueue, queue_offset: int, position: int) -> bool:
        values = {"topic": queue.topic, "partition": queue.queue_id, "offset": queue_offset}
        return self._append(values | {"commit_log_offset": position}, 0)

    def _add(self, record: Record, message: RowMessage) -> bool:
        properties = parse_properties(message.properties)
        headers = [(name, value.encode()) for name, value in properties.items() if name not in SYSTEM_PROPERTIES]
        values = {
            "key": _last_value(message.properties, b"KEYS"),
            "value": message.body,
            "topic": record.topic,
            "partition": record.queue_id,
            "offset": message.queue_offset,
            "timestamp": _microseconds(record.store_time_ms),
            "headers": [{"key": name, "value": value} for name, value in headers] or None,
            "tags": properties.get("TAGS"),
            "msg_id": properties.get("UNIQ_KEY") or offset_message_id(record),
            "born_timestamp": _microseconds(record.born_time_ms),
            "sys_flag": record.sys_flag,
            "commit_log_offset": record.physical_offset,
            "properties": list(properties.items()),
        }
        return self._append(values, len(message.body) if self.wants_value else 0)

    def _append(self, values: dict[str, Any], body_bytes: int) -> bool:
        if self.count == self._shape.batch_rows or self._bytes + body_bytes > self._bytes_max:
            return False
        constants = {"timestampType": LOG_APPEND_TIME, "broker": self._shape.broker}
        for name, column in self._values.items():
            column.append(constants[name] if name in constants else values[name])
        self._bytes += body_bytes
        self.count += 1
        return True


def _stored(record: Record, raw: bytes) -> StoredRecord:
    return StoredRecord(
        record.physical_offset,
        raw,
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.sys_flag,
        record.body,
        record.properties_raw,
    )


def _microseconds(time_ms: int) -> int:
    """Return a time as 64 bits. A damaged time may have any value."""
    return (time_ms * 1000 + (1 << 63)) % (1 << 64) - (1 << 63)


def _is_held_back(record: Record) -> bool:
    return record.transaction_type in (layout.TRANSACTION_PREPARED, layout.TRANSACTION_ROLLBACK)


def _last_value(properties: bytes, name: bytes) -> bytes | None:
    """Return the last value of the name, as bytes."""
    values = [pair[len(name) + 1 :] for pair in properties.split(b"\x02") if pair.startswith(name + b"\x01")]
    return next((value for value in reversed(values) if value), None)
