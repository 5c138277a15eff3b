"""The accepted columns of rows to write, and the check of a schema. Types by Spark's simple names."""

from collections.abc import Sequence

from ringmq.spark_bridge.sink.errors import SchemaError

TEXT = ("string", "binary")
COLUMN_TYPES: dict[str, tuple[str, ...]] = {
    "value": TEXT,
    "key": TEXT,
    "topic": ("string",),
    "tags": ("string",),
    "headers": ("array<struct<key:string,value:binary>>", "array<struct<key:string,value:string>>"),
    "partition": ("int",),
    "shardingKey": ("string",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp",),
}
LATER_COLUMNS = ("delayLevel", "deliverAt")
"""Columns of delayed messages, which cannot be in a batch and wait at the broker that serves delays."""


def check_write_schema(fields: Sequence[tuple[str, str]], topic_option: str | None) -> None:
    """Check (name, simple type) of every column. Raises SchemaError."""
    names = [name for name, _ in fields]
    for name, kind in fields:
        if name not in COLUMN_TYPES:
            raise SchemaError(
                f"column {name!r} cannot be written; known are {', '.join(COLUMN_TYPES)}: select or rename"
            )
        if kind not in COLUMN_TYPES[name]:
            raise SchemaError(f"column {name} is {kind}, accepted: {' or '.join(COLUMN_TYPES[name])}")
    if "value" not in names:
        raise SchemaError(f"column value (accepted: {' or '.join(TEXT)}) is missing")
    if topic_option is None and "topic" not in names:
        raise SchemaError("neither option topic nor a column topic says where the rows go")
    if "partition" in names and "shardingKey" in names:
        raise SchemaError("columns partition and shardingKey both choose the queue: drop one of them")
