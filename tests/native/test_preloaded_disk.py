"""Runs disk_cases.py with a library before libc's that records every sync and plays a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.timeout(120)
def test_what_is_synced_and_what_a_full_disk_leaves(tmp_path: Path) -> None:
    library = tmp_path / "preloaded_disk.so"
    source = HERE / "preloaded_disk.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    files = {"RECORDED_SYNCS": str(tmp_path / "syncs"), "FULL_DISK": str(tmp_path / "full")}
    environment = {**os.environ, **files, "LD_PRELOAD": str(library)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "disk_cases.py")]
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
