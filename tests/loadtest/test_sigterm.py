"""A measurement that is told to end leaves nothing running."""

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ringmq.loadtest.load.running import wait_ended
from tests.waiting import wait_until


@pytest.mark.io_uring
def test_a_terminated_bench_stops_its_broker(tmp_path: Path) -> None:
    words = ["--rows", "1x1", "--systems", "ringmq", "--rounds", "1", "--seconds", "60", "--folder", str(tmp_path)]
    with (tmp_path / "said").open("wb") as said:
        bench = subprocess.Popen([sys.executable, "-m", "ringmq.loadtest.bench", *words], stdout=said, stderr=said)
    started: list[psutil.Process] = []

    def is_loaded() -> bool:
        assert bench.poll() is None, (tmp_path / "said").read_text()
        started[:] = psutil.Process(bench.pid).children(recursive=True)
        with contextlib.suppress(psutil.NoSuchProcess):
            return any(child.name() == "ringmq-load" for child in started)
        return False

    try:
        wait_until(is_loaded, "the load runs", 60)
        bench.terminate()
        assert bench.wait(60) == 128 + 15
        assert not wait_ended(started), "nothing of it runs any more"
    finally:
        bench.kill()
        bench.wait()
