"""The tables of columns, in order: name -> Spark type and Arrow type.

COLUMNS has those of messages, with the names of Spark's Kafka source:

* `key` is the KEYS property (all keys, separated by a blank), `value` the decompressed body.
* `partition` is the queue id, `offset` the queue offset.
* `timestamp` is the store time. `timestampType` is always 1, Kafka's LogAppendTime.
* `headers` are the properties that the application has set, null without any. RocketMQ's own names
  (`MessageConst.STRING_HASH_SET`: KEYS, TAGS, WAIT, ...) are left out. `properties` are all of them.
* `tags` and `key` are null if absent.
* `msg_id` is UNIQ_KEY, or the offset id of a message without one.
* `sys_flag` is as stored. A message of an inner batch has the batch's.
* `commit_log_offset` is the begin of the record. The messages of an inner batch share it.

OPEN_COLUMNS has those of open messages of POP. `topic`, `partition` and `offset` are those of the message's row.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

Columns = Mapping[str, tuple[str, pa.DataType]]
"""A table: name -> Spark type and Arrow type."""

COLUMNS: Columns = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", _TIME),
    "timestampType": ("int", pa.int32()),
    "headers": ("array<struct<key: string, value: binary>>", pa.list_(pa.field("element", _HEADER))),
    "broker": ("string", pa.string()),
    "tags": ("string", pa.string()),
    "msg_id": ("string", pa.string()),
    "born_timestamp": ("timestamp", _TIME),
    "sys_flag": ("int", pa.int32()),
    "commit_log_offset": ("bigint", pa.int64()),
    "properties": ("map<string, string>", pa.map_(pa.string(), pa.string())),
}
OPEN_COLUMNS: Columns = {
    "group": ("string", pa.string()),
    "topic": COLUMNS["topic"],
    "partition": COLUMNS["partition"],
    "offset": COLUMNS["offset"],
    "popped_at": ("timestamp", _TIME),
    "invisible_until": ("timestamp", _TIME),
    "age_ms": ("bigint", pa.int64()),
    "attempts": ("int", pa.int32()),
    "client": ("string", pa.string()),
}
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
LOG_APPEND_TIME = 1


def default_columns(*, headers: bool = False, broker: bool = False) -> tuple[str, ...]:
    """Return Kafka's columns, with `headers` (option includeHeaders) and `broker` (reads of several brokers)."""
    return KAFKA_COLUMNS + ("headers",) * headers + ("broker",) * broker


def spark_schema(columns: Sequence[str], table: Columns = COLUMNS) -> str:
    """Return the columns of a table as Spark DDL."""
    return ", ".join(f"`{name}` {table[name][0]}" for name in columns)


def arrow_schema(columns: Sequence[str], table: Columns = COLUMNS) -> pa.Schema:
    """Return the columns as an Arrow schema. Spark checks the first batch of a task against it."""
    return pa.schema([(name, table[name][1]) for name in columns])
