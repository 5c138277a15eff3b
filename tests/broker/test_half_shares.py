"""Shares of open half messages: a half beyond one is refused at its send, and one that was stored can be ended."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.transaction_kit import COMMIT, ROLLBACK, Transaction, bodies
from tests.conformance.wire import send_fields, shortened
from tests.raw_client import SEND_V2, RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

OF_ALL, OF_HOST, OF_GROUP = 10, 4, 6
SETTINGS = {
    "mappedFileSizeCommitLog": 4 << 20,
    "transactionTimeOut": 600_000,
    "transactionCheckInterval": 600_000,
    "ringmqOpenHalvesMax": OF_ALL,
    "ringmqHostOpenHalvesMax": OF_HOST,
    "ringmqGroupOpenHalvesMax": OF_GROUP,
}
Connect = Callable[[int], RawClient]


class Halves:
    """Half messages of a host and a group, sent until one is refused."""

    def __init__(self, broker: RunningBroker, client: RawClient, group: str) -> None:
        self._plane = Plane.open(plane_name(broker.store))
        self._shares = self._plane.header.half_shares
        self._client, self._group = client, group
        self.open: list[Transaction] = []

    def refusal(self) -> str:
        """Send halves, each after the one before it was read, until one is refused."""
        while not (remark := self.send()):
            assert len(self.open) <= OF_ALL
        return remark

    def send(self) -> str:
        """Send a half. Returns the remark of a refusal."""
        pairs = {"TRAN_MSG": "true", "PGROUP": self._group}
        probe = self._client.ask(SEND_V2, shortened(send_fields("T", 0, pairs)), b"half")
        if probe.code != ResponseCode.SUCCESS:
            assert probe.code == ResponseCode.SYSTEM_BUSY, probe.remark
            return str(probe.remark)
        half = Transaction.of(probe)
        wait_until(lambda: self._shares.arrived > half.offset, "the half is read")
        self.open.append(half)
        return ""

    def end(self, count: int = OF_ALL) -> None:
        """End halves. Each end of a stored half is accepted."""
        for half in self.open[:count]:
            answer = half.end(self._client, COMMIT, producerGroup=self._group)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        before = int(self._shares.open)
        wait_until(lambda: self._shares.open <= before, "they are counted out")
        del self.open[:count]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One for all tests: each ends its halves."""
    with RunningBroker(tmp_path_factory.mktemp("shares") / "store", SETTINGS) as running:
        make_topic(running.address, "T", 1)
        yield running


@pytest.fixture
def host(broker: RunningBroker) -> Iterator[Connect]:
    """A client that comes from this host: 127.0.0.N."""
    clients: list[RawClient] = []

    def connect(number: int) -> RawClient:
        clients.append(RawClient(broker.address, source=f"127.0.0.{number}"))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_one_host_does_not_stop_another(broker: RunningBroker, host: Connect) -> None:
    """The host may spread its halves over connections and groups."""
    greedy = [Halves(broker, host(1), f"G{number}") for number in range(OF_HOST)]
    for halves in greedy:
        assert halves.send() == ""
    last = Halves(broker, host(1), "new")
    refusal = last.refusal()
    assert f"{OF_HOST} half messages of the producer's host are open, ringmqHostOpenHalvesMax is {OF_HOST}: " in refusal
    assert refusal.startswith("[OVERLOAD]") and refusal.endswith("end open transactions and try again later")
    honest = Halves(broker, host(2), "G0")
    assert honest.send() == "" and honest.send() == ""
    honest.end()
    greedy[0].end()
    wait_until(lambda: last.send() == "", "a half has ended, so there is room for one")
    for halves in (last, *greedy[1:]):
        halves.end()


def test_one_group_does_not_stop_another(broker: RunningBroker, host: Connect) -> None:
    groups = [Halves(broker, host(number), "one") for number in (1, 2)]
    assert "ringmqHostOpenHalvesMax" in groups[0].refusal()
    refusal = groups[1].refusal()
    assert f"{OF_GROUP} half messages of the producer group are open, ringmqGroupOpenHalvesMax is {OF_GROUP}" in refusal
    honest = Halves(broker, host(2), "other")
    assert honest.send() == ""
    for halves in (*groups, honest):
        halves.end()


def test_a_full_pool_refuses_at_the_send_and_ends_all(broker: RunningBroker, host: Connect) -> None:
    hosts = [Halves(broker, host(number), f"P{number}") for number in range(1, 4)]
    refusals = [halves.refusal() for halves in hosts]
    assert f"{OF_ALL} half messages are open, ringmqOpenHalvesMax is {OF_ALL}: the half message is not" in refusals[2]
    sent = hosts[2]._client.ask(SEND_V2, shortened(send_fields("T", 0, {})), b"plain")
    assert sent.code == ResponseCode.SUCCESS, "other messages are not meant"
    for halves in hosts:
        halves.end()


def test_timed_halves_have_no_more_room(broker: RunningBroker, host: Connect) -> None:
    """They count when they become half messages."""
    halves, client = Halves(broker, host(1), "timed"), host(1)
    halves.refusal()
    pairs = {"TRAN_MSG": "true", "PGROUP": "timed", "TIMER_DELAY_SEC": "60"}
    answer = client.ask(SEND_V2, shortened(send_fields("T", 0, pairs)), b"later")
    assert (answer.code, "ringmqHostOpenHalvesMax" in str(answer.remark)) == (ResponseCode.SYSTEM_BUSY, True)
    halves.end()


def test_a_live_limit_is_lowered(broker: RunningBroker, host: Connect) -> None:
    halves, admin = Halves(broker, host(1), "live"), host(9)
    for limit in (2, OF_HOST):
        changed = admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"ringmqHostOpenHalvesMax=%d" % limit)
        assert changed.code == ResponseCode.SUCCESS
        wanted = f"ringmqHostOpenHalvesMax is {limit}:"
        wait_until(lambda wanted=wanted: wanted in halves.refusal(), "readers know the limit")
    halves.end()


def test_counts_are_right_after_the_death_of_the_worker(broker: RunningBroker, host: Connect) -> None:
    halves = Halves(broker, host(1), "dead")
    halves.refusal()
    victim = broker.worker_pids()["transactions"]
    os.kill(victim, signal.SIGKILL)
    assert "ringmqHostOpenHalvesMax" in halves.send(), "the counts stay"
    halves.end(3)
    assert broker.worker_pids()["transactions"] != victim
    wait_until(lambda: halves.send() == "", "the replacement counts ends")
    halves.refusal()
    assert len(halves.open) == OF_HOST
    halves.end()


def test_counts_are_right_after_a_start(tmp_path: Path) -> None:
    """The halves of one host are open, and those of another have ended."""
    store = tmp_path / "store"
    with RunningBroker(store, SETTINGS) as broker:
        make_topic(broker.address, "T", 1)
        with RawClient(broker.address) as one, RawClient(broker.address, source="127.0.0.2") as two:
            ended, kept = Halves(broker, one, "ended"), Halves(broker, two, "kept")
            kept.refusal()
            ended.refusal()
            ended.end()
        broker.kill_all()
    with RunningBroker(store, SETTINGS) as broker:
        plane = Plane.open(plane_name(store))
        with RawClient(broker.address) as one, RawClient(broker.address, source="127.0.0.2") as two:
            again, more = Halves(broker, one, "ended"), Halves(broker, two, "kept")
            wait_until(lambda: plane.header.half_shares.open == OF_HOST, "the worker has counted")
            assert "ringmqHostOpenHalvesMax" in more.refusal()
            assert not more.open and again.send() == ""
            for half in kept.open:
                assert half.end(two, ROLLBACK, producerGroup="kept").code == ResponseCode.SUCCESS
            wait_until(lambda: more.send() == "", "there is room")
            more.end()
            again.end()
        wait_until(lambda: len(bodies(broker)) == OF_HOST + 2, "the commits are delivered")
        assert broker.stop() == 0
