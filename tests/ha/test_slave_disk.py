"""A slave without room on its disk, or in a folder that takes no file, says so, reports no more, and goes on later."""

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_master import FakeMaster
from golden_streams import FILE_BYTES, LOG_END, master_log
from receiver_kit import frames

from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from tests.drill.small_disk import fill, missing_for_small_disk, small_disk
from tests.ha.test_slave_broker import SLAVE, slave_log, wait_for_log
from tests.waiting import wait_until

MISSING = missing_for_small_disk()
FIRST = 140_000


@contextmanager
def full(store: Path) -> Iterator[None]:
    """No room on the store's disk."""
    ballast = fill(store)
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def sealed(store: Path) -> Iterator[None]:
    """The folder of the log takes no new file."""
    subprocess.run(["chattr", "+i", str(store / "commitlog")], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(store / "commitlog")], check=True)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.skipif(shutil.which("chattr") is None, reason="not installed: chattr")
@pytest.mark.parametrize(
    ("trouble", "says"), [(full, "the disk is full"), (sealed, "the next log file cannot be made")]
)
def test_a_slave_without_room_says_so_and_reports_no_more(
    tmp_path: Path, trouble: Callable[[Path], object], says: str
) -> None:
    go_on = threading.Event()

    def script(number: int, first_report: int) -> Iterator[bytes]:
        stop = FIRST if number == 0 else LOG_END
        yield frames(master_log()[first_report:stop], first_report, FILE_BYTES)
        if number == 0:
            go_on.wait(60)
            yield frames(master_log()[stop:LOG_END], stop, FILE_BYTES)

    with small_disk(tmp_path, 24) as disk, FakeMaster(script) as master:
        store = disk / "store"
        settings = {**SLAVE, "haMasterAddress": master.address, "diskMaxUsedSpaceRatio": 95}
        with RunningBroker(store, settings, namesrv=None, log_path=tmp_path / "slave.log") as broker:
            wait_until(lambda: read_watermarks(store).append_offset > FIRST - 5000, "the first part is there")
            wait_until(lambda: (store / "commitlog" / f"{2 * FILE_BYTES:020d}").exists(), "the next file is made")
            pid = broker.worker_pids()["ha"]
            with trouble(store):  # type: ignore[attr-defined]
                go_on.set()
                wait_until(
                    lambda: f"no log is received from the master: {says}" in broker.log_path.read_text(), "it says so"
                )
                stopped = read_watermarks(store).append_offset
                assert stopped < 3 * FILE_BYTES
                assert master.last_report <= stopped
            wait_for_log(broker, LOG_END)
            assert broker.worker_pids()["ha"] == pid
            assert broker.stop() == 0
        assert slave_log(store, 0, LOG_END) == master_log()[:LOG_END]
