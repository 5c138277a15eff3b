"""The metrics of transactions: what is open, how it ended, and checks."""

import re
import urllib.request
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from tests.broker.transaction_kit import COMMIT, ROLLBACK, Transaction
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
NAMES = (
    "rocketmq_half_messages", "rocketmq_commit_messages_total", "rocketmq_rollback_messages_total",
    "ringmq_transactions_expired_total", "ringmq_transactions_lost_total",
    "rocketmq_finish_message_latency_milliseconds_count",
)  # fmt: skip


def scrape(broker: RunningBroker) -> dict[str, int]:
    """Name, with the result of checks behind it -> value."""
    with urllib.request.urlopen(broker.metrics_url + "/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = {
        name: int(value) for name, value in re.findall(r"^(\w+)\{.*\} (\d+)$", text, re.MULTILINE) if name in NAMES
    }
    checks = re.findall(r'^ringmq_transaction_checks_total\{.*result="(\w+)".*\} (\d+)$', text, re.MULTILINE)
    return found | {result: int(value) for result, value in checks}


def test_open_committed_rolled_back_checked_and_expired(tmp_path: Path) -> None:
    settings = {"transactionTimeOut": 3_600_000, "transactionCheckInterval": 200, "transactionCheckMax": 2}
    with RunningBroker(tmp_path / "store", settings) as broker, RawClient(broker.address) as client:
        none = scrape(broker)
        assert none == dict.fromkeys((*NAMES, "sent", "no_producer"), 0), "no worker, so nothing is open"
        make_topic(broker.address, "T", 1)
        halves = [Transaction(client, b"%d" % number) for number in range(6)]
        for number, half in enumerate(halves[:3]):
            assert half.end(client, ROLLBACK if number else COMMIT).code == ResponseCode.SUCCESS
        wait_until(lambda: scrape(broker)["rocketmq_half_messages"] == 3, "three are open")
        ended = scrape(broker)
        assert (ended["rocketmq_commit_messages_total"], ended["rocketmq_rollback_messages_total"]) == (1, 2)
        assert ended["rocketmq_finish_message_latency_milliseconds_count"] == 1, "commits alone"
        Transaction(client, b"old", age_ms=7_200_000)  # due for checks at once, and nobody of its group is connected
        wait_until(lambda: scrape(broker)["ringmq_transactions_expired_total"] == 1, "it is given up")
        last = scrape(broker)
        assert last["no_producer"] >= 2 and last["sent"] == 0
        assert (last["rocketmq_half_messages"], last["ringmq_transactions_lost_total"]) == (3, 0)
        assert broker.stop() == 0
