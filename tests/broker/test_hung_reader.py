"""A read worker that receives nothing, made so by the build with crash points, is replaced alone and with one line."""

from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from tests.native.test_crash_points import crash_build
from tests.raw_client import RawClient
from tests.waiting import wait_until

SETTINGS = {"mappedFileSizeCommitLog": 64 << 20, "maxHashSlotNum": 1000, "maxIndexNum": 4000, "ringmqReaders": 1}
LINE = "worker read-0 received nothing for 5 s while bytes waited on its sockets; starting it again"


@pytest.mark.timeout(360)
def test_a_deaf_reader_is_replaced_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"RINGMQ_NATIVE": str(crash_build()), "RINGMQ_HUNG_GENERATION": "1"}
    with RunningBroker(tmp_path / "store", SETTINGS, environment=environment, log_path=log) as broker:
        before = broker.worker_pids()
        with RawClient(broker.address) as unheard:
            unheard.send_bytes(b"\0\0\1\0")
            wait_until(lambda: broker.worker_pids().get("read-0") not in (None, before["read-0"]), "a replacement")
        with RawClient(broker.address) as client:
            assert client.send("TopicA", b"heard").code == 0
        after = broker.worker_pids()
        assert {name for name in before if before[name] != after[name]} == {"read-0"}
        assert broker.stop() == 0
    assert log.read_text().count("read-0") == log.read_text().count(LINE) == 1
