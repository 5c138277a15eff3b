"""`ringmq.spark_bridge.read(spark, ...)`: a batch read by the fastest source that serves it."""

from pyspark.sql import DataFrame, SparkSession
from pyspark_ringmq.jvm import FORMAT, jvm_options


def read(session: SparkSession, **options: object) -> DataFrame:
    """Return the rows of format `ringmq` with `options`. Values may be Python's (True, 4, a Path).

    The JVM source serves the read if its jar is on the class path and it supports the options (`pyspark_ringmq.jvm`).
    Otherwise the Python source does. Raises `OptionError`.
    """
    texts = {name: _text(value) for name, value in options.items() if value is not None}
    for_jvm = jvm_options(session, texts)
    if for_jvm is None:
        return session.read.format("ringmq").options(**texts).load()
    return session.read.format(FORMAT).options(**for_jvm).load()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
