"""`spark.read.format("ringmq").option("store", DIR).load()`: RingMQ and RocketMQ topics as tables and streams.

Spark finds this module by its name. The class is Spark's interface and only delegates to the parts, which are
imported on demand: `batch`, `stream` and `sink` here, everything else in `ringmq.spark_bridge`.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType
from pyspark_ringmq.catalog_table import is_of_table, options_in_schema, options_of_table, schema_with_options
from pyspark_ringmq.worker_process import exit_quietly

__all__ = ["DefaultSource"]

exit_quietly()  # here, since some workers import this module and call nothing


class DefaultSource(DataSource):
    """The format `ringmq`. Options: `ringmq.spark_bridge.option_table`; columns: `ringmq.spark_bridge.schema`."""

    def __init__(self, options: dict[str, str]) -> None:
        from ringmq.spark_bridge.option_table import warn_of_kafka_options

        self._is_of_table = is_of_table(options)
        super().__init__(options_of_table(options) if self._is_of_table else options)
        warn_of_kafka_options(self.options)  # Spark makes one instance for a read or write, and pickles it to others

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ringmq"

    def schema(self) -> StructType | str:
        """Return the columns that the options select."""
        from ringmq.spark_bridge.plan import columns_of, table_of
        from ringmq.spark_bridge.schema import arrow_schema, spark_schema

        columns, table = columns_of(self.options), table_of(self.options)
        if self._is_of_table:
            return schema_with_options(arrow_schema(columns, table), self.options)
        return spark_schema(columns, table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read of the columns in `schema`, which may be a selection (`.schema("offset bigint")`)."""
        from pyspark_ringmq.batch import batch_reader

        from ringmq.spark_bridge.options import parse_options

        options = parse_options(self._options(schema))
        if not options.open_messages:
            return batch_reader(options, schema)
        from pyspark_ringmq.open_messages import open_reader

        return open_reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a stream of the columns in `schema`."""
        from pyspark_ringmq.stream import stream_reader

        from ringmq.spark_bridge.options import parse_columns, parse_options

        options = parse_options(self._options(schema), streaming=True)
        return stream_reader(options, parse_columns(tuple(schema.fieldNames())))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch write of rows of `schema`."""
        from pyspark_ringmq.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a streaming write of rows of `schema`."""
        from pyspark_ringmq.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _options(self, schema: StructType) -> Mapping[str, str]:
        """Return the options. For a table in Spark's catalog they come from its schema."""
        return {**options_in_schema(schema), **self.options}
