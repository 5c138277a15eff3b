"""/metrics beside that of a stock broker: the same clients do the same; names, labels and counts are compared."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringmq.loadtest.stock import free_port
from tests.broker.exporter_kit import families, samples
from tests.conformance import servers
from tests.waiting import wait_until

GROUP, TOPIC, MESSAGES = "counted", "Counted", 7
NOT_OURS = (
    "rocketmq_timer_", "rocketmq_timing_", "rocketmq_pop_", "rocketmq_rpc_latency", "rocketmq_topic_create_",
    "rocketmq_consumer_group_create_", "rocketmq_half_messages", "rocketmq_commit_messages", "rocketmq_rollback_",
    "rocketmq_finish_message", "rocketmq_delay_message", "rocketmq_send_to_dlq", "rocketmq_rocksdb",
)  # fmt: skip
"""docs/monitoring.md says why."""
COUNTED = (
    "rocketmq_messages_in_total", "rocketmq_messages_out_total", "rocketmq_throughput_in_total",
    "rocketmq_throughput_out_total", "rocketmq_consumer_lag_messages", "rocketmq_consumer_ready_messages",
    "rocketmq_consumer_inflight_messages", "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_message_size_sum", "rocketmq_message_size_count",
)  # fmt: skip
CLIENT = """
import asyncio, sys
from ringmq.client import Message, Producer

async def main(namesrv, topic, group, count):
    async with Producer(namesrv, "makers") as producer:
        for number in range(count):
            await producer.send(Message(topic, b"x" * 100))
        print("sent", flush=True)
        await asyncio.sleep(600)  # span: the page is looked at meanwhile

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


@contextmanager
def page(kind: str, home: Path) -> Iterator[str]:
    """The page of one kind of broker while a producer and a consumer are connected."""
    port = free_port()
    settings = {**servers.SMALL_FILES, "metricsExporterType": "PROM", "metricsPromExporterPort": port}
    settings |= {"metricsPromExporterHost": "127.0.0.1", "metricsLabel": "zone:a"}
    server = servers.start(kind, home, settings)
    ringmq = [sys.executable, "-m", "ringmq.cli.main"]
    names = [server.namesrv, TOPIC, GROUP, str(MESSAGES)]
    running = [subprocess.Popen([sys.executable, "-c", CLIENT, *names], stdout=subprocess.DEVNULL)]
    consume = [*ringmq, "consume", "--namesrv", server.namesrv, TOPIC, "--group", GROUP]

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    try:
        wait_until(lambda: total(read(), "rocketmq_messages_in_total") == MESSAGES, "all were sent")
        running.append(subprocess.Popen(consume, stdout=subprocess.DEVNULL))
        wait_until(lambda: total(read(), "rocketmq_messages_out_total") == MESSAGES, "all were pulled")
        wait_until(lambda: total(read(), "rocketmq_consumer_inflight_messages") == 0, "all were committed")
        wait_until(lambda: "rocketmq_consumer_connections{" in read(), "the consumer shows")
        wait_until(lambda: "rocketmq_producer_connections{" in read(), "the producer shows")
        yield read()
    finally:
        for process in running:
            process.kill()
            process.wait()
        server.close()


def total(text: str, name: str) -> float:
    """The sum over the topic's series; -1 when there are none."""
    found = [one.value for one in samples(text) if one.name == name and one.labels.get("topic") == TOPIC]
    return sum(found) if found else -1


def test_names_labels_and_counts_are_those_of_stock(tmp_path: Path) -> None:
    seen: dict[str, dict[str, set[frozenset[str]]]] = {}
    counts: dict[str, dict[str, float]] = {}
    for kind in ("ringmq", "stock"):
        with page(kind, tmp_path / kind) as text:
            shown = {name: shapes for name, shapes in families(text).items() if name.startswith("rocketmq_")}
            seen[kind] = {name: shapes for name, shapes in shown.items() if not name.startswith(NOT_OURS)}
            counts[kind] = {name: total(text, name) for name in COUNTED}
    assert seen["ringmq"] == seen["stock"]
    assert counts["ringmq"] == counts["stock"]
    assert counts["ringmq"]["rocketmq_messages_in_total"] == MESSAGES
