"""A batch is whole until the next one is asked for, though both use the same memory."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice

COLUMNS = ("key", "value", "offset", "headers", "tags", "properties")


def sent_on(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as whoever gets it by a socket has it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_all().to_batches()[0]


def test_reused_buffers_give_the_same_rows(golden_store: Path) -> None:
    options = parse_options({"store": str(golden_store), "columns": ",".join(COLUMNS)})
    slices = plan_batch(open_catalog(options), options)
    small = replace(ReadSettings.of(options), batch_rows=7)
    rows = {}
    for reuse in (True, False):
        how = replace(small, reuse_buffers=reuse)
        batches = [sent_on(batch) for part in slices for batch in read_slice(part, COLUMNS, how)]
        rows[reuse] = pa.Table.from_batches(batches).to_pylist()
        assert len(batches) > 10
    assert rows[True] == rows[False]
    assert {column: any(row[column] is None for row in rows[True]) for column in ("key", "headers", "tags")} == {
        "key": True,
        "headers": True,
        "tags": True,
    }
    assert all(any(row[column] is not None for row in rows[True]) for column in ("key", "headers", "tags"))
