"""Runs sync_cases.py with a library before libc's that records every sync."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.timeout(120)
def test_nothing_is_called_synced_before_it_is(tmp_path: Path) -> None:
    library = tmp_path / "recorded_syncs.so"
    source = HERE / "recorded_syncs.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    environment = {**os.environ, "LD_PRELOAD": str(library), "RECORDED_SYNCS": str(tmp_path / "syncs")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "sync_cases.py")]
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
