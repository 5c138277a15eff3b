"""A full disk while transactions end: each end is refused and its half stays open, later ends and checks go on."""

from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from tests.broker.transaction_kit import COMMIT, HALF, ROLLBACK, Transaction, bodies, listed, queue_of
from tests.drill.settings import SMALL_STORE
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_dispatched, wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made"),
]
HOUR_MS = 3_600_000
SETTINGS = {
    **SMALL_STORE,
    "messageIndexEnable": False,
    "cleanResourceInterval": 86_400_000,
    "transactionTimeOut": HOUR_MS,
    "transactionCheckInterval": 200,
    "transactionCheckMax": 60_000,
}
LARGE, COUNT = 60_000, 60


def copies(broker: RunningBroker) -> int:
    """Copies of the half that no producer ends. Each round of checks makes one."""
    return sum(message.body == b"unended" for message in queue_of(broker, HALF))


def test_ends_and_checks_go_on_when_there_is_room(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, 48) as disk,
        RunningBroker(disk / "store", SETTINGS, log_path=tmp_path / "log") as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        transactions = [Transaction(client, (b"%d" % number).ljust(LARGE, b".")) for number in range(COUNT)]
        unended = Transaction(client, b"unended", age_ms=2 * HOUR_MS)
        assert transactions[0].end(client, COMMIT).code == ResponseCode.SUCCESS, "it makes the queue's file"
        wait_until(lambda: copies(broker) > 1, "the producer is asked")
        wait_dispatched(broker.store)
        ballast = fill(disk)
        stored, refused = 1, 0
        for transaction in transactions[1:]:
            answer = transaction.end(client, COMMIT)
            stored += answer.code == ResponseCode.SUCCESS
            refused += answer.code != ResponseCode.SUCCESS
        assert refused and stored < COUNT
        pid = broker.worker_pids()["transactions"]
        ballast.unlink()
        for transaction in transactions:
            wait_until(lambda half=transaction: half.end(client, COMMIT).code == 0, "there is room")  # type: ignore[misc]
        before = copies(broker)
        wait_until(lambda: copies(broker) > before, "checks go on")
        assert unended.end(client, ROLLBACK).code == ResponseCode.SUCCESS
        wait_until(lambda: len(bodies(broker)) >= COUNT, "all are committed")
        assert bodies(broker) == sorted((b"%d" % number).ljust(LARGE, b".") for number in range(COUNT))
        count = len(queue_of(broker, HALF))
        wait_until(lambda: listed(broker) == list(range(count)), "each half is listed once, so none is open")
        assert broker.worker_pids()["transactions"] == pid, "it did not die of it"
        assert broker.stop() == 0
