"""Reads of the log without Spark: `scan(...)` is a frozen range of rows as Arrow batches, with conversions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ringmq.client.extras import not_installed
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.option_table import warn_of_kafka_options
from ringmq.spark_bridge.options import OptionError, ReadOptions, parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.progress import Progress
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.schema import COLUMNS, Columns, arrow_schema, default_columns
from ringmq.spark_bridge.slice_reader import read_slice

if TYPE_CHECKING:
    import pandas
    import polars


def scan(
    source: str | Path,
    *,
    topics: str | Sequence[str] = (),
    columns: Sequence[str] = (),
    progress: bool | None = None,
    check_crc: bool = False,
    **options: str | int,
) -> "Scan":
    """Return the messages of a store (its folder) or of the brokers behind a name server (`host:port`), up to now.

    Without `topics` all user topics are read. `columns` are names of `schema.COLUMNS`, by default those of Spark's
    source. Further options are those of the data source, e.g. `startingTimestamp=1700000000000`. With `openMessages`,
    the rows are the open messages of these groups, and their columns those of `schema.OPEN_COLUMNS`. A progress bar is
    shown on standard error if that is a terminal and the scan takes longer than a second. `progress` overrides this.
    With `check_crc` (Spark's option `verifyCrc`) a body whose CRC is wrong is a `ReadError` that names its place.
    Raises `OptionError` and `ReadError`.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    is_address = isinstance(source, str) and ":" in source and not Path(source).is_dir()
    given = {"bootstrap" if is_address else "store": str(source)}
    given |= {name: _text(name, value) for name, value in options.items()}
    given |= {"subscribe": ",".join(names)} if names else {}
    given |= {"verifyCrc": "true"} if check_crc else {}
    given |= {"columns": ",".join(columns)} if columns else {}
    warn_of_kafka_options(given)
    return Scan(_rows(parse_options(given)), progress)


class ScannedRows(Protocol):
    """Rows that are frozen. `columns`: those of a read, out of `table`. `rows_max`: at most so many rows."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def table(self) -> Columns: ...
    @property
    def rows_max(self) -> int: ...
    def batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]: ...


class Messages:
    """The messages of a plan: implements ScannedRows."""

    table = COLUMNS

    def __init__(self, options: ReadOptions) -> None:
        self._slices = plan_batch(open_catalog(options), options)
        brokers = {part.broker.name for part in self._slices}
        self.columns = options.columns or default_columns(headers=options.include_headers, broker=len(brokers) > 1)
        self._how = replace(ReadSettings.of(options), reuse_buffers=False)

    @property
    def rows_max(self) -> int:
        """The number of rows before the check of times."""
        return sum(part.rows_max for part in self._slices)

    def batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `ReadError` and `DataLossError`."""
        for part in self._slices:
            yield from read_slice(part, columns, self._how)


class Scan:
    """The rows at the time of the scan. It can be read repeatedly."""

    def __init__(self, rows: ScannedRows, progress: bool | None = None) -> None:
        self._rows, self._progress = rows, progress

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return arrow_schema(self._rows.columns, self._rows.table)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of about 1 MiB. Raises `ReadError` and `DataLossError`."""
        return self._batches(self._rows.columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as Arrow's C stream, so that `pyarrow.table`, polars and DuckDB take the scan as it is."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        with Progress("scan", self._rows.rows_max, "row", self._progress) as bar:
            for batch in self._rows.batches(columns):
                bar.advance(batch.num_rows)
                yield batch

    def to_arrow(self) -> pa.Table:
        """Return all rows in memory."""
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self, **how: Any) -> "pandas.DataFrame":
        """Return all rows as a pandas frame. `how` goes to `pyarrow.Table.to_pandas`. Needs the extra `pandas`."""
        _require("pandas")
        return self.to_arrow().to_pandas(**how)

    def to_polars(self) -> "polars.DataFrame":
        """Return all rows as a polars frame. Needs the extra `polars`."""
        frame: polars.DataFrame = _require("polars").from_arrow(self.to_arrow())
        return frame

    def count(self) -> int:
        """Return the number of rows, from the ConsumeQueues if no time is given."""
        return sum(batch.num_rows for batch in self._batches(("offset",)))


def _rows(options: ReadOptions) -> ScannedRows:
    if not options.open_messages:
        return Messages(options)
    from ringmq.spark_bridge.open_messages import OpenMessages

    assert options.store is not None, "parse_options has refused it"
    return OpenMessages(options.store, options.open_messages, options.columns)


def _require(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(not_installed(f"to_{package}()", package, package)) from error


def _text(name: str, value: object) -> str:
    """Return an option as the text that Spark would give. Raises `OptionError`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    raise OptionError(f"option {name}={value!r} is a {type(value).__name__}; accepted: text, a whole number or a bool")
