"""Transactions of a running broker: once over deaths of any process, over losses of the plane, and with a full ring."""

import os
import signal
import time
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt, decode_messages
from tests.conformance.wire import send_fields, shortened
from tests.raw_client import SEND_V2, RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
SETTINGS = {
    "mappedFileSizeCommitLog": 4 << 20,
    "transactionTimeOut": 60_000,
    "transactionCheckInterval": 500,
    "transactionCheckMax": 2,
}
HALF, OP, EXPIRED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK = 8, 12


class Transaction:
    """A half message and the ends of its transaction."""

    def __init__(self, client: RawClient, body: bytes, topic: str = "T", age_ms: int = 0, **pairs: str) -> None:
        fields = send_fields(topic, 0, {"TRAN_MSG": "true", "PGROUP": "P", **pairs})
        now_ms = time.time_ns() // 1_000_000
        sent = client.ask(SEND_V2, shortened({**fields, "bornTimestamp": now_ms - age_ms}), body)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        self.key = sent.ext_fields["msgId"]
        self.offset, self.position = int(sent.ext_fields["queueOffset"]), int(self.key[16:], 16)

    def fields(self, decision: int, **more: object) -> dict[str, object]:
        return {
            "producerGroup": "P", "tranStateTableOffset": self.offset, "commitLogOffset": self.position,
            "commitOrRollback": decision, "msgId": self.key, **more,
        }  # fmt: skip

    def end(self, client: RawClient, decision: int, **more: object) -> RemotingCommand:
        return client.ask(37, self.fields(decision, **more))


def bodies(broker: RunningBroker, topic: str = "T") -> list[bytes]:
    return sorted(message.body for message in messages_of(broker.address, topic, 1))


def queue_of(broker: RunningBroker, topic: str) -> list[MessageExt]:
    found: list[MessageExt] = []
    with RawClient(broker.address) as client:
        while (answer := client.pull(topic, offset=len(found))).code == ResponseCode.SUCCESS:
            found += decode_messages(answer.body)
    return found


def listed(broker: RunningBroker) -> list[int]:
    pieces = b"".join(message.body for message in queue_of(broker, OP)).split(b",")
    return sorted(int(piece) for piece in pieces if piece)


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
        assert listed(broker) == [first.offset, second.offset, old.offset]
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
    assert listed(broker) == list(range(90))
    assert broker.stop() == 0


def test_an_unanswered_half_expires(tmp_path: Path) -> None:
    settings = {**SETTINGS, "transactionTimeOut": 0}
    with RunningBroker(tmp_path / "store", settings) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        half = Transaction(client, b"never")
        wait_until(lambda: len(bodies(broker, EXPIRED)) == 1, "it has had all checks")
        copies = [message for message in queue_of(broker, HALF) if message.body == b"never"]
        times = [message.properties.get("TRANSACTION_CHECK_TIMES") for message in copies]
        assert times == [None, "1", "2"], "each check is a copy"
        assert half.end(client, COMMIT).code == ResponseCode.SYSTEM_ERROR, "it has expired"
        assert bodies(broker) == []
        wait_until(lambda: listed(broker) == [message.queue_offset for message in copies], "no copy is open")
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
