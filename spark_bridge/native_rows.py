"""Batches filled by the C core (native/src/spark/arrow_rows.h, row_walk.h)."""

import functools
from typing import Any

import pyarrow as pa

from ringmq.client.system_properties import SYSTEM_PROPERTIES
from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.spark_bridge.fallback_record import RowMessage, StoredRecord
from ringmq.spark_bridge.row_buffers import Column, Pairs, Texts, open_column
from ringmq.spark_bridge.rows import FALLBACK, FOREIGN_QUEUE, NO_UNIT, OUTSIDE, BatchShape, Stop, WantedRows
from ringmq.spark_bridge.schema import arrow_schema
from ringmq.store import layout
from ringmq.store import record as records

SCALE_KEPT_MAX = 8  # buffers that grew for a large row beyond this are given back
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

if (lib.RMQ_ROW_FALLBACK, lib.RMQ_WALK_OUTSIDE, lib.RMQ_WALK_NO_UNIT, lib.RMQ_WALK_FOREIGN_QUEUE) != (
    FALLBACK, OUTSIDE, NO_UNIT, FOREIGN_QUEUE,
):  # fmt: skip
    raise ImportError("stop reasons of the C core differ from ringmq.spark_bridge.rows: rebuild it")


class NativeRows:
    """`Rows` in the C core. Buffers are filled repeatedly. Without `reuse_buffers` each batch is a copy."""

    def __init__(self, shape: BatchShape, wanted: WantedRows) -> None:
        self.wanted = wanted
        self.wants_value = "value" in shape.columns
        self._shape = shape
        self._schema = arrow_schema(shape.columns)
        self._queues = _NameTable([(queue.topic, queue.queue_id) for queue in wanted.queues])
        self._spans = ffi.new("struct rmq_wanted_queue[]", [(q.begin, q.end, q.log_begin) for q in wanted.queues])
        self._wanted = _wanted_struct(wanted, self._queues, self._spans)
        self._rows = ffi.new("struct rmq_arrow_rows *")
        self._stop = ffi.new("struct rmq_walk_stop *")
        self._view = ffi.new("struct rmq_record_view *")
        self._source = ffi.new("struct rmq_row_source *")
        self._columns: list[Column] = []
        self._scale = 1
        self._spent = 0  # rows of the last batch, which its reader may still look at
        self._allocate()

    @property
    def count(self) -> int:
        """The number of rows in the batch."""
        return int(self._rows.count)

    def _allocate(self) -> None:
        rows = self._rows
        ffi.memmove(rows, bytes(ffi.sizeof("struct rmq_arrow_rows")), ffi.sizeof("struct rmq_arrow_rows"))
        shape = self._shape
        rows.rows_max = shape.batch_rows
        rows.system_names = _system_names().struct[0]
        self._columns = [
            open_column(name, shape.broker, shape.batch_rows, shape.batch_bytes, self._scale) for name in shape.columns
        ]
        for column in self._columns:
            column.fill(rows)
        self._spent = 0

    def _begin(self) -> None:
        """Begin a batch after the use of the last one: clear the parts that the next one does not overwrite."""
        if self._spent:
            for column in self._columns:
                if isinstance(column, Texts | Pairs):
                    column.begin(self._spent)
            self._spent = 0

    def grow(self) -> None:
        """Double the buffers."""
        self._scale *= 2
        self._allocate()

    def from_log(self, data: Any, begin: int, end: int, data_start: int) -> Stop:
        """See `Rows`."""
        self._begin()
        with ffi.from_buffer("uint8_t[]", data) as view:
            if not 0 <= begin <= end <= len(view):
                raise ValueError(f"range {begin}..{end} of {len(view)} bytes")
            lib.rmq_rows_from_log(self._rows, self._wanted, view, begin, end, data_start, self._stop)
        return self._stopped(data, self._stop.at)

    def from_units(self, queue: int, units: bytes, begin: int, unit_offset: int, data: Any, data_start: int) -> Stop:
        """See `Rows`."""
        self._begin()
        count = len(units) // layout.CONSUME_QUEUE_UNIT.size
        rows, wanted, stop = self._rows, self._wanted, self._stop
        if data is None:
            lib.rmq_rows_from_units(
                rows, wanted, queue, units, begin, count, unit_offset, ffi.NULL, 0, data_start, stop
            )
            return Stop(int(stop.at), int(stop.reason))
        with ffi.from_buffer("uint8_t[]", data) as view:
            lib.rmq_rows_from_units(
                rows, wanted, queue, units, begin, count, unit_offset, view, len(view), data_start, stop
            )
        return self._stopped(data, stop.view.position - data_start)

    def _stopped(self, data: Any, record_at: int) -> Stop:
        stop = self._stop
        if stop.reason != FALLBACK:
            return Stop(int(stop.at), int(stop.reason))
        view = stop.view
        raw = bytes(memoryview(data)[record_at : record_at + view.total_size])
        record = StoredRecord(
            int(view.position),
            raw,
            raw[view.topic_at : view.topic_at + view.topic_length].decode("utf-8", "replace"),
            int(view.queue_id),
            int(view.queue_offset),
            int(view.sys_flag),
            raw[view.body_at : view.body_at + view.body_length],
            raw[view.properties_at : view.properties_at + view.properties_length],
        )
        return Stop(int(stop.at), FALLBACK, record)

    def put(self, record: StoredRecord, message: RowMessage) -> bool:
        """See `Rows`."""
        self._begin()
        raw = ffi.from_buffer("uint8_t[]", record.raw)
        body, properties = ffi.from_buffer("uint8_t[]", message.body), ffi.from_buffer("uint8_t[]", message.properties)
        lib.rmq_record_parse(raw, len(raw), 0, self._view)
        self._view.position = record.position
        source = self._source
        source.record, source.view, source.body, source.properties = raw, self._view, body, properties
        source.queue_offset, source.is_clean = message.queue_offset, 1
        source.body_length, source.properties_length = len(body), len(properties)
        return bool(lib.rmq_row_put(self._rows, source) == records.OK)

    def take(self) -> pa.RecordBatch:
        """See `Rows`."""
        rows = self._rows
        count = int(rows.count)
        arrays = [column.take(count, rows) for column in self._columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if not self._shape.reuse_buffers:
            batch = _copied(batch)
        rows.count = 0
        self._spent = count
        if self._scale > SCALE_KEPT_MAX:
            self._scale = 1
            self._allocate()
        return batch


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of the batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        return reader.read_next_batch()


class _NameTable:
    """`struct rmq_name_table` with the memory to which it points."""

    def __init__(self, names: list[tuple[str, int]]) -> None:
        texts = [name.encode() for name, _ in names]
        self._bytes = [ffi.from_buffer("uint8_t[]", text) for text in texts]
        self._names = ffi.new("struct rmq_name[]", len(names))
        for place, (_, number) in enumerate(names):
            self._names[place].bytes = self._bytes[place]
            self._names[place].length = len(texts[place])
            self._names[place].number = number
        slot_count = 1 << (2 * len(names) + 1).bit_length()
        self._slots = ffi.new("uint32_t[]", slot_count)
        parts = [self._names, self._slots, len(names), slot_count - 1, table_secret()]
        self.struct = ffi.new("struct rmq_name_table *", parts)
        lib.rmq_name_table_fill(self.struct)


@functools.cache
def _system_names() -> _NameTable:
    return _NameTable([(name, 0) for name in sorted(SYSTEM_PROPERTIES)])


def _wanted_struct(wanted: WantedRows, queues: _NameTable, spans: Any) -> Any:
    struct = ffi.new("struct rmq_wanted_rows *")
    struct.queues = queues.struct[0]
    struct.spans = spans
    times = wanted.times
    struct.begin_ms = INT64_MIN if times.begin_ms is None else times.begin_ms
    struct.end_ms = INT64_MAX if times.end_ms is None else times.end_ms
    struct.check_crc = wanted.check_crc
    return struct
