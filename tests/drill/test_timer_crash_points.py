"""The worker `timer` dies at each crash point of wheel, log and port: each message comes once and never early."""

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from tests.drill.settings import SMALL_STORE
from tests.drill.test_crash_points import NAME_BYTES, all_points, request_points
from tests.native.test_crash_points import crash_build
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
POINTS = [name for name in all_points() if name.startswith("timer-")] + request_points()
AT_START = ("port-claimed", "port-acknowledged")
SETTINGS = {**SMALL_STORE, "flushDiskType": "ASYNC_FLUSH", "mappedFileSizeTimerLog": 4096, "timerRollWindowSlot": 2}


def test_each_comes_once_though_the_worker_dies_at_any_point(tmp_path: Path) -> None:
    """No other worker with a port runs. Small files and windows, so units end files and messages are rolled."""
    file = tmp_path / "crash-point"
    file.write_bytes(bytes(NAME_BYTES))
    environment = {"RINGMQ_NATIVE": str(crash_build()), "RINGMQ_CRASH_FILE": str(file)}
    with (
        RunningBroker(tmp_path / "store", SETTINGS, environment=environment) as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        sent = 0

        def send_one() -> None:
            nonlocal sent
            due_ms = time.time_ns() // 1_000_000 + (50, 400, 1500, 4000)[sent % 4]
            pairs = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"k{sent}"}
            assert client.send("T", b"x", pairs=pairs).code == ResponseCode.SUCCESS
            sent += 1

        send_one()
        for point in POINTS:
            with file.open("r+b", buffering=0) as armed:
                armed.seek(1)
                armed.write(point[1:].encode().ljust(NAME_BYTES - 1, b"\0"))
                armed.seek(0)
                armed.write(point[:1].encode())
            if point in AT_START:
                broker.signal_worker("timer", signal.SIGKILL)

            def was_hit() -> bool:
                send_one()
                return file.read_bytes()[:1] == b"\0"

            wait_until(was_hit, f"{point} is passed")
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= sent, "all are delivered")
        found = messages_of(broker.address, "T", 1)
        copies = Counter(message.properties["UNIQ_KEY"] for message in found)
        assert set(copies) == {f"k{number}" for number in range(sent)} and set(copies.values()) == {1}
        assert all(message.store_timestamp_ms >= int(message.properties["TIMER_DELIVER_MS"]) for message in found)
        assert any("TIMER_ROLL_TIMES" in message.properties for message in found)
