"""Runs the cases with the build of the C core that has named crash points."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = (
    Path(__file__).with_name("crash_cases.py"),
    Path(__file__).with_name("dispatch_crash_cases.py"),
    Path(__file__).with_name("ha_crash_cases.py"),
    Path(__file__).with_name("port_crash_cases.py"),
    Path(__file__).with_name("ask_crash_cases.py"),
    Path(__file__).with_name("held_crash_cases.py"),
    Path(__file__).with_name("chain_crash_cases.py"),
    ROOT / "tests" / "ha" / "receiver_crash_cases.py",
    ROOT / "tests" / "services" / "republish_crash_cases.py",
    ROOT / "tests" / "pop" / "window_crash_cases.py",
    ROOT / "tests" / "pop" / "poll_crash_cases.py",
)
BUILD = ROOT / "build" / "crash"


def crash_build() -> Path:
    """The test build, made when it is missing or older than the sources; one worker makes it, the others wait."""
    sources = [*(ROOT / "native" / "src").rglob("*.[ch]"), ROOT / "native" / "build_native.py"]
    newest = max(path.stat().st_mtime for path in sources)
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = next(BUILD.rglob("_native*.so"), None)
        if found is None or found.stat().st_mtime < newest:
            subprocess.run(["make", "crash"], cwd=ROOT, check=True, timeout=250, stdout=subprocess.DEVNULL)
            found = next(BUILD.rglob("_native*.so"))
    return found


@pytest.mark.timeout(600)
def test_nothing_is_lost_at_any_crash_point(is_thorough: bool) -> None:
    """Every crash point of these roles, of ha and of pop is hit; the cases check what the next worker makes of it."""
    environment = {**os.environ, "RINGMQ_NATIVE": str(crash_build())}
    options = ["-q", "-x", "-p", "no:cacheprovider", *(["--thorough"] if is_thorough else [])]
    command = [sys.executable, "-m", "pytest", *options, *map(str, CASES)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
