"""From a scan to Arrow columns.

Variable-length columns are gathered by Arrow itself: an array over the mapped bytes whose offsets alternate between the
value and the gap behind it (value, gap, value, ...), of which `take` copies every second element. Records with
compressed bodies get their bodies decompressed; inner batches (BatchCQ) become one row per message.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ringmq.client.compression import decompress_body
from ringmq.spark_bridge.inner_batch import InnerMessage, split_inner_batch
from ringmq.spark_bridge.scan import Scan
from ringmq.spark_bridge.schema import COLUMNS, LOG_APPEND_TIME, arrow_schema
from ringmq.store import layout

COMPRESSED = 0x1
INNER_BATCH = layout.INNER_BATCH

Keep = Callable[[str, int], bool]
"""(topic, commit-log offset) -> whether the record's rows count."""


class _Chunk:
    """A scan together with its bytes."""

    def __init__(self, scan: Scan, data: Any, data_start: int, selected: NDArray[np.int64]) -> None:
        self.rows = scan.rows
        self.keys = scan.keys
        self.buffer = pa.py_buffer(data)
        self.base = scan.rows["position"] - data_start  # place of each record in the bytes
        self.selected = pa.array(selected * 2)  # every second element is a value, see the module's text
        self.rows_selected = selected

    def gather(self, at: NDArray[Any], length: NDArray[Any]) -> pa.Array:
        """Binary values at places relative to their record; empty where the length is 0."""
        begin = self.base + at
        offsets = np.empty(2 * len(begin), np.int32)
        offsets[0::2] = begin
        offsets[1::2] = begin + length
        array = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self.buffer])
        return array.take(self.selected)

    def gather_or_null(self, name: str) -> pa.Array:
        """A property as binary, null where it is absent."""
        length = self.keys[f"{name}_length"]
        values = self.gather(self.keys[f"{name}_at"], length)
        present = pa.array(length[self.rows_selected] > 0)
        return pc.if_else(present, values, pa.scalar(None, pa.binary()))

    def bytes_at(self, row: int, at: int, length: int) -> bytes:
        """One value of one record."""
        begin = int(self.base[row]) + int(at)
        return memoryview(self.buffer)[begin : begin + int(length)].tobytes()


def build_batch(scan: Scan, data: Any, data_start: int, columns: tuple[str, ...], keep: Keep) -> pa.RecordBatch:
    """The rows of a scan that count, in log order. `data` and `data_start` as given to the scan."""
    whole = _Chunk(scan, data, data_start, np.arange(len(scan.rows)))
    selected = _select(whole, keep)
    if not len(selected):
        return pa.RecordBatch.from_pylist([], arrow_schema(columns))
    chunk = _Chunk(scan, data, data_start, selected)
    arrays = [_COLUMN_BUILDERS[name](chunk) for name in columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
    inner = np.flatnonzero(scan.rows["sys_flag"][selected] & INNER_BATCH)
    return _with_inner_messages(batch, chunk, inner) if len(inner) else batch


def _select(chunk: _Chunk, keep: Keep) -> NDArray[np.int64]:
    """Indexes of the records that count: of a wanted topic, and not half or rolled back."""
    rows = chunk.rows
    transaction = rows["sys_flag"] & layout.TRANSACTION_MASK
    wanted = (transaction != layout.TRANSACTION_PREPARED) & (transaction != layout.TRANSACTION_ROLLBACK)
    topics = chunk.gather(rows["topic_at"], rows["topic_length"]).dictionary_encode()
    codes = topics.indices.to_numpy()
    positions = rows["position"]
    for code, name in enumerate(topics.dictionary.to_pylist()):
        of_topic = codes == code
        topic = name.decode("utf-8", "replace")
        # a topic counts from its first or from a later offset on: the last record tells whether any row does
        first, last = int(positions[of_topic][0]), int(positions[of_topic][-1])
        if keep(topic, first):
            continue
        if keep(topic, last):
            of_topic &= np.array([not keep(topic, int(at)) for at in positions])
        wanted &= ~of_topic
    return np.flatnonzero(wanted)


def _text(values: pa.Array) -> pa.Array:
    """Binary as text; bytes that are no UTF-8 are replaced, as Java does."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def _values(chunk: _Chunk) -> pa.Array:
    bodies = chunk.gather(chunk.rows["body_at"], chunk.rows["body_length"])
    flags = chunk.rows["sys_flag"][chunk.rows_selected]
    compressed = np.flatnonzero(flags & COMPRESSED)
    if not len(compressed):
        return bodies
    plain = bodies.to_pylist()
    for index in compressed:
        plain[index] = decompress_body(plain[index], int(flags[index]))
    return pa.array(plain, pa.binary())


def _message_ids(chunk: _Chunk) -> pa.Array:
    ids = _text(chunk.gather_or_null("uniq_key"))
    missing = np.flatnonzero(chunk.keys["uniq_key_length"][chunk.rows_selected] == 0)
    if not len(missing):
        return ids
    texts = ids.to_pylist()
    for index in missing:
        texts[index] = _offset_message_id(chunk, int(chunk.rows_selected[index]))
    return pa.array(texts, pa.string())


def _offset_message_id(chunk: _Chunk, row: int) -> str:
    """Store host and place in the log (`MessageDecoder.createMessageId`)."""
    fields = chunk.rows[row]
    host_length = 20 if fields["sys_flag"] & layout.STORE_HOST_V6 else 8
    host = chunk.bytes_at(row, fields["store_host_at"], host_length)
    return (host + int(fields["position"]).to_bytes(8, "big")).hex().upper()


def _number(name: str, kind: pa.DataType) -> Callable[[_Chunk], pa.Array]:
    return lambda chunk: pa.array(chunk.rows[name][chunk.rows_selected], kind)


def _timestamps(chunk: _Chunk) -> pa.Array:
    micros = chunk.rows["store_time_ms"][chunk.rows_selected] * 1000
    return pa.array(micros, pa.int64()).cast(COLUMNS["timestamp"][1])


_COLUMN_BUILDERS: dict[str, Callable[[_Chunk], pa.Array]] = {
    "key": lambda chunk: chunk.gather_or_null("keys"),
    "value": _values,
    "topic": lambda chunk: _text(chunk.gather(chunk.rows["topic_at"], chunk.rows["topic_length"])),
    "partition": _number("queue_id", pa.int32()),
    "offset": _number("queue_offset", pa.int64()),
    "timestamp": _timestamps,
    "timestampType": lambda chunk: pa.array(np.full(len(chunk.rows_selected), LOG_APPEND_TIME), pa.int32()),
    "tags": lambda chunk: _text(chunk.gather_or_null("tags")),
    "msg_id": _message_ids,
    "commit_log_offset": _number("position", pa.int64()),
}


def _with_inner_messages(batch: pa.RecordBatch, chunk: _Chunk, inner: NDArray[np.int64]) -> pa.RecordBatch:
    """Each inner batch becomes its messages, in place. Rare (BatchCQ topics), so row by row."""
    rows: list[dict[str, Any]] = []
    inner_rows = set(inner.tolist())
    for index, row in enumerate(batch.to_pylist()):
        if index not in inner_rows:
            rows.append(row)
            continue
        record = int(chunk.rows_selected[index])
        fields = chunk.rows[record]
        body = decompress_body(
            chunk.bytes_at(record, fields["body_at"], fields["body_length"]), int(fields["sys_flag"])
        )
        properties = chunk.bytes_at(record, fields["properties_at"], fields["properties_length"])
        rows += [_inner_row(row, message) for message in split_inner_batch(body, properties, row.get("offset", 0))]
    return pa.RecordBatch.from_pylist(rows, batch.schema)


def _inner_row(row: dict[str, Any], message: InnerMessage) -> dict[str, Any]:
    own = {
        "key": message.keys,
        "value": message.body,
        "offset": message.queue_offset,
        "tags": message.tags,
        "msg_id": message.uniq_key or row.get("msg_id"),
    }
    return row | {name: value for name, value in own.items() if name in row}
