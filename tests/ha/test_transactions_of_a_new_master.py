"""A slave that is made master ends the transactions of the old one: each commit once, each rollback never."""

from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from tests.broker.transaction_kit import COMMIT, HALF, ROLLBACK, Transaction, bodies, listed, queue_of
from tests.ha.test_pair import MASTER, NAMED, running_slave
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
COUNT = 40
TRANSACTIONS = {"transactionTimeOut": 3_600_000, "transactionCheckInterval": 200, "transactionCheckMax": 60_000}
OLD_MS = 7_200_000
"""The age of a half message whose producer is asked at once."""


def decision(number: int) -> int:
    return ROLLBACK if number % 3 == 0 else COMMIT


def test_open_halves_end_on_the_new_master(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "master", {**MASTER, **NAMED, **TRANSACTIONS}) as master:
        make_topic(master.address, "T", 1)
        with running_slave(tmp_path, master), RawClient(master.address) as client:
            wait_until(lambda: client.send("Other", b"first").code == 0, "the slave is in sync")
            halves = [Transaction(client, b"%02d" % number) for number in range(COUNT)]
            copied = Transaction(client, b"copied", age_ms=OLD_MS)
            wait_until(lambda: queue_of(master, HALF)[-1].body == b"copied", "a round of checks has copied it")
            for number, half in enumerate(halves[: COUNT // 2]):
                assert half.end(client, decision(number)).code == 0
            topics = tmp_path / "slave" / "config" / "topics.json"
            wait_until(lambda: '"T"' in topics.read_text(), "the slave has the master's topics")
            master.kill_all()
        settings = {**MASTER, "brokerRole": "ASYNC_MASTER", **TRANSACTIONS}
        with RunningBroker(tmp_path / "slave", settings) as promoted, RawClient(promoted.address) as client:
            for number, half in enumerate(halves):
                assert half.end(client, decision(number)).code == 0
            assert copied.end(client, COMMIT).code == 0, "by its first copy"
            wanted = [b"%02d" % number for number in range(COUNT) if decision(number) == COMMIT] + [b"copied"]
            wait_until(lambda: len(bodies(promoted)) >= len(wanted), "the commits are in their queue")
            assert bodies(promoted) == wanted
            assert listed(promoted) == list(range(len(queue_of(promoted, HALF)))), "no half is open"
            assert promoted.stop() == 0
