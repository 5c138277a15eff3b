"""/metrics beside that of a stock broker: the same clients do the same; names, labels and numbers are compared."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ringmq.loadtest.load.pops import serves_pop
from ringmq.loadtest.stock import free_port
from tests.broker.exporter_kit import families, samples
from tests.conformance import servers
from tests.pop.pop_client import PopClient, Taken
from tests.waiting import wait_until

KINDS = {"ringmq": "ringmq", "stock": "stock-broker"}
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
POPPERS, POPPED, OF_POP = "poppers", "Popped", 10
NOT_OURS_OF_POP = (
    "rocketmq_pop_buffer_scan_time_consume", "rocketmq_pop_revive_in_message_total",
    "rocketmq_pop_revive_out_message_total", "rocketmq_pop_offset_buffer_size",
)  # fmt: skip
OF_GROUPS = (
    "rocketmq_consumer_lag_", "rocketmq_consumer_inflight_", "rocketmq_consumer_ready_", "rocketmq_consumer_queueing_",
    "rocketmq_messages_out_total", "rocketmq_throughput_out_total",
)  # fmt: skip
NUMBERS = {
    "rocketmq_consumer_lag_messages": {"false": 8, "true": 1},
    "rocketmq_consumer_inflight_messages": {"false": 8, "true": 1},
    "rocketmq_consumer_ready_messages": {"false": 0, "true": 0},
    "rocketmq_messages_out_total": {"false": 11, "true": 1},
}
"""By is_retry. Two of eleven messages are acknowledged, and one of the others is open in the topic of retries."""
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


class Scraped:
    """A server with its page."""

    def __init__(self, kind: str, home: Path) -> None:
        port = free_port()
        settings = {**servers.SMALL_FILES, "metricsExporterType": "PROM", "metricsPromExporterPort": port}
        settings |= {"metricsPromExporterHost": "127.0.0.1", "metricsLabel": "zone:a"}
        self.server = servers.start(kind, home, settings)
        self._url = f"http://127.0.0.1:{port}/metrics"

    def text(self) -> str:
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            found: str = answer.read().decode()
        return found

    def wait_for(self, condition: Callable[[str], bool], what: str) -> None:
        """Until the page is as `condition` says. Pages cost a broker much, so they are asked for seldom."""

        def is_shown() -> bool:
            time.sleep(0.1)  # span: a page costs a broker milliseconds
            return condition(self.text())

        wait_until(is_shown, what, state=lambda: self.text())


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Scraped]]:
    """A server of each kind."""
    running: dict[str, Scraped] = {}
    with ExitStack() as stack:
        for name, kind in KINDS.items():
            running[name] = Scraped(kind, tmp_path_factory.mktemp(name))
            stack.callback(running[name].server.close)
        yield running


@contextmanager
def clients(of: Scraped) -> Iterator[None]:
    """A producer and a consumer stay connected once the consumer has committed all that the producer has sent."""
    server = of.server
    consume = [sys.executable, "-m", "ringmq.cli.main", "consume", "--namesrv", server.namesrv, TOPIC, "--group", GROUP]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in ([sys.executable, "-c", CLIENT, server.namesrv, TOPIC, GROUP, str(MESSAGES)], consume):
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            out = running[-1].stdout
            assert out is not None and out.readline(), "the producer says that all is sent, the consumer has a message"
        of.wait_for(lambda text: total(text, "rocketmq_messages_in_total") == MESSAGES, "all were sent")
        of.wait_for(lambda text: total(text, "rocketmq_messages_out_total") == MESSAGES, "all were pulled")
        of.wait_for(lambda text: total(text, "rocketmq_consumer_inflight_messages") == 0, "all were committed")
        of.wait_for(lambda text: "rocketmq_consumer_connections{" in text, "the consumer shows")
        of.wait_for(lambda text: "rocketmq_producer_connections{" in text, "the producer shows")
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


def total(text: str, name: str) -> float:
    """The sum over the topic's series; -1 when there are none."""
    found = [one.value for one in samples(text) if one.name == name and one.labels.get("topic") == TOPIC]
    return sum(found) if found else -1


def test_names_labels_and_counts_are_those_of_stock(scraped: dict[str, Scraped]) -> None:
    seen: dict[str, dict[str, set[frozenset[str]]]] = {}
    counts: dict[str, dict[str, float]] = {}
    for kind, of in scraped.items():
        with clients(of):
            text = of.text()
        shown = {name: shapes for name, shapes in families(text).items() if name.startswith("rocketmq_")}
        seen[kind] = {name: shapes for name, shapes in shown.items() if not name.startswith(NOT_OURS)}
        counts[kind] = {name: total(text, name) for name in COUNTED}
    assert seen["ringmq"] == seen["stock"]
    assert counts["ringmq"] == counts["stock"]
    assert counts["ringmq"]["rocketmq_messages_in_total"] == MESSAGES


def numbers(text: str) -> dict[str, dict[str, float]]:
    """Those of NUMBERS. Other series of a name have no is_retry."""
    found = [one for one in samples(text) if one.name in NUMBERS and one.labels["topic"] == POPPED]
    return {
        name: {one.labels["is_retry"]: one.value for one in found if one.name == name and "is_retry" in one.labels}
        for name in NUMBERS
    }


def again(text: str) -> float:
    """Messages that came again."""
    name = "rocketmq_pop_revive_retry_messages_total"
    labels = {"consumer_group": POPPERS, "topic": POPPED, "put_status": "PUT_OK"}
    return sum(one.value for one in samples(text) if one.name == name and labels.items() <= one.labels.items())


class Popping:
    """A group that pops, and its series."""

    def __init__(self, of: Scraped) -> None:
        self._of = of
        self.consumer = PopClient(of.server.broker, POPPERS, POPPED, servers.BROKER_NAME)
        for number in range(OF_POP):
            self._send(number)

    def _send(self, number: int) -> None:
        answer = self.consumer.raw.send(POPPED, b"%d" % number)
        assert answer.code == 0, answer.remark

    def play(self) -> None:
        """Five messages are popped and two of them acknowledged; one comes again; then all are popped."""
        self.consumer.join("popper")
        kept = self.consumer.pop(5)
        assert len(kept) == 5
        for one in kept[:2]:
            assert self.consumer.ack(one).code == 0
        assert len(self.consumer.pop(1, invisible_ms=1000)) == 1
        self._of.wait_for(lambda text: again(text) == 1, "a message came again")
        self._send(OF_POP)
        taken: list[Taken] = []

        def has_all() -> bool:
            taken.extend(self.consumer.pop())
            return len(taken) == OF_POP + 2 - 6

        wait_until(has_all, "the others were popped, and the one that came again")
        self._of.wait_for(lambda text: numbers(text) == NUMBERS, "all is counted")


def shapes_of_pop(text: str) -> dict[str, set[frozenset[str]]]:
    """Of each family of POP, and of groups for this group, the sets of labels."""
    lines = [line for line in text.splitlines() if not line.startswith(OF_GROUPS) or f'"{POPPERS}"' in line]
    return {
        name: found
        for name, found in families("\n".join(lines)).items()
        if name.startswith(("rocketmq_pop_", *OF_GROUPS)) and name.removesuffix("_milliseconds") not in NOT_OURS_OF_POP
    }


@pytest.mark.skipif(not serves_pop(), reason="brokers of this tree do not serve POP")
def test_a_group_that_pops_has_the_series_of_stock(scraped: dict[str, Scraped]) -> None:
    found = {}
    for kind, of in scraped.items():
        Popping(of).play()
        found[kind] = shapes_of_pop(of.text())
    assert found["ringmq"] == found["stock"]
    assert "rocketmq_pop_checkpoint_buffer_size" in found["ringmq"]
