"""The metrics of delay levels: what waits, how much is overdue, what was delivered and skipped."""

import re
import signal
import urllib.request
from pathlib import Path

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.test_delay_faults import HOUR_S, Clock
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until


class Scrape:
    """One read of /metrics."""

    def __init__(self, broker: RunningBroker) -> None:
        with urllib.request.urlopen(broker.metrics_url + "/metrics", timeout=30) as answer:
            self._text = answer.read().decode()

    def value(self, name: str, **labels: str) -> float | None:
        for found, text, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", self._text, re.MULTILINE):
            if found == name and all(f'{label}="{wanted}"' in text for label, wanted in labels.items()):
                return float(value)
        return None


def test_waiting_overdue_delivered_and_skipped(tmp_path: Path) -> None:
    clock, settings = Clock(tmp_path), {"messageDelayLevel": "30m 2h"}
    with (
        RunningBroker(tmp_path / "store", settings, environment=clock.environment) as broker,
        RawClient(broker.address) as client,
    ):
        assert Scrape(broker).value("ringmq_delayed_messages", level="1") == 0, "no worker, so nothing waits"
        for topic in ("T", "Gone"):
            make_topic(broker.address, topic, 1)
        for topic, level, count in (("T", 1, 2), ("Gone", 1, 1), ("T", 2, 3)):
            for _ in range(count):
                assert client.send(topic, b"x", pairs={"DELAY": str(level)}).code == ResponseCode.SUCCESS
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == ResponseCode.SUCCESS
        clock.set(HOUR_S)
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) == 2, "level 1 is delivered")
        wait_until(lambda: Scrape(broker).value("ringmq_delayed_messages", level="1") == 0, "its progress is known")
        scrape = Scrape(broker)
        assert scrape.value("ringmq_delayed_messages", level="2") == 3
        assert scrape.value("ringmq_delay_overdue_seconds", level="2") == 0
        assert scrape.value("ringmq_delay_delivered_total") == 2
        assert scrape.value("ringmq_delay_skipped_total") == 1
        pid = broker.signal_worker("delay", signal.SIGSTOP)
        assert client.send("T", b"late", pairs={"DELAY": "1"}).code == ResponseCode.SUCCESS
        wait_dispatched(broker.store)
        clock.set(HOUR_S + HOUR_S * 3 // 4)
        wait_until(lambda: (Scrape(broker).value("ringmq_delay_overdue_seconds", level="1") or 0) > 0, "it is overdue")
        assert pid is not None and broker.signal_worker("delay", signal.SIGCONT) == pid
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) == 3, "it is delivered")
        assert broker.stop() == 0
