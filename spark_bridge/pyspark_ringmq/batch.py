"""Batch reads: planned on the driver once per action, read by tasks.

Spark pushes filters down if `spark.sql.python.filterPushdown.enabled` is true. If it is false Spark rejects a reader
with `pushFilters`. So only Spark's worker for push-down gets such a reader.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType
from pyspark_ringmq.worker_process import freeze_imports, task_batches

from ringmq.spark_bridge import pushed_filters
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import ReadOptions, parse_columns
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.pushed_filters import PushedFilter, PushedFilters
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.slices import Slice

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_OPS = {
    "EqualTo": "=",
    "In": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SlicePartition(InputPartition):
    """One task's work, pickled to it."""

    def __init__(self, part: Slice) -> None:
        super().__init__(part)
        self.part = part


class Reader(DataSourceReader):
    """Plain data only: it is pickled to the planning worker and to every task."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._filters = pushed_filters.NO_FILTERS

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks; called on the driver for each action, so a growing log ends where it ends now."""
        slices = plan_batch(open_catalog(self._options), self._options, self._filters)
        freeze_imports()
        return [SlicePartition(part) for part in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one slice. Runs in a task's Python worker."""
        if not isinstance(partition, SlicePartition):
            return iter(())  # Spark makes one partition of its own of a plan without any
        return task_batches(read_slice(partition.part, self._columns, ReadSettings.of(self._options)))


class FilteringReader(Reader):
    """A reader with the filters that Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters that reduce the plan, and yield those that Spark has to check itself, row by row."""
        conditions = []
        for pushed in filters:
            condition = filter_of(pushed)
            if condition is not None:
                conditions.append(condition)
            if not (condition.is_exact if condition else _is_always_true(pushed)):
                yield pushed
        self._filters = PushedFilters(tuple(conditions))


def filter_of(pushed: Filter) -> PushedFilter | None:
    """The filter as a condition, None when it does not narrow a plan."""
    op, column = _OPS.get(type(pushed).__name__), _column(pushed)
    if op is None or column is None:
        return None
    value: Any = getattr(pushed, "value", None)
    values = value if isinstance(pushed, datasource.In) else (value,)
    plain = tuple(
        _microseconds(value) if isinstance(value, datetime) else value for value in values if value is not None
    )
    return PushedFilter(column, op, plain) if plain else None


def _microseconds(time: datetime) -> int:
    distance = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return (distance.days * 86_400 + distance.seconds) * 1_000_000 + distance.microseconds


def _is_always_true(pushed: Filter) -> bool:
    """True for a filter on null: these columns are never null."""
    return isinstance(pushed, datasource.IsNotNull) and _column(pushed) is not None


def _column(pushed: Filter) -> str | None:
    """Return the filter's column, None if it does not reduce a plan."""
    path: tuple[str, ...] = tuple(getattr(pushed, "attribute", ()))
    return path[0] if len(path) == 1 and path[0] in pushed_filters.COLUMNS else None


def _is_pushdown_worker() -> bool:
    """True in Spark's worker for push-down: the process imports that module, or runs it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or (spec is not None and spec.name == PUSHDOWN_WORKER)


def batch_reader(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """Return the reader of one batch read. Raises `OptionError`."""
    reader = FilteringReader if _is_pushdown_worker() else Reader
    return reader(options, parse_columns(tuple(schema.fieldNames())))
