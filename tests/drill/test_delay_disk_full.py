"""A full disk while delayed messages are due: the worker waits, says so once, goes on, and loses nothing."""

from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from tests.drill.settings import SMALL_STORE
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.raw_client import RawClient
from tests.staging import bodies_of, make_topic
from tests.waiting import wait_dispatched, wait_until

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made"),
]
SETTINGS = {
    **SMALL_STORE,
    "messageIndexEnable": False,
    "cleanResourceInterval": 86_400_000,
    "messageDelayLevel": "10s",  # the disk is filled before,
}
COUNT, LARGE = 50, 60_000
WAITS, GOES_ON = " delay waits: write refuses its records", " delay publishes again after"


def test_delivery_waits_for_room(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, 48) as disk,
        RunningBroker(disk / "store", SETTINGS, log_path=tmp_path / "log") as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        bodies = [(b"%d" % number).ljust(LARGE, b".") for number in range(COUNT)]
        for body in bodies:
            assert client.send("T", body, pairs={"DELAY": "1"}).code == ResponseCode.SUCCESS
        wait_dispatched(broker.store)
        checkpoint = broker.store / "config" / "ringmqDelayOffset.json"
        wait_until(checkpoint.exists, "the worker has saved its first checkpoint")
        ballast = fill(disk)
        wait_until(lambda: WAITS in broker.log_tail(1 << 20), "the worker says that it waits")
        delivered = bodies_of(broker.address, "T", 1)
        assert delivered == bodies[: len(delivered)] and len(delivered) < COUNT
        assert broker.log_tail(1 << 20).count(WAITS) == 1
        pid = broker.worker_pids()["delay"]
        ballast.unlink()
        wait_until(lambda: len(bodies_of(broker.address, "T", 1)) == COUNT, "the worker goes on")
        assert bodies_of(broker.address, "T", 1) == bodies
        wait_until(lambda: GOES_ON in broker.log_tail(1 << 20), "the worker says that it goes on")
        log = broker.log_tail(1 << 20)
        assert (log.count(WAITS), log.count(GOES_ON)) == (1, 1)
        assert broker.worker_pids()["delay"] == pid, "it did not die of it"
        assert broker.stop() == 0
