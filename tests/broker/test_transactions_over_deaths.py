"""Transactions of a running broker: once over deaths of any process, over losses of the plane, and with a full ring."""

import os
import signal
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.transaction_kit import COMMIT, EXPIRED, HALF, ROLLBACK, Transaction, bodies, listed, queue_of
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
SETTINGS = {
    "mappedFileSizeCommitLog": 4 << 20,
    "transactionTimeOut": 60_000,
    "transactionCheckInterval": 500,
    "transactionCheckMax": 2,
}


def test_ends_of_all_kinds(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SETTINGS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        first, second, third = (Transaction(client, body) for body in (b"first", b"second", b"third"))
        for _ in range(2):
            assert first.end(client, COMMIT).code == ResponseCode.SUCCESS
        assert second.end(client, ROLLBACK).code == ResponseCode.SUCCESS
        assert second.end(client, COMMIT).code == ResponseCode.SUCCESS, "it has ended, and nothing is stored"
        for wrong in ({"producerGroup": "Q"}, {"tranStateTableOffset": 0}, {"commitLogOffset": third.position + 1},
                      {"commitLogOffset": 1 << 50}, {"commitLogOffset": -1}):  # fmt: skip
            assert third.end(client, COMMIT, **wrong).code == ResponseCode.SYSTEM_ERROR, wrong
        assert third.end(client, 5).code == ResponseCode.SYSTEM_ERROR
        old = Transaction(client, b"old", age_ms=71_000, CHECK_IMMUNITY_TIME_IN_SECONDS="70")
        assert old.end(client, COMMIT).code == ResponseCode.ILLEGAL_OPERATION
        assert old.end(client, COMMIT, fromTransactionCheck=True).code == ResponseCode.SUCCESS
        wait_until(lambda: len(bodies(broker)) == 2, "two commits are in their queue")
        assert bodies(broker) == [b"first", b"old"]
        [message] = [message for message in messages_of(broker.address, "T", 1) if message.body == b"first"]
        assert (message.sys_flag & 12, message.prepared_transaction_offset) == (8, first.position)
        wait_until(lambda: listed(broker) == [first.offset, second.offset, old.offset], "three have ended")
        assert broker.stop() == 0


@pytest.mark.parametrize("victim", ["transactions", "all", "stop"])
def test_transactions_end_once_over_deaths(tmp_path: Path, victim: str) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        halves = [Transaction(client, b"%03d" % number) for number in range(90)]
        for number, half in enumerate(halves[:60]):
            assert half.end(client, COMMIT if number % 2 else ROLLBACK).code == ResponseCode.SUCCESS
        match victim:
            case "transactions":
                os.kill(broker.worker_pids()["transactions"], signal.SIGKILL)
            case "stop":
                assert broker.stop() == 0
            case _:
                broker.kill_all()
        if victim == "transactions":
            _end_the_rest(broker, halves)
            return
    with RunningBroker(store, SETTINGS) as broker:
        _end_the_rest(broker, halves)


def _end_the_rest(broker: RunningBroker, halves: list[Transaction]) -> None:
    with RawClient(broker.address) as client:
        for number, half in enumerate(halves):
            assert half.end(client, COMMIT if number % 2 else ROLLBACK).code == ResponseCode.SUCCESS
    wanted = [b"%03d" % number for number in range(1, 90, 2)]
    wait_until(lambda: len(bodies(broker)) >= len(wanted), "all commits are in their queue")
    assert bodies(broker) == wanted
    wait_until(lambda: listed(broker) == list(range(90)), "all have ended")
    assert broker.stop() == 0


def test_a_half_expires_by_settings_that_change_live(tmp_path: Path) -> None:
    settings = {**SETTINGS, "transactionCheckMax": 15, "transactionOpBatchInterval": 3000}
    with RunningBroker(tmp_path / "store", settings) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        half = Transaction(client, b"never")
        changed = (
            b"transactionTimeOut=0\ntransactionCheckMax=2\ntransactionOpBatchInterval=100\ntransactionOpMsgMaxSize=20"
        )
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, changed).code == ResponseCode.SUCCESS
        shown = client.ask(RequestCode.GET_BROKER_CONFIG, {}).body.splitlines()
        assert set(changed.splitlines()) <= set(shown)
        wait_until(lambda: len(bodies(broker, EXPIRED)) == 1, "it has had all checks")
        copies = [message for message in queue_of(broker, HALF) if message.body == b"never"]
        times = [message.properties.get("TRANSACTION_CHECK_TIMES") for message in copies]
        assert times == [None, "1", "2"], "each check is a copy"
        assert half.end(client, COMMIT).code == ResponseCode.SYSTEM_ERROR, "it has expired"
        os.kill(broker.worker_pids()["transactions"], signal.SIGKILL)

        def is_known() -> bool:
            answer = half.end(client, COMMIT)
            assert answer.code != ResponseCode.SUCCESS, "the client would take it for committed"
            return "expired" in str(answer.remark)

        wait_until(is_known, "the next worker knows it, too")
        assert bodies(broker) == []
        wait_until(lambda: listed(broker) == [message.queue_offset for message in copies], "no copy is open")
        for value, name in ((b"-1", "transactionOpBatchInterval"), (b"x", "transactionCheckMax")):
            refused = client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, name.encode() + b"=" + value)
            assert refused.code == ResponseCode.SYSTEM_ERROR and name in str(refused.remark)
        assert broker.stop() == 0


def test_an_end_may_name_an_old_copy(tmp_path: Path) -> None:
    settings = {**SETTINGS, "transactionTimeOut": 0, "transactionCheckMax": 1000}
    with RunningBroker(tmp_path / "store", settings) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        half = Transaction(client, b"late")
        wait_until(lambda: len(queue_of(broker, HALF)) > 2, "it was copied")
        assert half.end(client, COMMIT).code == ResponseCode.SUCCESS
        newest = queue_of(broker, HALF)[-1]
        again = half.fields(
            COMMIT, tranStateTableOffset=newest.queue_offset, commitLogOffset=newest.commit_log_offset,
            fromTransactionCheck=True,
        )  # fmt: skip
        assert client.ask(37, again).code == ResponseCode.SUCCESS
        wait_until(lambda: bodies(broker) == [b"late"], "it is delivered")
        count = len(queue_of(broker, HALF))
        wait_until(lambda: listed(broker) == list(range(count)), "no copy is open")
        assert bodies(broker) == [b"late"]
        assert broker.stop() == 0
