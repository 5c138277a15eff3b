"""Real input through the whole product. `make run` runs this script.

Starts `ringmq serve` on a store folder (or uses a running one). Sends the 10,000 lines of examples/data/access.log
through the SDK, and consumes them with a consumer group. Reads them once more in Spark straight from the mapped log.
Prints status classes, busiest hours and rates. Three ways of counting (consumer, Spark, source file) must agree, or
the exit status is 1.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from progress import progress
from serving import ServeError, store_and_broker

from ringmq.client import ConsumeFrom, Consumer, Message, Producer, compose_message

DATA = Path(__file__).parent / "data" / "access.log"
GROUP = "access_log_readers"
TIME = re.compile(rb"\[(\d\d/\w{3}/\d{4}:\d\d)")
CONSUME_TIMEOUT_S = 60.0


class PipelineError(Exception):
    """The pipeline cannot go on. The message names the reason."""


@dataclass(eq=True)
class Counts:
    """Lines, clients and status classes, counted in one way."""

    lines: int = 0
    body_bytes: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    by_hour: Counter[str] = field(default_factory=Counter)
    clients: set[str] = field(default_factory=set)

    def add(self, line: bytes, client: str, status: str) -> None:
        """Count one line, with the client and status class that the message carries."""
        self.lines += 1
        self.body_bytes += len(line)
        self.by_status[status] += 1
        self.by_hour[hour_of(line)] += 1
        self.clients.add(client)


def hour_of(line: bytes) -> str:
    """Return the hour of a line as "2015-05-17 10h"."""
    found = TIME.search(line)
    if found is None:
        raise PipelineError(f"no time stamp in line {line[:80]!r}")
    return datetime.strptime(found[1].decode(), "%d/%b/%Y:%H").strftime("%Y-%m-%d %Hh")


def client_and_status(line: bytes) -> tuple[str, str]:
    """Return (first field, status class from the ninth field) of a combined log line."""
    fields = line.split(b" ", 9)
    return fields[0].decode(), f"{fields[8][:1].decode()}xx"


def read_lines(path: Path, limit: int | None) -> list[bytes]:
    """Return the lines without their newlines."""
    return path.read_bytes().splitlines()[:limit]


# ---- the three ways of counting ----


def count_file(lines: list[bytes]) -> Counts:
    """Count the source file itself."""
    counts = Counts()
    for line in lines:
        counts.add(line, *client_and_status(line))
    return counts


async def send_lines(namesrv: str, topic: str, lines: list[bytes]) -> float:
    """Send each line as a message, pipelined. Return messages per second."""

    taken = 0

    def messages() -> Iterator[Message]:
        nonlocal taken
        for line in lines:
            taken += 1
            client, status = client_and_status(line)
            yield compose_message(topic, line, keys=client, tags=status)

    async with Producer(namesrv, "access_log_senders") as producer:
        await producer.send(compose_message(topic, b"warm-up", tags="warm-up"))  # makes topic and connection
        started = time.perf_counter()
        with progress(f"sending {len(lines)} lines of {DATA.name} to topic {topic}", lambda: f"{taken} messages"):
            await producer.send_all(messages(), pipeline=512)
        return len(lines) / (time.perf_counter() - started)


async def consume_lines(namesrv: str, topic: str, expected: int) -> tuple[Counts, float]:
    """Read the lines back as a member of a consumer group, by tag. Return the counts and messages per second."""
    counts = Counts()
    async with Consumer(
        {topic: "2xx || 3xx || 4xx || 5xx"}, namesrv, GROUP, consume_from=ConsumeFrom.FIRST
    ) as consumer:
        started = time.perf_counter()
        deadline = started + CONSUME_TIMEOUT_S
        with progress(f"consuming them by group {GROUP}", lambda: f"{counts.lines} messages"):
            while counts.lines < expected and time.perf_counter() < deadline:
                for message in await consumer.poll(timeout_ms=1000):
                    counts.add(message.body, message.keys[0], message.tags or "")
        rate = counts.lines / (time.perf_counter() - started)
        # a surplus must show too
        for message in await consumer.poll(timeout_ms=500):
            counts.add(message.body, message.keys[0], message.tags or "")
    return counts, rate


def count_in_spark(store: Path, topic: str) -> tuple[Counts, float]:
    """Count the lines once more in Spark, from the broker's log files.

    Return the counts and the seconds of the query.
    """
    from pyspark.sql import functions as sql

    from ringmq.spark_bridge import session

    with tempfile.TemporaryDirectory(prefix="ringmq-spark-") as scratch:
        with progress("starting Spark, which is a Java process"):
            spark = session("access log", scratch=Path(scratch))
        try:
            started = time.perf_counter()
            with progress("reading the mapped log in Spark: its first query", lambda: stages_of(spark)):
                lines = (
                    spark.read.format("ringmq")
                    .option("store", str(store))
                    .option("subscribe", topic)
                    .option("columns", "key,value,tags")
                    .load()
                    .where("tags != 'warm-up'")
                    .selectExpr("cast(key AS string) AS client", "value", "tags")
                )
                stamp = sql.regexp_extract(sql.col("value").cast("string"), r"\[(\d\d/\w{3}/\d{4}:\d\d)", 1)
                hours = sql.date_format(sql.to_timestamp(stamp, "dd/MMM/yyyy:HH"), "yyyy-MM-dd HH'h'")
                grouped = (
                    lines.withColumn("hour", hours)
                    .groupBy("tags", "hour")
                    .agg(
                        sql.count("*").alias("lines"),
                        sql.sum(sql.length("value")).alias("body_bytes"),
                        sql.collect_set("client").alias("clients"),
                    )
                    .collect()
                )
            seconds = time.perf_counter() - started
        finally:
            with progress("stopping Spark"):
                spark.stop()
    counts = Counts()
    for row in grouped:
        counts.lines += row["lines"]
        counts.body_bytes += row["body_bytes"]
        counts.by_status[row["tags"]] += row["lines"]
        counts.by_hour[row["hour"]] += row["lines"]
        counts.clients.update(row["clients"])
    return counts, seconds


def stages_of(spark: Any) -> str:
    """Return how far the stages of Spark's query are, empty between them."""
    tracker = spark.sparkContext.statusTracker()
    stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
    return ", ".join(f"{stage.numCompletedTasks} of {stage.numTasks} tasks of {stage.name}" for stage in stages)


# ---- the report ----


def report(source: Counts, ways: dict[str, Counts]) -> bool:
    """Print the counts. True if all ways agree."""
    print("\nstatus classes")
    for status, count in sorted(source.by_status.items()):
        print(f"  {status}  {count:6d}  {100 * count / source.lines:5.1f} %")
    print("busiest hours (UTC)")
    for hour, count in source.by_hour.most_common(5):
        print(f"  {hour}  {count:5d}")
    print("three ways of counting          lines     bytes  clients")
    for name, counts in ways.items():
        verdict = "agrees" if counts == source else "DIFFERS"
        print(f"  {name:<26} {counts.lines:8d} {counts.body_bytes:9d} {len(counts.clients):8d}  {verdict}")
    return all(counts == source for counts in ways.values())


def run(store: Path, namesrv: str, lines: list[bytes], topic: str) -> bool:
    """Send, consume and count. True if all ways agree."""
    source = count_file(lines)
    sent_rate = asyncio.run(send_lines(namesrv, topic, lines))
    print(f"  sent      {sent_rate:9,.0f} messages/s (one request each, pipelined)")
    consumed, consumed_rate = asyncio.run(consume_lines(namesrv, topic, source.lines))
    print(f"  consumed  {consumed_rate:9,.0f} messages/s")
    in_spark, spark_seconds = count_in_spark(store, topic)
    print(f"  Spark     {in_spark.lines:9,} messages from the mapped log in {spark_seconds:.1f} s, first query")
    return report(source, {"source file": source, "consumer group": consumed, "Spark from the log": in_spark})


def main() -> int:
    """Parse the command line, run, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--store", type=Path, help="store folder (default: a new one, removed afterwards)")
    parser.add_argument("--namesrv", help="use a running broker by its name server; --store is its folder then")
    parser.add_argument("--limit", type=int, help="only the first lines")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if options.namesrv and not options.store:
        parser.error("--namesrv needs --store: Spark reads the broker's files")
    lines = read_lines(DATA, options.limit)
    topic = f"AccessLog_{time.time_ns() // 1_000_000}"
    try:
        with ExitStack() as broker:
            with progress(f"{'finding' if options.namesrv else 'starting'} a name server and a broker"):
                store, namesrv = broker.enter_context(store_and_broker(options.store, options.namesrv))
            print(f"  name server on {namesrv}, store in {store}")
            agreed = run(store, namesrv, lines, topic)
            with nullcontext() if options.namesrv else progress("stopping the broker"):
                broker.close()
    except (PipelineError, ServeError) as error:
        print(f"pipeline failed: {error}", file=sys.stderr)
        return 1
    print("all three counts agree" if agreed else "the counts DIFFER")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
