"""Batch reads of open messages: one task, which takes the last snapshot when it starts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from pyspark_ringmq.worker_process import freeze_imports, task_batches

from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.open_messages import OpenMessages, place_of
from ringmq.spark_bridge.options import ReadOptions, parse_columns
from ringmq.spark_bridge.schema import OPEN_COLUMNS
from ringmq.spark_bridge.slice_reader import store_here
from ringmq.spark_bridge.slices import StoreLocation


class StorePartition(InputPartition):
    """The one task's store, pickled to it."""

    def __init__(self, place: StoreLocation) -> None:
        super().__init__(place)
        self.place = place


class OpenReader(DataSourceReader):
    """Plain data only: it is pickled to the planning worker and to the task."""

    def __init__(self, root: Path, groups: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self._root, self._groups, self._columns = root, groups, columns

    def partitions(self) -> Sequence[InputPartition]:
        """See DataSourceReader. Raises `ReadError` for a folder without a store."""
        place = place_of(self._root)
        freeze_imports()
        return [StorePartition(place)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches. Runs in the task's Python worker."""
        assert isinstance(partition, StorePartition)
        if not store_here(partition.place):
            raise ReadError(
                f"this task's host does not have the store {self._root} that was planned (another host, boot or "
                "folder); run the tasks on the broker's host"
            )
        return task_batches(OpenMessages(self._root, self._groups).batches(self._columns))


def open_reader(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """Return the reader of open messages. Raises `OptionError`."""
    assert options.store is not None, "parse_options has refused it"
    columns = parse_columns(tuple(schema.fieldNames()), OPEN_COLUMNS.keys())
    return OpenReader(options.store, options.open_messages, columns)
