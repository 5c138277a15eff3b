"""A full disk and failed syncs under timer messages: the worker waits or rebuilds its files, and loses nothing."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringmq.loadtest.bench.stored import runtime_info
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from ringmq.timer.timer_log import units_per_file
from tests.drill.settings import SMALL_STORE
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
SETTINGS = {
    **SMALL_STORE,
    "messageIndexEnable": False,
    "cleanResourceInterval": 86_400_000,
    "mappedFileSizeTimerLog": 4096,
}
UNITS_PER_FILE = units_per_file(4096)
LESS_THAN_A_WHEEL = 20 << 20
SMALL, LARGE = 1, 60_000
LATER_MS = 12_000
"""A message must reach the wheel, and the disk its fault, before the message's time."""
NO_WHEEL = "wheel and TimerLog cannot be opened"
NO_TIMER_LOG = "waits: no room for TimerLog"
NO_COMMIT_LOG = "waits: write refuses its records"
FAILED = "wheel and TimerLog cannot be synced"
NO_PAGE = "a page cannot be read or written; wheel and TimerLog are rebuilt"
DISK = Path(__file__).parents[1] / "native" / "preloaded_disk.c"


class Sends:
    """Messages with times, by key."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self.count = 0

    def send(self, delays_ms: Sequence[int], size: int = SMALL) -> None:
        for delay_ms in delays_ms:
            due_ms = time.time_ns() // 1_000_000 + delay_ms
            pairs = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"k{self.count}"}
            assert self._client.send("T", b"." * size, pairs=pairs).code == ResponseCode.SUCCESS
            self.count += 1

    def check_all_come(self, broker: RunningBroker) -> None:
        """Each comes once, none early."""
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= self.count, "all are delivered")
        found = messages_of(broker.address, "T", 1)
        copies = Counter(message.properties["UNIQ_KEY"] for message in found)
        assert set(copies) == {f"k{number}" for number in range(self.count)} and set(copies.values()) == {1}
        assert all(message.store_timestamp_ms >= int(message.properties["TIMER_DELIVER_MS"]) for message in found)


def wait_for_line(broker: RunningBroker, line: str, seen: int) -> None:
    """Wait till the log has the line more than `seen` times."""
    wait_until(lambda: broker.log_tail(1 << 20).count(line) > seen, f"a log line tells: {line}")


@pytest.mark.skipif(bool(missing_for_small_disk()), reason=missing_for_small_disk() or "can be made")
def test_wheel_and_delivery_wait_for_room(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, 112) as disk,
        RunningBroker(disk / "store", SETTINGS, log_path=tmp_path / "log") as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        sends = Sends(client)
        ballast = fill(disk)
        with ballast.open("r+b") as file:
            file.truncate(ballast.stat().st_size - LESS_THAN_A_WHEEL)
        sends.send([500] * 20)
        wait_until(lambda: NO_WHEEL in broker.log_tail(1 << 20), "there is no room for the wheel")
        ballast.unlink()
        sends.check_all_come(broker)

        pid = broker.worker_pids()["timer"]
        sends.send([LATER_MS] * 30, LARGE)
        wait_dispatched(broker.store)
        ballast = fill(disk)
        wait_until(lambda: NO_COMMIT_LOG in broker.log_tail(1 << 20), "there is no room for copies")
        assert len(messages_of(broker.address, "T", 1)) < sends.count
        ballast.unlink()
        sends.check_all_come(broker)
        assert broker.worker_pids()["timer"] == pid, "it did not die of it"
        assert broker.stop() == 0


def test_a_full_timer_log_waits_and_files_with_failed_syncs_or_reads_are_rebuilt(tmp_path: Path) -> None:
    library, faulty, store = tmp_path / "preloaded_disk.so", tmp_path / "faulty", tmp_path / "store"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, DISK, "-ldl"], check=True, timeout=120)
    environment = {"LD_PRELOAD": str(library), "FAULTY_FILES": str(faulty)}
    with RunningBroker(store, SETTINGS, environment=environment) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        sends = Sends(client)

        def meets(fault: str, line: str, delays_ms: Sequence[int]) -> None:
            seen = broker.log_tail(1 << 20).count(line)
            faulty.write_text(fault)
            sends.send(delays_ms)
            wait_for_line(broker, line, seen)
            faulty.unlink()

        sends.send([50 + 40 * number for number in range(20)])
        wait_until(lambda: (store / "config" / "timercheck").exists(), "the progress is saved")
        pid = broker.worker_pids()["timer"]
        meets("room timerlog", NO_TIMER_LOG, [LATER_MS // 3 + 20 * number for number in range(100)])
        sends.check_all_come(broker)
        assert broker.worker_pids()["timer"] == pid, "it did not die of it"
        with (store / "timerwheel").open("rb") as wheel:
            for name in ("timerwheel", "timerlog/0"):
                meets(f"sync {name}", FAILED, [LATER_MS // 3])
            sends.check_all_come(broker)
            wait_until(lambda: os.fstat(wheel.fileno()).st_nlink == 0, "no file is used again whose sync has failed")
        sends.send([LATER_MS] * 3 * UNITS_PER_FILE)
        wait_until(lambda: runtime_info(broker.port)["timerOffsetBehind"] == "0", "all are in the wheel")
        for path in sorted((store / "timerlog").iterdir())[:-1]:
            os.truncate(path, 0)  # an access is SIGBUS then, as after an I/O error
        wait_for_line(broker, NO_PAGE, 0)
        sends.check_all_come(broker)
        assert broker.stop() == 0
