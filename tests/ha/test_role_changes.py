"""A master is demoted and promoted again while clients send and receive: nothing is lost, doubled or out of order."""

from __future__ import annotations

import random
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import decode_messages
from ringmq.remoting.role_bodies import DEMOTE, PROMOTE
from tests.ha.role_pair import order, settle
from tests.raw_client import PULL, RawClient, pull_fields
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

STORE = {
    "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 60_000, "maxHashSlotNum": 1000,
    "maxIndexNum": 4000, "haAllowedNetworks": "127.0.0.0/8", "slaveReadEnable": True,
}  # fmt: skip
TOPIC, SENDERS, ROUNDS = "Changes", 4, 6


class Sender(threading.Thread):
    """Sends numbers to its own queue on one connection. A refused number is sent again, as clients do."""

    def __init__(self, address: str, queue_id: int, ends: threading.Event) -> None:
        super().__init__()
        self._client, self._queue_id, self._ends = RawClient(address), queue_id, ends
        self.sent = 0
        self.refused = 0
        self.codes: set[int] = set()

    def run(self) -> None:
        with self._client:
            while not self._ends.is_set():
                code = self._client.send(TOPIC, b"%d" % self.sent, self._queue_id).code
                self.codes.add(code)
                if code == ResponseCode.SUCCESS:
                    self.sent += 1
                else:
                    self.refused += 1
                    self._ends.wait(0.002)


class Receiver(threading.Thread):
    """Receives a queue on one connection, by pulls that are held."""

    def __init__(self, address: str, queue_id: int, ends: threading.Event) -> None:
        super().__init__()
        self._client, self._queue_id, self._ends = RawClient(address), queue_id, ends
        self.received: list[int] = []

    def run(self) -> None:
        with self._client:
            while not self._ends.is_set():
                self.pull(suspend_ms=500)

    def pull(self, suspend_ms: int) -> bool:
        """Take one answer. True if it has messages."""
        fields = pull_fields(TOPIC, self._queue_id, len(self.received), sysFlag=6, suspendTimeoutMillis=suspend_ms)
        answer = self._client.ask(PULL, fields)
        if answer.code != ResponseCode.SUCCESS:
            return False
        self.received += [int(bytes(message.body)) for message in decode_messages(answer.body)]
        return True


def test_clients_of_a_master_that_is_demoted_and_promoted_again(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "a", {**STORE, "brokerRole": "ASYNC_MASTER"}) as broker:
        make_topic(broker.address, TOPIC, SENDERS)
        ends, over = threading.Event(), threading.Event()
        senders = [Sender(broker.address, number, ends) for number in range(SENDERS)]
        receivers = [Receiver(broker.address, number, over) for number in range(SENDERS)]
        for thread in (*senders, *receivers):
            thread.start()
        try:
            for epoch in range(1, ROUNDS + 1):
                before = [sender.sent for sender in senders]
                wait_until(
                    lambda before=before: all(s.sent > b + 50 for s, b in zip(senders, before, strict=True)),
                    "all senders send",
                )
                done = order(broker, DEMOTE)
                assert (done.tenure, done.failure) == ("slave", "")
                refused = [sender.refused for sender in senders]
                wait_until(
                    lambda refused=refused: all(s.refused > r for s, r in zip(senders, refused, strict=True)),
                    "all senders are refused",
                )
                done = order(broker, PROMOTE, accepts_loss=True)
                assert (done.tenure, done.failure, done.epoch >> 16) == ("master", "", epoch)
        finally:
            ends.set()
            for sender in senders:
                sender.join(60)
        for sender, receiver in zip(senders, receivers, strict=True):
            wait_until(lambda s=sender, r=receiver: len(r.received) >= s.sent, "all is received")
        over.set()
        for receiver in receivers:
            receiver.join(60)
        assert broker.stop() == 0
    for sender, receiver in zip(senders, receivers, strict=True):
        assert sender.codes <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert receiver.received[0] == 0 and all(b == a + 1 for a, b in pairwise(receiver.received))
        assert len(receiver.received) == sender.sent


def test_a_timer_message_comes_though_control_dies_behind_a_promotion(tmp_path: Path) -> None:
    """The slave's timer is stopped meanwhile, so the next control alone can start that of a master."""
    with RunningBroker(tmp_path / "a", {**STORE, "brokerRole": "ASYNC_MASTER"}) as broker:

        def pid_of(worker: str) -> int | None:
            return broker.worker_pids().get(worker)

        make_topic(broker.address, TOPIC, 1)
        due_ms = time.time_ns() // 1_000_000 + 5000
        with RawClient(broker.address) as client:
            assert client.send(TOPIC, b"due", pairs={"TIMER_DELIVER_MS": str(due_ms)}).code == ResponseCode.SUCCESS
        old = wait_until(lambda: pid_of("timer"), "the timer runs")
        assert order(broker, DEMOTE).tenure == "slave"
        wait_until(lambda: pid_of("timer") not in (None, old), "the slave's timer runs")
        broker.signal_worker("timer", signal.SIGSTOP)
        assert order(broker, PROMOTE, accepts_loss=True).tenure == "master"
        dead = broker.signal_worker("control", signal.SIGKILL)
        wait_until(lambda: pid_of("control") not in (None, dead), "control is replaced")
        broker.signal_worker("timer", signal.SIGCONT)
        bodies = wait_until(lambda: [m.body for m in messages_of(broker.address, TOPIC, 1)], "the message comes")
        assert [bytes(body) for body in bodies] == [b"due"]
        assert broker.stop() == 0


def send_some(senders: list[Sender]) -> None:
    """Wait until each sender has had an answer for another number."""
    before = [sender.sent for sender in senders]
    wait_until(lambda: all(s.sent > b for s, b in zip(senders, before, strict=True)), "all senders send")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [2, 3])
def test_workers_die_while_the_role_changes(tmp_path: Path, seed: int) -> None:
    """The next process of each worker goes on. What a restarted control has forgotten is ordered again."""
    choices = random.Random(seed)
    with RunningBroker(tmp_path / "a", {**STORE, "brokerRole": "ASYNC_MASTER"}) as broker:
        make_topic(broker.address, TOPIC, SENDERS)
        ends = threading.Event()
        senders = [Sender(broker.address, number, ends) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        try:
            for number in range(8):
                send_some(senders)
                for tenure in ("slave", "master"):
                    victim = ("control", "write", "ha", "flush")[number % 4]
                    timer = threading.Timer(choices.random() * 0.1, broker.signal_worker, (victim, signal.SIGKILL))
                    timer.start()
                    settle(broker, tenure)
                    timer.join()
                    settle(broker, tenure)
            send_some(senders)
        finally:
            ends.set()
            for sender in senders:
                sender.join(60)
        for queue_id, sender in enumerate(senders):
            receiver = Receiver(broker.address, queue_id, ends)
            wait_until(lambda r=receiver, s=sender: (r.pull(0), len(r.received) >= s.sent)[1], "all is received")
            assert receiver.received == list(range(sender.sent))
        assert broker.stop() == 0
