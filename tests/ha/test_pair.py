"""A master and a slave of this house: deaths on the slave under load, and a slave that has been away for too long."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringmq.ipc.watermark import Watermarks, read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

FILE_BYTES = 131_072
STORE = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
MASTER = {**STORE, "brokerRole": "SYNC_MASTER", "slaveTimeout": 20_000}
"""The time-out is below that of a client, and far beyond a pause of a busy machine."""
SLAVE = {**STORE, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
NAMED = {"haAllowedNetworks": "127.0.0.0/8"}


def marks(broker: RunningBroker) -> Watermarks:
    return read_watermarks(broker.store)


@contextmanager
def running_slave(tmp_path: Path, master: RunningBroker, networks: dict[str, str] = NAMED) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "slave", {**SLAVE, **networks}, namesrv=master.namesrv) as slave:
        yield slave
        assert slave.stop() == 0


def log_bytes(store: Path, start: int, end: int) -> bytes:
    files = sorted((store / "commitlog").iterdir())
    base = int(files[0].name)
    return b"".join(path.read_bytes() for path in files)[start - base : end - base]


def wait_for_slave(master: RunningBroker, slave: RunningBroker) -> int:
    """Until the slave has, and shows, the log as it is now; its end. The master may go on meanwhile."""
    end = marks(master).append_offset
    wait_until(lambda: marks(slave).dispatched_offset >= end, "the slave has the whole log")
    return end


@pytest.mark.parametrize("networks", [{}, NAMED], ids=["empty", "named"])
def test_what_was_acknowledged_is_on_the_slave_whoever_dies_there(tmp_path: Path, networks: dict[str, str]) -> None:
    with RunningBroker(tmp_path / "master", {**MASTER, **networks}) as master:
        make_topic(master.address, "Pair")
        with running_slave(tmp_path, master, networks) as slave, RawClient(master.address) as client:
            wait_until(lambda: client.send("Pair", b"first").code == 0, "the slave is in sync")
            acknowledged = []
            for number in range(400):
                body = b"%d " % number + b"x" * (number * 7 % 900)
                if client.send("Pair", body, number % 2).code == 0:
                    acknowledged.append(body)
                if number in (50, 150, 250):
                    slave.signal_worker("ha" if number != 150 else "dispatch", signal.SIGKILL)
                    wait_until(lambda: client.send("Pair", b"probe").code == 0, "the slave is back")
            assert len(acknowledged) > 300
            end = wait_for_slave(master, slave)
            assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)
            wait_until(lambda: messages_of(slave.address, "Pair"), "the slave knows the topic")
            readable = [bytes(message.body) for message in messages_of(slave.address, "Pair")]
            assert not set(acknowledged) - set(readable)
            assert readable == [bytes(message.body) for message in messages_of(master.address, "Pair")]
        assert master.stop() == 0


def test_a_wrong_list_of_the_master_keeps_its_slave_out_and_both_say_why(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "master", {**MASTER, "haAllowedNetworks": "10.0.0.0/8"}) as master:
        make_topic(master.address, "Pair")
        with running_slave(tmp_path, master) as slave, RawClient(master.address) as client:
            why = "haAllowedNetworks does not allow the host"
            line = f"a connection from 127.0.0.1 to the replication port is closed: {why}"
            wait_until(lambda: line in master.log_path.read_text(), "the master says it")
            why = "(HA_HANDSHAKE) from host 127.0.0.1 is refused: haAllowedNetworks does not name this host"
            wait_until(lambda: why in slave.log_path.read_text(), "the slave says it")
            assert client.send("Pair", b"nobody follows").code != 0
            assert marks(slave).append_offset == 0
        assert master.stop() == 0


def test_a_wrong_list_of_the_slave_lets_it_follow_and_says_so(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "master", {**MASTER, **NAMED}) as master:
        make_topic(master.address, "Pair")
        wrong = {"haAllowedNetworks": "10.0.0.0/8"}
        with running_slave(tmp_path, master, wrong) as slave, RawClient(master.address) as client:
            wait_until(lambda: client.send("Pair", b"first").code == 0, "the slave is in sync")
            line = "haAllowedNetworks does not name master 127.0.0.1: this slave follows it"
            wait_until(lambda: line in slave.log_path.read_text(), "the slave says it")
            end = wait_for_slave(master, slave)
            assert log_bytes(slave.store, 0, end) == log_bytes(master.store, 0, end)
        assert master.stop() == 0


def test_a_slave_that_was_away_too_long_starts_afresh_and_keeps_what_it_had(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "master", {**MASTER, "brokerRole": "ASYNC_MASTER"}) as master:
        make_topic(master.address, "Pair")
        with RawClient(master.address) as client:
            for number in range(40):
                assert client.send("Pair", b"%d" % number * 500).code == 0
        with running_slave(tmp_path, master) as slave:
            had = wait_for_slave(master, slave)
        with RawClient(master.address) as client:
            while marks(master).append_offset < 3 * FILE_BYTES:
                assert client.send("Pair", b"more" * 500).code == 0
        assert master.stop() == 0
    before = log_bytes(tmp_path / "slave", 0, had)
    for path in sorted((tmp_path / "master" / "commitlog").iterdir())[:2]:
        path.unlink()  # as retention does
    with RunningBroker(tmp_path / "master", {**MASTER, "brokerRole": "ASYNC_MASTER"}) as master:
        with running_slave(tmp_path, master, {}) as slave:
            kept = "this log stays, because neither haAllowedNetworks nor haMasterAddress names 127.0.0.1"
            wait_until(lambda: kept in slave.log_path.read_text(), "it says what would allow it")
            assert (marks(slave).min_offset, marks(slave).append_offset) == (0, had)
        with running_slave(tmp_path, master) as slave:
            end = wait_for_slave(master, slave)
            start = 2 * FILE_BYTES
            assert marks(slave).min_offset == start
            assert log_bytes(slave.store, start, end) == log_bytes(master.store, start, end)
            assert f"{had}..{start}" in slave.log_path.read_text()
        assert master.stop() == 0
    saved = b"".join(path.read_bytes() for path in sorted((tmp_path / "slave" / "salvage").iterdir()))
    assert saved[: len(before)] == before
