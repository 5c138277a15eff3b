"""The worker `transactions` dies at each crash point of its port: a commit is delivered once, a rollback never.

Each point is passed by chains of ends, and by chains of checks.
"""

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from tests.broker.transaction_kit import COMMIT, HALF, ROLLBACK, Transaction, listed, queue_of
from tests.drill.settings import SMALL_STORE
from tests.drill.test_crash_points import NAME_BYTES, request_points
from tests.native.test_crash_points import crash_build
from tests.raw_client import RawClient
from tests.staging import bodies_of, make_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
POINTS = [name for name in request_points() if name != "port-acknowledged"]
"""Only ordered ports, those of republishers, are acknowledged."""
AT_START = "port-claimed"
UNENDED = 10
SETTINGS = {
    **SMALL_STORE,
    "flushDiskType": "SYNC_FLUSH",
    "transactionTimeOut": 0,
    "transactionCheckInterval": 100,
    "transactionCheckMax": 60_000,
}


def end(client: RawClient, transaction: Transaction, decision: int) -> None:
    """Send the end until it is answered 0."""
    fields = transaction.fields(decision)
    wait_until(lambda: client.ask(RequestCode.END_TRANSACTION, fields).code == 0, "the end is stored")


def decisions() -> Iterator[int]:
    return itertools.cycle((COMMIT, COMMIT, ROLLBACK))


def test_transactions_survive_their_worker(tmp_path: Path) -> None:
    """No other worker with a port runs: nothing is delayed, and nothing is sent back."""
    file = tmp_path / "crash-point"
    file.write_bytes(bytes(NAME_BYTES))
    environment = {"RINGMQ_NATIVE": str(crash_build()), "RINGMQ_CRASH_FILE": str(file)}
    with (
        RunningBroker(tmp_path / "store", SETTINGS, environment=environment) as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        unended = [Transaction(client, b"unended %d" % number) for number in range(UNENDED)]
        ended: list[tuple[Transaction, int, bytes]] = []
        decided = decisions()

        def end_one() -> None:
            body = b"%d" % len(ended)
            transaction, decision = Transaction(client, body), next(decided)
            end(client, transaction, decision)
            ended.append((transaction, decision, body))

        end_one()

        def arm(point: str) -> None:
            with file.open("r+b", buffering=0) as armed:
                armed.seek(1)
                armed.write(point[1:].encode().ljust(NAME_BYTES - 1, b"\0"))
                armed.seek(0)
                armed.write(point[:1].encode())

        def was_hit() -> bool:
            return file.read_bytes()[:1] == b"\0"

        for point in POINTS:
            arm(point)
            if point == AT_START:
                broker.signal_worker("transactions", signal.SIGKILL)
            end_one()
            wait_until(was_hit, f"{point} is passed by the chain of an end")
            if point != AT_START:
                arm(point)
                wait_until(was_hit, f"{point} is passed by the chain of a round of checks")
        end_one()
        assert any(message.body == b"unended 0" for message in queue_of(broker, HALF)[1:]), "checks have copied them"
        for transaction in unended:
            end(client, transaction, ROLLBACK)
        for transaction, decision, _ in ended:
            end(client, transaction, decision)
        wanted = sorted(body for _, decision, body in ended if decision == COMMIT)
        wait_until(lambda: len(bodies_of(broker.address, "T", 1)) >= len(wanted), "all commits are in their queue")
        assert sorted(bodies_of(broker.address, "T", 1)) == wanted
        count = len(queue_of(broker, HALF))
        wait_until(lambda: listed(broker) == list(range(count)), "each half is listed once, so none is open")
        assert broker.stop() == 0
