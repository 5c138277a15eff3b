"""A Spark job for `test_local_cluster`: driver and executors are processes of their own. Prints what it found as JSON.

Argument: name servers.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark_ringmq.session import register


def main(bootstrap: str) -> None:
    """Sums over every topic of the golden store, by either transport."""
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )
    register(spark)  # by its name Spark finds the source in a regular install only
    options = {"bootstrap": bootstrap, "subscribePattern": "Gold.*", "minPartitions": "6"}
    found = {
        transport: sums(spark.read.format("ringmq").options(**options, transport=transport).load())
        for transport in ("auto", "tcp")
    }
    executors = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver is one of them
    print(json.dumps({"sums": found, "executors": executors}))
    spark.stop()


def sums(frame: DataFrame) -> dict[str, list[int]]:
    """Rows, sum of offsets and sum of the values' CRCs by topic."""
    totals = frame.groupBy("topic").agg(f.count("*"), f.sum("offset"), f.sum(f.crc32("value")))
    return {topic: [rows, offsets, values] for topic, rows, offsets, values in totals.collect()}


if __name__ == "__main__":
    main(*sys.argv[1:])
