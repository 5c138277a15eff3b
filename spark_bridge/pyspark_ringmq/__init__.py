"""`spark.read.format("ringmq").option("store", DIR).load()`: RingMQ and RocketMQ topics as tables and streams.

Spark finds this module by its name. The class is Spark's interface and only leads to the parts, each imported when it
is asked for: `batch`, `stream` and `sink` here, everything else in `ringmq.spark_bridge`.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The format `ringmq`. Options: `ringmq.spark_bridge.option_table`; columns: `ringmq.spark_bridge.schema`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ringmq"

    def schema(self) -> str:
        """The columns that the options ask for."""
        from ringmq.spark_bridge.plan import columns_of
        from ringmq.spark_bridge.schema import spark_schema

        return spark_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the columns in `schema`, which may be a selection (`.schema("offset bigint")`)."""
        from pyspark_ringmq.batch import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of the columns in `schema`."""
        from pyspark_ringmq.stream import stream_reader

        from ringmq.spark_bridge.options import parse_columns, parse_options

        return stream_reader(parse_options(self.options, streaming=True), parse_columns(tuple(schema.fieldNames())))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write of rows of `schema`."""
        from pyspark_ringmq.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write of rows of `schema`."""
        from pyspark_ringmq.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
