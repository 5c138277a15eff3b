"""Replicas are counted, never connections: two slaves that say the same broker id are one."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.ha_bodies import HaStatus
from tests.ha.test_pair import MASTER, SLAVE, marks
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

WANTED = {**MASTER, "inSyncReplicas": 3}  # the master and two slaves


@pytest.fixture
def group(tmp_path: Path) -> Iterator[tuple[RunningBroker, ExitStack]]:
    """A master that waits for two slaves, and a stack for them."""
    with RunningBroker(tmp_path / "master", WANTED) as master, ExitStack() as slaves:
        make_topic(master.address, "Counted")
        yield master, slaves


def test_two_slaves_with_one_id_are_one_replica(group: tuple[RunningBroker, ExitStack], tmp_path: Path) -> None:
    master, slaves = group

    def start(name: str, broker_id: int) -> None:
        settings = {**SLAVE, "brokerId": broker_id}
        slaves.enter_context(RunningBroker(tmp_path / name, settings, namesrv=master.namesrv))

    with RawClient(master.address) as client:

        def following() -> list[int]:
            status = HaStatus.decode(client.ask(RequestCode.HA_STATUS, {}).body)
            return sorted(slave.broker_id for slave in status.slaves if slave.state == "transfer")

        start("first", 1)
        start("twin", 1)
        wait_until(lambda: following() == [1, 1], "both follow")
        end = marks(master).append_offset
        for _ in range(20):
            assert client.send("Counted", b"for one replica").code == ResponseCode.SYSTEM_ERROR
        assert marks(master).append_offset == end
        start("second", 2)
        wait_until(lambda: following() == [1, 1, 2], "the second one follows")
        wait_until(lambda: client.send("Counted", b"for two").code == ResponseCode.SUCCESS, "two replicas count")
