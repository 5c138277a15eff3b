"""Batch reads: planned on the driver once per action, read by tasks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ringmq.spark_bridge.options import ReadOptions, parse_columns, parse_options
from ringmq.spark_bridge.plan import LogRange, ReadPlan, plan_read, wants_topic
from ringmq.spark_bridge.read import read_range


class RangePartition(InputPartition):
    """One range of the log with what its task must know; pickled to it."""

    def __init__(self, log_range: LogRange, plan: ReadPlan) -> None:
        super().__init__(log_range.begin)
        self.log_range = log_range
        self.plan = plan


class Reader(DataSourceReader):
    """Plain data only: it is pickled to the planning worker and to every task."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the ranges; called on the driver for each action, so a growing log ends where it ends now."""
        plan = plan_read(self._options)
        bare = ReadPlan((), plan.topics, plan.trust_offset, plan.readable_offset)
        return [RangePartition(log_range, bare) for log_range in plan.ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one range; runs in a task's Python worker."""
        assert isinstance(partition, RangePartition)
        plan, options = partition.plan, self._options

        def keep(topic: str, commit_log_offset: int) -> bool:
            return wants_topic(plan, options, topic, commit_log_offset)

        return read_range(partition.log_range, self._columns, keep)


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of one batch read. Raises `OptionError`."""
    return Reader(parse_options(options), parse_columns(tuple(schema.fieldNames())))
