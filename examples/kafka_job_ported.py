"""A Kafka job, ported: word counts of a topic, once as a batch and once as a stream that resumes.

The job is typical: `kafka.bootstrap.servers`, `subscribe`, offsets as JSON, `CAST(value AS STRING)`, explode,
groupBy, a checkpoint. Two options change: `--format ringmq` replaces `kafka`, and the name server's address replaces
Kafka's. No line of `batch_counts` and `stream_counts` knows the difference.

    python kafka_job_ported.py                                                       # a broker and data of its own
    python kafka_job_ported.py --servers HOST:9876 --topic Access                    # a running RocketMQ or RingMQ
    python kafka_job_ported.py --format kafka --servers HOST:9092 --topic access     # Kafka, with its package installed
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from access_log_pipeline import DATA, read_lines, send_lines
from serving import ServeError, store_and_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 10


# ---- the job ----


def words_of(messages: "DataFrame") -> "DataFrame":
    """Return a row per word of each message."""
    from pyspark.sql.functions import col, explode, split

    text = messages.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    return text.select(explode(split(col("value"), "[^A-Za-z0-9]+")).alias("word")).where("word != ''")


def batch_counts(spark: "SparkSession", source: str, servers: str, topic: str) -> "DataFrame":
    """Count the words of all messages in the topic."""
    messages = (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps({topic: last_offsets(spark, source, servers, topic)}))
        .load()
    )
    return words_of(messages).groupBy("word").count().orderBy("count", ascending=False)


def last_offsets(spark: "SparkSession", source: str, servers: str, topic: str) -> dict[str, int]:
    """Return the end offset of each partition, for a job that records its progress."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    messages = spark.read.format(source).options(**options).load()
    ends = messages.groupBy("partition").agg({"offset": "max"}).collect()
    return {str(row["partition"]): row["max(offset)"] + 1 for row in ends}


def stream_counts(spark: "SparkSession", source: str, servers: str, topic: str, folder: Path) -> "DataFrame":
    """Count the words in steps of 2,000 messages, with a checkpoint in `folder` and Parquet files as sink."""
    messages = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2000)
        .option("failOnDataLoss", "false")
        .load()
    )
    query = (
        words_of(messages)
        .writeStream.format("parquet")
        .option("path", str(folder / "words"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(str(folder / "words")).groupBy("word").count()


# ---- around it ----


def run(source: str, servers: str, topic: str) -> tuple[Counter[str], Counter[str]]:
    """Run the job. Return the word counts of the batch and of the stream."""
    from ringmq.spark_bridge import session

    with tempfile.TemporaryDirectory(prefix="ringmq-spark-") as scratch:
        spark = session("word counts", scratch=Path(scratch))
        try:
            batch = {row["word"]: row["count"] for row in batch_counts(spark, source, servers, topic).collect()}
            streamed = stream_counts(spark, source, servers, topic, Path(scratch)).collect()
        finally:
            spark.stop()
    return Counter(batch), Counter({row["word"]: row["count"] for row in streamed})


def main() -> int:
    """Parse the command line, run, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--format", default="ringmq", help="ringmq (default) or kafka")
    parser.add_argument("--servers", help="the name server (or Kafka's servers); default: a broker of its own")
    parser.add_argument(
        "--topic", help="the topic to count; with a broker of its own it is filled with access-log lines"
    )
    parser.add_argument("--limit", type=int, help="only the first lines of the access log")
    options = parser.parse_args()
    if options.servers and not options.topic:
        parser.error("--servers needs --topic")
    topic = options.topic or f"AccessLog_{time.time_ns() // 1_000_000}"
    try:
        with ExitStack() as stack:
            servers = options.servers
            if not servers:
                _, servers = stack.enter_context(store_and_broker(None, None))
                asyncio.run(send_lines(servers, topic, read_lines(DATA, options.limit)))
            batch, streamed = run(options.format, servers, topic)
    except ServeError as error:
        print(f"word counts failed: {error}", file=sys.stderr)
        return 1
    for word, count in batch.most_common(SHOWN):
        print(f"  {word:<16} {count:8,} in the batch, {streamed[word]:8,} in the stream")
    print("batch and stream agree" if batch == streamed else "batch and stream DIFFER")
    return 0 if batch == streamed else 1


if __name__ == "__main__":
    sys.exit(main())
