"""A master and its slave under load, upgraded one after the other and rolled back, with empty lists."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from tests.upgrade.version_kit import Expected, Member, Senders, log_bytes, wait_in_sync

pytestmark = pytest.mark.upgrade
NEW = sys.executable
STORE = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 60_000}


class Pair:
    """Both members; the master has the name server."""

    def __init__(self, folder: Path, role: str) -> None:
        self.master = Member(folder / "master", {**STORE, "brokerRole": role})
        slave = {**STORE, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
        self.slave = Member(folder / "slave", slave)

    def close(self) -> None:
        """The end of the test."""
        self.slave.close()
        self.master.close()

    def running(self) -> tuple[RunningBroker, RunningBroker]:
        """Both."""
        assert self.master.broker is not None and self.slave.broker is not None
        return self.master.broker, self.slave.broker


@pytest.fixture(params=["ASYNC_MASTER", "SYNC_MASTER"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path, request.param)
    yield pair
    pair.close()


def check(pair: Pair, senders: Senders, expected: Expected) -> None:
    """Sends go on; master and slave show everything and have the same log."""
    senders.wait_for_more(100)
    master, slave = pair.running()
    with senders.paused():
        end = wait_in_sync(master)
        expected.check(master.address, senders.acknowledged)
        expected.commit(master.address, expected.offset + 10)
        expected.check(master.address, senders.acknowledged)
        expected.check(slave.address, senders.acknowledged, is_slave=True)
        assert log_bytes(slave.store, end) == log_bytes(master.store, end)


@pytest.mark.parametrize("first", ["slave", "master"])
def test_one_after_the_other_there_and_back(pair: Pair, old_python: str, first: str) -> None:
    """Slave first is the order of the documentation; a pair whose master went first works, too."""
    master = pair.master.run(old_python)
    pair.slave.namesrv = master.namesrv
    pair.slave.run(old_python)
    wait_in_sync(master)  # SYNC_MASTER refuses sends before
    expected = Expected()
    expected.fill(master.address, batch_bytes=1 << 20)
    expected.commit(master.address, 1)
    senders = Senders(master.address)
    order = (pair.slave, pair.master) if first == "slave" else (pair.master, pair.slave)
    try:
        check(pair, senders, expected)
        for python in (NEW, old_python):
            for member in order:
                member.run(python)
                check(pair, senders, expected)
    finally:
        senders.close()
