"""Requests per minute over an access log while it is being produced.

Starts `ringmq serve` on a store folder (or uses a running one), and sends the lines of examples/data/access.log at a
steady rate. A Structured Streaming query follows the topic and counts the lines per minute. Each batch prints the
lines so far, the age of its newest line and the newest minute's count. At the end all minutes are compared with the
source file: the exit status is 1 if they differ.
"""

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from access_log_pipeline import DATA, read_lines
from serving import ServeError, store_and_broker

from ringmq.client import RingmqError, compose_message
from ringmq.client.blocking import Producer

MINUTE = re.compile(rb"\[(\d\d/\w{3}/\d{4}:\d\d:\d\d)")
STEP_S = 0.1
QUERY_TIMEOUT_S = 120.0


def minutes_of(lines: list[bytes]) -> Counter[datetime]:
    """Return the expected counts: lines per minute, by their own time stamps."""
    counts: Counter[datetime] = Counter()
    for line in lines:
        found = MINUTE.search(line)
        if found is not None:
            counts[datetime.strptime(found[1].decode(), "%d/%b/%Y:%H:%M").replace(tzinfo=UTC)] += 1
    return counts


def send_steadily(producer: Producer, topic: str, lines: list[bytes], rate: int) -> None:
    """Send `rate` lines a second, a few at a time."""
    started = time.monotonic()
    at = 0
    while at < len(lines):
        due = min(len(lines), int((time.monotonic() - started + STEP_S) * rate))
        producer.send_all(compose_message(topic, line) for line in lines[at:due])
        at = due
        time.sleep(STEP_S)


class MinuteCounts:
    """The counts of the query so far. Each batch brings the minutes that changed."""

    def __init__(self) -> None:
        self.counts: Counter[datetime] = Counter()

    def take(self, changed: Any, batch_id: int) -> None:
        """Add one batch's minutes and print a line about it. Spark calls this on the driver."""
        rows = changed.collect()
        if not rows:
            return
        age_ms = time.time() * 1000 - max(row["newest"].timestamp() for row in rows) * 1000
        for row in rows:
            self.counts[row["minute"].astimezone(UTC)] = row["requests"]
        newest = max(row["minute"] for row in rows).astimezone(UTC)
        print(
            f"  batch {batch_id:3d}: {self.counts.total():6,} lines so far, {len(rows):4d} minutes changed, the newest "
            f"line is {age_ms:5.0f} ms old; {newest:%d %b %H:%M} has {self.counts[newest]} requests"
        )


def count_per_minute(spark: Any, store: Path, topic: str, counts: MinuteCounts, checkpoint: Path) -> Any:
    """Start the streaming query."""
    stamp = r"regexp_extract(cast(value AS string), '\\[(\\d\\d/\\w{3}/\\d{4}:\\d\\d:\\d\\d)', 1)"
    return (
        spark.readStream.format("ringmq")
        .option("store", str(store))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr(f"try_to_timestamp({stamp}, 'dd/MMM/yyyy:HH:mm') AS minute", "timestamp")
        .where("minute IS NOT NULL")
        .groupBy("minute")
        .agg({"*": "count", "timestamp": "max"})
        .withColumnRenamed("count(1)", "requests")
        .withColumnRenamed("max(timestamp)", "newest")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(counts.take)
        .start()
    )


def run(store: Path, namesrv: str, lines: list[bytes], topic: str, rate: int) -> bool:
    """Produce and count at the same time. True if the counts of query and file agree."""
    from pyspark_ringmq.session import local_session

    expected, counts = minutes_of(lines), MinuteCounts()
    with tempfile.TemporaryDirectory(prefix="ringmq-spark-") as scratch, Producer(namesrv) as producer:
        producer.send(compose_message(topic, b"warm-up"))  # makes the topic
        spark = local_session("requests per minute", Path(scratch))
        try:
            query = count_per_minute(spark, store, topic, counts, Path(scratch) / "checkpoint")
            sender = threading.Thread(target=send_steadily, args=(producer, topic, lines, rate))
            sender.start()
            deadline = time.monotonic() + QUERY_TIMEOUT_S + len(lines) / rate
            while query.isActive and counts.counts.total() < len(lines) and time.monotonic() < deadline:
                query.awaitTermination(STEP_S)
            sender.join()
            query.stop()
        finally:
            spark.stop()
    print(f"busiest minutes of {len(expected)} (UTC)")
    for minute, count in expected.most_common(5):
        print(f"  {minute:%Y-%m-%d %H:%M}  {count:4d} in the file, {counts.counts[minute]:4d} in the stream")
    return counts.counts == expected


def main() -> int:
    """Parse the command line, run, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--store", type=Path, help="store folder (default: a new one, removed afterwards)")
    parser.add_argument("--namesrv", help="use a running broker by its name server; --store is its folder then")
    parser.add_argument("--limit", type=int, help="only the first lines")
    parser.add_argument("--rate", type=int, default=1000, help="lines per second (default 1000)")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    lines = read_lines(DATA, options.limit)
    topic = f"AccessLog_{time.time_ns() // 1_000_000}"
    try:
        with store_and_broker(options.store, options.namesrv) as (store, namesrv):
            print(f"sending {len(lines):,} lines at {options.rate:,}/s to topic {topic}, counting as they come")
            agreed = run(store, namesrv, lines, topic, options.rate)
    except (RingmqError, ServeError) as error:
        print(f"requests per minute failed: {error}", file=sys.stderr)
        return 1
    print("stream and file agree" if agreed else "stream and file DIFFER")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
