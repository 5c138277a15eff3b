"""Chains that a power cut, a kill of all processes or a lost master has cut: twice is allowed, lost is not.

Write stores tied requests as a whole, whichever process dies. The log alone may end between two records of a chain, or
within one. Each chain that a service stores is cut here at each of these places, and a broker starts on what is left.
A copy of a store is in another folder, so its start trusts no more of it than after a power cut.
"""

import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker, remove_shared_memory
from ringmq.remoting.names import COMMITS_TOPIC
from ringmq.store.record import Record, parse_record
from tests.broker.transaction_kit import COMMIT, EXPIRED, HALF, OP, ROLLBACK, Transaction, bodies, listed, queue_of
from tests.drill.settings import SMALL_STORE
from tests.raw_client import RawClient
from tests.staging import Stager, make_topic
from tests.suite.samples import Sampled
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
NO_CHECKS = {**SMALL_STORE, "flushDiskType": "SYNC_FLUSH", "transactionCheckInterval": 86_400_000}
CHECKS = {**NO_CHECKS, "transactionCheckInterval": 100, "transactionTimeOut": 0}
END_TRANSACTION = 37
COMMITTED, ROLLED_BACK = (b"first", b"second"), b"rolled back"
CHUNKS = [("T", 0, [b"one", b"two"]), ("T", 0, [b"three"])]


def log_of(store: Path) -> list[Record]:
    """The records of the first log file."""
    data, found, at = (store / "commitlog" / f"{0:020d}").read_bytes(), list[Record](), 0
    while (record := parse_record(memoryview(data)[at:], at)[1]) is not None:
        found.append(record)
        at += record.size
    return found


def end_of(record: Record) -> int:
    """The log offset behind a record."""
    return record.physical_offset + record.size


def places(chain: Sequence[Record]) -> Iterator[int]:
    """The borders of the records of a chain, and places within its first and its last record."""
    yield from (record.physical_offset for record in chain)
    yield from (record.physical_offset + record.size // 2 for record in (chain[0], chain[-1]))
    yield end_of(chain[-1])


def cut_copy(store: Path, place: int) -> Path:
    """A copy of a store whose log ends at `place`, as a power cut leaves it. The queues may name more."""
    left = store.with_name(f"left-{place}")
    shutil.copytree(store, left)
    log = left / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:place].ljust(SMALL_STORE["mappedFileSizeCommitLog"], b"\0"))
    return left


def kill(broker: RunningBroker) -> None:
    """End all processes, and what they share."""
    broker.kill_all()
    remove_shared_memory(broker.store)


def test_transactions_and_staged_writes(tmp_path: Path, sampled: Sampled) -> None:
    """A chain of two commits, a rollback and their op record. The chunks of a staged commit are batches behind its
    decision."""
    store = tmp_path / "store"
    with RunningBroker(store, NO_CHECKS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        assert Transaction(client, b"before").end(client, COMMIT).code == 0
        commits, rollback = [Transaction(client, body) for body in COMMITTED], Transaction(client, ROLLED_BACK)
        with Stager(broker) as stager:
            chunks = stager.stage("query", 0, CHUNKS)
            begin = len(log_of(store))
            broker.signal_worker("transactions", signal.SIGSTOP)
            for transaction in commits:
                client.send_request(END_TRANSACTION, transaction.fields(COMMIT))
            client.send_request(END_TRANSACTION, rollback.fields(ROLLBACK))
            client.send_request(11, {})  # its answer shows that the read worker has handed on the ends
            assert client.receive() is not None
            broker.signal_worker("transactions", signal.SIGCONT)
            for _ in range(3):
                answer = client.receive()
                assert answer is not None and answer.code == 0
            stager.commit("query", 0, chunks)
        wait_until(lambda: log_of(store)[-1].topic == COMMITS_TOPIC, "the done record is stored")
        kill(broker)
    records = log_of(store)[begin:]
    chain, staged = records[:3], records[3:]
    assert [record.topic for record in chain] == ["T", "T", OP]
    assert [record.topic for record in staged] == [COMMITS_TOPIC, "T", "T", "T", COMMITS_TOPIC]
    rows = [row for _, _, of_chunk in CHUNKS for row in of_chunk]
    for place in sorted({*sampled([*places(chain)], 3), *sampled([*places(staged)], 5)}):
        with RunningBroker(cut_copy(store, place), NO_CHECKS) as broker, RawClient(broker.address) as client:
            promised = {b"before"}
            promised.update(record.body for record in chain[:2] if end_of(record) <= place)
            promised.update(rows if end_of(staged[0]) <= place else [])
            wait_until(lambda: promised <= set(bodies(broker)), "what was acknowledged is there")  # noqa: B023
            for transaction in commits:
                assert transaction.end(client, COMMIT).code == 0
            assert rollback.end(client, ROLLBACK).code == 0
            with Stager(broker) as stager:
                stager.commit("query", 0, chunks)
            wanted = sorted([b"before", *COMMITTED, *rows])
            wait_until(lambda: len(bodies(broker)) >= len(wanted), "all that was asked for is there")  # noqa: B023
            assert bodies(broker) == wanted, f"log cut at {place}"
            wait_until(lambda: listed(broker) == [0, 1, 2, 3], f"each half is listed once: log cut at {place}")


def test_checks_of_transactions(tmp_path: Path) -> None:
    """A check stores a copy of the half, and an op record that ends the older one."""
    store = tmp_path / "store"
    with RunningBroker(store, CHECKS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        transaction = Transaction(client, b"late")
        wait_until(lambda: listed(broker)[:1] == [0], "a check has copied the half")
        kill(broker)
    chain = log_of(store)[1:3]
    assert [record.topic for record in chain] == [HALF, OP]
    for place in places(chain):
        with RunningBroker(cut_copy(store, place), NO_CHECKS) as broker, RawClient(broker.address) as client:
            for _ in range(2):
                assert transaction.end(client, COMMIT).code == 0
            wait_until(lambda: bodies(broker) == [b"late"], "the message is there once")
            halves = list(range(len(queue_of(broker, HALF))))
            wait_until(lambda: listed(broker) == halves, f"each half is listed once: log cut at {place}")  # noqa: B023


def test_transactions_that_expire(tmp_path: Path) -> None:
    """The half is copied to the topic of expired ones, and the op record ends it. Then no commit publishes it."""
    store = tmp_path / "store"
    with RunningBroker(store, CHECKS | {"transactionCheckMax": 1}) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        transaction = Transaction(client, b"late")
        wait_until(lambda: listed(broker) == [0, 1], "the half was checked once, and its copy has expired")
        kill(broker)
    chain = log_of(store)[3:]
    assert [record.topic for record in chain] == [EXPIRED, OP]
    for place in places(chain):
        with RunningBroker(cut_copy(store, place), NO_CHECKS) as broker, RawClient(broker.address) as client:
            is_expired = end_of(chain[0]) <= place
            assert transaction.end(client, COMMIT).code == (1 if is_expired else 0)
            wait_until(lambda: listed(broker) == [0, 1], f"each half is listed once: log cut at {place}")
            kept = [message.body for message in queue_of(broker, EXPIRED)]
            assert (kept, bodies(broker)) == (([b"late"], []) if is_expired else ([], [b"late"]))
