"""Sealed files of a commit log as Parquet files, for repeated queries of headers only.

Each full log file with rows becomes one Parquet file, named by its first offset. A file appears whole or not at all.
A repeated run continues after the last file.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.limits import read_spans
from ringmq.spark_bridge.log_ranges import log_extent, log_slices
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.progress import Progress
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.schema import KAFKA_COLUMNS, arrow_schema
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.slices import Slice
from ringmq.store import layout

ROW_GROUP_BYTES = 32 << 20


def store_to_parquet(
    store: str | Path,
    target: str | Path,
    *,
    topics: str | Sequence[str] = (),
    columns: Sequence[str] = KAFKA_COLUMNS,
    compression: str = "snappy",
    progress: bool | None = None,
) -> list[Path]:
    """Write the missing files of the folder `target`. Returns the files written.

    Without `topics` all user topics are written. `columns` are names of `schema.COLUMNS`. `compression` is Parquet's
    (snappy, zstd, none). Raises `OptionError`, and `ReadError`, also for a target with other columns or topics, or of
    another store.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    given = {"store": str(store), "columns": ",".join(columns)}
    options = parse_options(given | ({"subscribe": ",".join(names)} if names else {}))
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    schema = arrow_schema(options.columns).with_metadata(_source(options))
    for path in folder.glob("*.parquet"):
        _check_same(path, schema)
    parts = {path: part for path, part in _sealed(options, folder) if not path.exists()}
    with Progress("parquet", sum(part.rows_max for part in parts.values()), "row", progress) as bar:
        for path, part in parts.items():
            _write(path, part, schema, compression, bar)
    return list(parts)


def _sealed(options: ReadOptions, folder: Path) -> Iterator[tuple[Path, Slice]]:
    """Yield the Parquet file of each full log file, and its slice of the wanted queues."""
    catalog = open_catalog(options)
    spans, index = read_spans(catalog, options), catalog.log_index()
    if index is None or not spans:
        return
    for part in log_slices(catalog.brokers()[0], index, spans, log_extent(index, spans), index.file_bytes):
        assert part.log is not None and part.broker.store is not None
        start = part.log.begin // index.file_bytes * index.file_bytes
        behind = start + index.file_bytes
        if behind < index.span.end and _has_begun(Path(part.broker.store.root), behind):
            yield folder / f"{layout.file_name(start)}.parquet", part


def _has_begun(root: Path, start: int) -> bool:
    """True if the log file has a record: brokers make the next file ahead of its first one."""
    with (root / layout.COMMIT_LOG / layout.file_name(start)).open("rb") as file:
        return any(file.read(8))


def _source(options: ReadOptions) -> dict[bytes, bytes]:
    """Return the origin of a file's rows, for its metadata. A log's folder keeps its inode."""
    place = open_catalog(options).brokers()[0].store
    assert place is not None
    topics = ",".join(sorted(options.topics.names)) or "all user topics"
    return {b"ringmq.topics": topics.encode(), b"ringmq.store": f"{place.root}, inode {place.inode}".encode()}


def _check_same(path: Path, schema: pa.Schema) -> None:
    found = pq.read_schema(path)
    if not found.equals(schema):
        raise ReadError(f"{path} was written with other columns; give the same columns or another target folder")
    for name, wanted in schema.metadata.items():
        has = (found.metadata or {}).get(name, b"unknown")
        if has != wanted:
            raise ReadError(
                f"{path} was written with {name.decode()} = {has.decode()}, not {wanted.decode()}; "
                "give another target folder"
            )


def _write(path: Path, part: Slice, schema: pa.Schema, compression: str, bar: Progress) -> None:
    unfinished = path.with_name(f".{path.name}.part")
    columns = tuple(schema.names)
    with pq.ParquetWriter(unfinished, schema, compression=compression) as writer:
        group: list[pa.RecordBatch] = []
        for batch in read_slice(part, columns, ReadSettings()):
            group.append(batch)
            bar.advance(batch.num_rows)
            if sum(one.nbytes for one in group) >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group), row_group_size=1 << 30)
                group = []
        if group:
            writer.write_table(pa.Table.from_batches(group), row_group_size=1 << 30)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
