"""Alerts out of Spark: a query copies requests that failed at the server to a topic of their own, for any consumer.

Sends the lines of examples/data/access.log. A Structured Streaming query selects those with status 5xx and writes
them to a topic. A plain consumer of the SDK, which knows nothing of Spark, receives them. The query runs twice with
one checkpoint, as after a restart: the second run finds nothing new and adds nothing. The exit status is 1 unless the
consumer got exactly the file's alerts.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from access_log_pipeline import DATA, client_and_status, read_lines, send_lines
from serving import ServeError, store_and_broker

from ringmq.client import ConsumeFrom, Consumer, RingmqError, compose_message
from ringmq.client.blocking import Producer

GROUP = "alert_readers"
QUIET_MS = 500
CONSUME_TIMEOUT_S = 30.0


def alerts_of(lines: list[bytes], status: str) -> Counter[tuple[str, bytes]]:
    """Return the expected alerts: (client address, line) of each line with this status class."""
    found: Counter[tuple[str, bytes]] = Counter()
    for line in lines:
        client, line_status = client_and_status(line)
        if line_status == status:
            found[client, line] += 1
    return found


def write_alerts(spark: Any, store: Path, namesrv: str, source: str, alerts: str, status: str, checkpoint: Path) -> int:
    """Run the query over the current messages. Return the number of messages that it looked at."""
    failed = (
        spark.readStream.format("ringmq")
        .option("store", str(store))
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("columns", "key,value,tags")
        .load()
        .where(f"tags = '{status}'")
        .selectExpr("key", "value", f"'{alerts}' AS topic", "'alert' AS tags")
    )
    query = (
        failed.writeStream.format("ringmq")
        .option("bootstrap", namesrv)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


async def receive(namesrv: str, topic: str, expected: int) -> Counter[tuple[str, bytes]]:
    """Return the messages of a consumer group, until `expected` have come and no more follow."""
    found: Counter[tuple[str, bytes]] = Counter()
    deadline = time.monotonic() + CONSUME_TIMEOUT_S
    async with Consumer({topic: "alert"}, namesrv, GROUP, consume_from=ConsumeFrom.FIRST) as consumer:
        while time.monotonic() < deadline:
            messages = await consumer.poll(timeout_ms=QUIET_MS)
            found.update((message.keys[0], message.body) for message in messages)
            if not messages and found.total() >= expected:
                break
    return found


def run(store: Path, namesrv: str, lines: list[bytes], status: str) -> bool:
    """Send, select, write and receive. True if exactly the alerts of the file arrived."""
    from ringmq.spark_bridge import session

    stamp = time.time_ns() // 1_000_000
    source, alerts = f"AccessLog_{stamp}", f"Alerts_{stamp}"
    expected = alerts_of(lines, status)
    asyncio.run(send_lines(namesrv, source, lines))
    with Producer(namesrv) as producer:
        producer.send(compose_message(alerts, b"opened", tags="opened"))  # Spark writes to topics that exist
    with tempfile.TemporaryDirectory(prefix="ringmq-spark-") as scratch:
        spark = session("alerts", scratch=Path(scratch))
        try:
            for number in ("first", "second"):
                looked_at = write_alerts(spark, store, namesrv, source, alerts, status, Path(scratch) / "checkpoint")
                print(f"{number} run of the query looked at {looked_at:,} messages")
        finally:
            spark.stop()
    received = asyncio.run(receive(namesrv, alerts, expected.total()))
    print(f"{expected.total()} lines with status {status}, {received.total()} alerts received by group {GROUP}:")
    for client, line in list(received)[:5]:
        print(f"  {client:<16} {line[:90].decode()}...")
    return received == expected


def main() -> int:
    """Parse the command line, run, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--store", type=Path, help="store folder (default: a new one, removed afterwards)")
    parser.add_argument("--namesrv", help="use a running broker by its name server; --store is its folder then")
    parser.add_argument("--limit", type=int, help="only the first lines")
    parser.add_argument("--status", default="5xx", choices=("2xx", "3xx", "4xx", "5xx"), help="default: %(default)s")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        with store_and_broker(options.store, options.namesrv) as (store, namesrv):
            same = run(store, namesrv, read_lines(DATA, options.limit), options.status)
    except (RingmqError, ServeError) as error:
        print(f"alerts failed: {error}", file=sys.stderr)
        return 1
    print("exactly the alerts of the file" if same else "the alerts DIFFER from the file's")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
