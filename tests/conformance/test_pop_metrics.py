"""/metrics of a group that pops, beside that of a stock broker: names, labels, and the numbers that both must have."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringmq.loadtest.stock import free_port
from tests.broker.exporter_kit import families, samples
from tests.conformance import servers
from tests.pop.pop_client import PopClient, Taken
from tests.waiting import wait_until

GROUP, TOPIC, MESSAGES = "poppers", "Popped", 10
NOT_OURS = (
    "rocketmq_pop_buffer_scan_time_consume", "rocketmq_pop_revive_in_message_total",
    "rocketmq_pop_revive_out_message_total", "rocketmq_pop_offset_buffer_size",
)  # fmt: skip
"""docs/monitoring.md says why."""
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


class Seen:
    """A server, a consumer, and the page."""

    def __init__(self, server: servers.Server, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self.consumer = PopClient(server.broker, GROUP, TOPIC, servers.BROKER_NAME)
        for number in range(MESSAGES):
            self._send(number)

    def _send(self, number: int) -> None:
        answer = self.consumer.raw.send(TOPIC, b"%d" % number)
        assert answer.code == 0, answer.remark

    def text(self) -> str:
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            found: str = answer.read().decode()
        return found

    def numbers(self) -> dict[str, dict[str, float]]:
        """Those of NUMBERS. Other series of a name have no is_retry."""
        found = [one for one in samples(self.text()) if one.name in NUMBERS and one.labels["topic"] == TOPIC]
        return {
            name: {one.labels["is_retry"]: one.value for one in found if one.name == name and "is_retry" in one.labels}
            for name in NUMBERS
        }

    def again(self) -> float:
        """Messages that came again."""
        name = "rocketmq_pop_revive_retry_messages_total"
        labels = {"consumer_group": GROUP, "topic": TOPIC, "put_status": "PUT_OK"}
        return sum(
            one.value for one in samples(self.text()) if one.name == name and labels.items() <= one.labels.items()
        )

    def play(self) -> None:
        """Five messages are popped and two of them acknowledged; one comes again; then all are popped."""
        kept = self.consumer.pop(5)
        assert len(kept) == 5
        for one in kept[:2]:
            assert self.consumer.ack(one).code == 0
        assert len(self.consumer.pop(1, invisible_ms=1000)) == 1
        wait_until(lambda: self.again() == 1, "a message came again")
        self._send(MESSAGES)
        taken: list[Taken] = []

        def has_all() -> bool:
            taken.extend(self.consumer.pop())
            return len(taken) == MESSAGES + 2 - 6

        wait_until(has_all, "the others were popped, and the one that came again")
        wait_until(lambda: self.numbers() == NUMBERS, "all is counted", state=lambda: str(self.numbers()))


@contextmanager
def seen(kind: str, home: Path) -> Iterator[Seen]:
    """A server of one kind."""
    port = free_port()
    settings = {**servers.SMALL_FILES, "metricsExporterType": "PROM", "metricsPromExporterPort": port}
    server = servers.start(kind, home, {**settings, "metricsPromExporterHost": "127.0.0.1"})
    try:
        yield Seen(server, port)
    finally:
        server.close()


def shapes(text: str) -> dict[str, set[frozenset[str]]]:
    """Of each family of POP, and of groups for this group, the sets of labels."""
    lines = [line for line in text.splitlines() if not line.startswith(OF_GROUPS) or f'"{GROUP}"' in line]
    return {
        name: found
        for name, found in families("\n".join(lines)).items()
        if name.startswith(("rocketmq_pop_", *OF_GROUPS)) and name.removesuffix("_milliseconds") not in NOT_OURS
    }


def test_a_group_that_pops_has_the_series_of_stock(tmp_path: Path) -> None:
    found = {}
    for kind in ("ringmq", "stock"):
        with seen(kind, tmp_path / kind) as one:
            one.consumer.join("popper")
            one.play()
            found[kind] = shapes(one.text())
    assert found["ringmq"] == found["stock"]
    assert "rocketmq_pop_checkpoint_buffer_size" in found["ringmq"]
