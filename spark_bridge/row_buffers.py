"""Arrow buffers of one batch, in the sizes given to the C core, and the arrays made of them without a copy."""

from typing import Any

import pyarrow as pa

from ringmq.native import ffi
from ringmq.spark_bridge.schema import COLUMNS, LOG_APPEND_TIME

SLACK_BYTES = 64 << 10  # the core asks for room for all properties of a row, though one value is all it may write
SMALL_BYTES_PER_ROW = {"key": 40, "topic": 32, "tags": 24, "msg_id": 40}
PAIRS_PER_ROW = 4
INT32_MAX = (1 << 31) - 1

INTEGERS = {
    "partition": ("int32_t *", 4),
    "offset": ("int64_t *", 8),
    "timestamp": ("int64_t *", 8),
    "born_timestamp": ("int64_t *", 8),
    "sys_flag": ("int32_t *", 4),
    "commit_log_offset": ("int64_t *", 8),
}
MICROSECONDS = {"timestamp": "timestamp_us", "born_timestamp": "born_timestamp_us"}  # names in the core
NULLABLE = frozenset({"key", "tags", "headers"})


class Column:
    """One column's buffers.

    `fill` passes their addresses to the core, `take` makes an array of the first `count` rows.
    """

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.kind = kind

    def fill(self, struct: Any) -> None:
        """Write addresses and sizes into `struct rmq_arrow_rows`."""

    def take(self, count: int, struct: Any) -> pa.Array:
        """Return the rows so far as an array that shares the buffers."""
        raise AssertionError(self.name)


class Integers(Column):
    """A column of fixed width."""

    def __init__(self, name: str, rows_max: int) -> None:
        super().__init__(name, COLUMNS[name][1])
        self._c_type, self._bytes = INTEGERS[name]
        self._values = pa.allocate_buffer(rows_max * self._bytes)

    def fill(self, struct: Any) -> None:
        setattr(struct, MICROSECONDS.get(self.name, self.name), ffi.cast(self._c_type, self._values.address))

    def take(self, count: int, struct: Any) -> pa.Array:
        return pa.Array.from_buffers(self.kind, count, [None, self._values.slice(0, count * self._bytes)], 0)


class Constant(Column):
    """The same value in every row, without any part in the core."""

    def __init__(self, name: str, value: str | int, rows_max: int) -> None:
        super().__init__(name, COLUMNS[name][1])
        self._values = pa.repeat(pa.scalar(value, self.kind), rows_max)

    def take(self, count: int, struct: Any) -> pa.Array:
        return self._values.slice(0, count)


class _Validity:
    """One bit per row, all clear at the begin of a batch."""

    def __init__(self, rows_max: int) -> None:
        self._length = (rows_max + 7) // 8
        self._bits = pa.allocate_buffer(self._length)
        self.address = ffi.cast("uint8_t *", self._bits.address)
        self.clear(rows_max)

    def clear(self, count: int) -> None:
        ffi.memmove(self.address, bytes((count + 7) // 8), (count + 7) // 8)

    def bits(self, count: int, nulls: int) -> pa.Buffer | None:
        return self._bits.slice(0, (count + 7) // 8) if nulls else None


class Texts(Column):
    """A binary or utf8 column of at most `size` bytes."""

    def __init__(self, name: str, kind: pa.DataType, rows_max: int, size: int, *, nullable: bool = False) -> None:
        super().__init__(name, kind)
        self._size = min(size, INT32_MAX)
        self._offsets = pa.allocate_buffer((rows_max + 1) * 4)
        self._bytes = pa.allocate_buffer(self._size)
        self._validity = _Validity(rows_max) if nullable else None

    def fill(self, struct: Any) -> None:
        self.fill_column(getattr(struct, self.name))

    def fill_column(self, column: Any) -> None:
        """Write addresses and sizes into `struct rmq_text_column`."""
        column.offsets = ffi.cast("int32_t *", self._offsets.address)
        column.offsets[0] = 0
        column.bytes = ffi.cast("uint8_t *", self._bytes.address)
        column.size = self._size
        column.validity = self._validity.address if self._validity else ffi.NULL

    def take(self, count: int, struct: Any) -> pa.Array:
        return self.take_column(count, getattr(struct, self.name))

    def take_column(self, count: int, column: Any) -> pa.Array:
        """Return the first `count` values. The count of the column's nulls begins again."""
        nulls, column.nulls = column.nulls, 0
        used = column.offsets[count]
        buffers = [
            self._validity.bits(count, nulls) if self._validity else None,
            self._offsets.slice(0, (count + 1) * 4),
            self._bytes.slice(0, used),
        ]
        return pa.Array.from_buffers(self.kind, count, buffers, nulls)

    def begin(self, count: int) -> None:
        """Clear the rest of a batch of `count` rows."""
        if self._validity:
            self._validity.clear(count)


class Pairs(Column):
    """`headers` or `properties`."""

    def __init__(self, name: str, rows_max: int, size: int) -> None:
        super().__init__(name, COLUMNS[name][1])
        pairs_max = min(rows_max * PAIRS_PER_ROW + size // 16, INT32_MAX)
        self._pairs_max = pairs_max
        self._offsets = pa.allocate_buffer((rows_max + 1) * 4)
        self._validity = _Validity(rows_max) if name in NULLABLE else None
        self._item = self.kind.value_type if pa.types.is_list(self.kind) else _map_item(self.kind)
        self._names = Texts("name", pa.string(), pairs_max, size)
        self._values = Texts("value", self._item.field("value").type, pairs_max, size)

    def fill(self, struct: Any) -> None:
        column = getattr(struct, self.name)
        column.offsets = ffi.cast("int32_t *", self._offsets.address)
        column.offsets[0] = 0
        column.pairs_max = self._pairs_max
        column.validity = self._validity.address if self._validity else ffi.NULL
        self._names.fill_column(column.name)
        self._values.fill_column(column.value)

    def take(self, count: int, struct: Any) -> pa.Array:
        column = getattr(struct, self.name)
        nulls, column.nulls = column.nulls, 0
        pairs = column.offsets[count]
        children = [self._names.take_column(pairs, column.name), self._values.take_column(pairs, column.value)]
        items = pa.Array.from_buffers(self._item, pairs, [None], 0, children=children)
        validity = self._validity.bits(count, nulls) if self._validity else None
        offsets = self._offsets.slice(0, (count + 1) * 4)
        return pa.Array.from_buffers(self.kind, count, [validity, offsets], nulls, children=[items])

    def begin(self, count: int) -> None:
        """Clear the rest of a batch of `count` rows."""
        if self._validity:
            self._validity.clear(count)


def _map_item(kind: pa.MapType) -> pa.StructType:
    return pa.struct([kind.key_field, kind.item_field])


def open_column(name: str, broker: str, rows_max: int, value_bytes: int, scale: int) -> Column:
    """Return empty buffers of a column. `scale` multiplies the sizes of variable ones."""
    if name in INTEGERS:
        return Integers(name, rows_max)
    if name == "timestampType":
        return Constant(name, LOG_APPEND_TIME, rows_max)
    if name == "broker":
        return Constant(name, broker, rows_max)
    if name in ("headers", "properties"):
        return Pairs(name, rows_max, (value_bytes + SLACK_BYTES) * scale)
    small = SMALL_BYTES_PER_ROW.get(name)
    size = (value_bytes if small is None else rows_max * small + SLACK_BYTES) * scale
    return Texts(name, COLUMNS[name][1], rows_max, size, nullable=name in NULLABLE)
