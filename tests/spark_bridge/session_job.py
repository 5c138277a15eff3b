"""A job of `session()` on a store, for tests of its standard error: `python session_job.py STORE`."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringmq.spark_bridge import session


def show_error(name: str, run: Callable[[], Any]) -> None:
    """Print the error of `run` in one line."""
    try:
        run()
    except Exception as error:
        text = str(error).partition("\n\nJVM stacktrace")[0]
        print(f"{name}: {text!r}", flush=True)


def main(store: str) -> None:
    """Read in a batch and in a stream, and write, each with an option of Kafka's client."""
    spark = session("session job", cores=2)
    source = spark.read.format("ringmq").option("store", store).option("minPartitions", 4)
    frame = source.option("kafka.max.poll.records", "5").load()
    print(f"partitions: {frame.rdd.getNumPartitions()}")
    print(f"rows: {frame.count()} {frame.where('partition = 1').count()}")

    stream = spark.readStream.format("ringmq").option("store", store).option("startingOffsets", "earliest")
    stream = stream.option("maxOffsetsPerTrigger", 2000).option("kafka.group.id", "readers")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = stream.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
        started = query.trigger(availableNow=True).start()
        assert started.awaitTermination(200)
        print(f"batches: {len(list(Path(checkpoint, 'commits').glob('[0-9]*')))}")

    rows = spark.range(8).repartition(4).selectExpr("cast(id AS string) AS value")
    writer = (
        rows.write.format("ringmq")
        .option("bootstrap", "127.0.0.1:1")
        .option("topic", "T")
        .option("sendTimeoutMs", 1000)
    )
    show_error("default mode", writer.save)
    show_error("overwrite", writer.mode("overwrite").save)
    show_error("append", writer.mode("append").option("kafka.acks", "all").save)
    show_error("misspelled", spark.read.format("ringmq").option("stroe", store).load)


if __name__ == "__main__":
    main(sys.argv[1])
