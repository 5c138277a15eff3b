"""Rows of an Arrow batch as elements of batch bodies: the C kernel's wrapper, and its plain-Python twin for tests.

Both encode a row like `ringmq.client` encodes the same message (native/src/spark/sink_rows.h).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ringmq.client.connections.identity import new_key_generator, now_ms
from ringmq.client.producing.send_request import BodyRules, compose_message, prepare_batch
from ringmq.client.system_properties import SYSTEM_PROPERTIES
from ringmq.native import ffi, lib
from ringmq.spark_bridge.sink.errors import RowError

PROPERTIES_BYTES_MAX = 32_767 - 512
"""The format's limit less the space for the broker's additions."""
_KEY_TAIL_CHARS = 12
_HOUR_MS = 3_600_000
_COLUMNS = {
    lib.RMQ_SINK_VALUE: "value",
    lib.RMQ_SINK_KEY: "key",
    lib.RMQ_SINK_TAGS: "tags",
    lib.RMQ_SINK_HEADERS: "headers",
}


@dataclass(slots=True)
class _Text:
    """A binary or utf8 array as the kernel sees it, with references to its memory."""

    struct: Any
    kept: list[Any]


def as_text(array: pa.Array) -> _Text:
    """Return an array's borrowed buffers. Large types are cast to those with 32-bit offsets."""
    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.binary())
    valid, offsets, data = array.buffers()
    struct = ffi.new("struct rmq_sink_text *")
    kept = [array, valid, offsets, data]
    struct.offsets = ffi.cast("int32_t *", offsets.address)
    struct.data = ffi.cast("uint8_t *", data.address if data is not None else offsets.address)
    struct.valid = ffi.cast("uint8_t *", valid.address) if valid is not None else ffi.NULL
    struct.first = array.offset
    return _Text(struct, kept)


class EncodableRows:
    """The columns of one batch, ready for `RowEncoder.encode`. Raises RowError for reserved header names."""

    def __init__(self, batch: pa.RecordBatch, element_bytes_max: int) -> None:
        self.count = batch.num_rows
        self.struct = ffi.new("struct rmq_sink_rows *")
        self._kept: list[Any] = [batch]
        names = batch.schema.names
        for name in ("value", "key", "tags"):
            if name in names:
                self._set(name, batch.column(name))
        if "headers" in names:
            self._set_headers(batch.column("headers"))
        self.struct.element_bytes_max = element_bytes_max
        self.struct.properties_bytes_max = PROPERTIES_BYTES_MAX

    def _set(self, name: str, array: pa.Array) -> None:
        text = as_text(array)
        self._kept.append(text)
        setattr(self.struct, name, text.struct[0])

    def _set_headers(self, headers: pa.Array) -> None:
        valid, offsets = headers.buffers()[:2]
        names, values = headers.values.flatten()  # a null pair has neither, whatever stands below it
        reserved = SYSTEM_PROPERTIES.intersection(pc.unique(names).to_pylist())
        if reserved:
            raise RowError(f"column headers: {min(reserved)} is a name that RocketMQ uses itself: choose another one")
        self._set("header_names", names)
        self._set("header_values", values)
        self._kept += [headers, valid, offsets]
        self.struct.header_offsets = ffi.cast("int32_t *", offsets.address)
        self.struct.header_valid = ffi.cast("uint8_t *", valid.address) if valid is not None else ffi.NULL
        self.struct.header_first = headers.offset


@dataclass(frozen=True, slots=True)
class Encoded:
    """Progress of an encoding. If `room_needed` > 0, the next row did not fit and needs so many bytes."""

    rows: int
    bytes_used: int
    room_needed: int = 0


class RowEncoder:
    """Makes elements with consecutive UNIQ_KEYs."""

    def __init__(self) -> None:
        self._generator = new_key_generator()
        self._keys = ffi.new("struct rmq_sink_keys *")
        self._fault = ffi.new("struct rmq_sink_fault *")
        self._used = ffi.new("uint64_t *")

    def start_batch(self) -> None:
        """Read the clock for the UNIQ_KEYs of the next rows."""
        key = self._generator.next_key(now_ms())
        prefix, month_ms = key[:-_KEY_TAIL_CHARS].encode(), int(key[-_KEY_TAIL_CHARS:-4], 16)
        ffi.memmove(self._keys.prefix, prefix, len(prefix))
        self._keys.prefix_length = len(prefix)
        if (
            month_ms > self._keys.month_ms or self._keys.month_ms - month_ms > _HOUR_MS
        ):  # else it ran ahead of the clock
            self._keys.month_ms = month_ms

    def encode(self, rows: EncodableRows, index: NDArray[np.int32], buffer: bytearray, used: int) -> Encoded:
        """Append the rows at `index` to `buffer` from byte `used` on, as many as fit. Raises RowError."""
        target = ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
        where = ffi.from_buffer("int32_t[]", index)
        self._used[0] = used
        done = lib.rmq_sink_encode(
            rows.struct, where, len(index), self._keys, target + used, len(buffer) - used, self._used, self._fault
        )
        fault = self._fault
        if fault.problem > 0:
            raise RowError(_fault_text(fault))
        needed = int(fault.size) if fault.problem == lib.RMQ_SINK_ROOM else 0
        return Encoded(int(done), int(self._used[0]), needed)


def _fault_text(fault: Any) -> str:
    column = _COLUMNS[fault.column]
    where = f"row {fault.row} of its batch, column {column}"
    match fault.problem:
        case lib.RMQ_SINK_EMPTY if column == "headers":
            return f"{where}: a header's key and value must not be null or empty"
        case lib.RMQ_SINK_EMPTY:
            return f"{where}: null or empty, but a message needs at least 1 byte"
        case lib.RMQ_SINK_MARK:
            return f"{where}: holds a byte 0, 1 or 2, which properties cannot carry"
    if column == "value":
        return f"{where}: {fault.size} bytes are over the limit of {fault.limit}"
    return f"{where}: the properties take {fault.size} bytes, over the limit of {fault.limit}"


def sharding_hashes(keys: pa.Array) -> NDArray[np.int32]:
    """Return java.lang.String.hashCode of each key, 0 for null."""
    hashes = np.empty(len(keys), np.int32)
    text = as_text(keys)
    lib.rmq_sink_hashes(text.struct, len(keys), ffi.from_buffer("int32_t[]", hashes, require_writable=True))
    return hashes


def encode_plain(rows: Sequence[dict[str, Any]], keys: Sequence[str], now: int) -> bytes:
    """Return the same elements, made row by row by the SDK. `keys` are the UNIQ_KEYs in order. For tests."""
    messages = []
    for row, uniq_key in zip(rows, keys, strict=True):
        headers = {pair["key"]: _plain_text(pair["value"]) for pair in row.get("headers") or ()}
        value = row["value"]
        message = compose_message(
            "t", value.encode() if isinstance(value, str) else value, tags=row.get("tags"), properties=headers
        )
        if row.get("key"):
            message.properties = {"KEYS": _plain_text(row["key"]), **message.properties}
        message.properties["UNIQ_KEY"] = uniq_key
        messages.append(message)
    request = prepare_batch(messages, lambda _: "unused", now, BodyRules(compression=None))
    return bytes(request.body)


def _plain_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
