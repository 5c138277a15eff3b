"""The one table of columns: name -> Spark type and Arrow type, in order. Most are those of Spark's Kafka source."""

import pyarrow as pa

COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "key": ("binary", pa.binary()),  # the KEYS property: all keys, separated by a blank
    "value": ("binary", pa.binary()),  # the body, decompressed
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),  # queue id
    "offset": ("bigint", pa.int64()),  # queue offset
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),  # store time
    "timestampType": ("int", pa.int32()),  # 1: when the log took it (Kafka's LogAppendTime)
    "tags": ("string", pa.string()),
    "msg_id": ("string", pa.string()),  # UNIQ_KEY, or the offset message id where there is none
    "commit_log_offset": ("bigint", pa.int64()),
}
LOG_APPEND_TIME = 1


def spark_schema(columns: tuple[str, ...]) -> str:
    """The columns as Spark DDL."""
    return ", ".join(f"`{name}` {COLUMNS[name][0]}" for name in columns)


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The columns as an Arrow schema; Spark checks the first batch against it."""
    return pa.schema([(name, COLUMNS[name][1]) for name in columns])
