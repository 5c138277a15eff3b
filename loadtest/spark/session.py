"""The Spark session of the bench: the product's own, with the other side's Java source on its class path."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ringmq.loadtest.stock.java import compile_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = Path(__file__).with_name("java")
PROGRESS_UPDATES = 10_000  # of a streaming query, kept for reading: one per micro-batch


@cache
def stock_classes() -> Path:
    """Return the folder of the stock client's compiled feed, which `StockSource` alone loads."""
    return compile_java([JAVA / "LitePullFeed.java"], "feed")


def _spark_classes() -> Path:
    """Return the folder of the Spark source that reads the feed, compiled against the jars of pyspark."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    return compile_java([JAVA / "StockSource.java"], "spark-source", f"{jars}/*")


def compile_sources() -> None:
    """Compile what rows need of Java. Raises StockError."""
    stock_classes()
    _spark_classes()


def open_session(scratch: Path, cores: int) -> "SparkSession":
    """Return a local session with its files in `scratch`."""
    from ringmq.spark_bridge import session

    made: SparkSession = session(
        "RingMQ Spark bench",
        scratch=scratch,
        cores=cores,
        config={
            "spark.driver.extraClassPath": str(_spark_classes()),
            "spark.sql.streaming.numRecentProgressUpdates": str(PROGRESS_UPDATES),
        },
    )
    return made
