"""A file of tests ends the processes that it starts (`leftovers.py`)."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.suite.inner import Inner
from tests.suite.processes import MARK, cpu_ticks, end, pids_marked, top_processes
from tests.waiting import wait_until

ENDLESS = "import time; time.sleep(600)"  # span: the test ends it
LEAVES = f"""
import subprocess, sys
def test_leaves():
    process = subprocess.Popen([sys.executable, "-c", {ENDLESS!r}, "of-this-test"])
    print("pid", process.pid)
"""
KEPT = f"""
import os, subprocess, sys
COMMAND = [sys.executable, "-c", {ENDLESS!r}, "pyspark.daemon"]
def test_kept(capfd):
    process = subprocess.Popen(COMMAND)
    with capfd.disabled():
        print("kept", process.pid, file=sys.stderr)
def test_orphan():
    subprocess.run(["sh", "-c", '"$@" >/dev/null 2>&1 & echo orphan $! >&2', "sh", *COMMAND], check=True)
"""
STOPS = f"""
import subprocess, sys, pytest
@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen([sys.executable, "-c", {ENDLESS!r}])
    yield
    process.kill()
    process.wait()
def test_one(server):
    pass
def test_two(server):
    pass
"""


@pytest.fixture
def marked() -> Iterator[tuple[str, int]]:
    """A mark, and the id of a process with it that computes."""
    mark = f"{os.getpid()}/test"
    command = [sys.executable, "-c", "while True: sum(range(10_000))"]
    with subprocess.Popen(command, env=os.environ | {MARK: mark}) as process:
        yield mark, process.pid
        process.kill()


def test_a_file_that_leaves_a_process_fails_and_the_process_is_ended(inner: Inner) -> None:
    path = inner.root / "tests" / "suite" / "leftovers.py"
    path.write_text(path.read_text().replace("END_S, POLL_S = 20.0", "END_S, POLL_S = 0.5"))
    inner.write("test_a", LEAVES)
    inner.write("test_b", STOPS)
    done = inner.pytest()
    assert "3 passed, 1 error" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("E ") and "of-this-test" in line] or [""]
    pid = next(word for word in done.stdout.split("pid ")[1].split())
    assert "1 processes still run 0.5 s after the last test" in done.stdout
    assert "of-this-test" in done.stdout, line
    assert int(pid) not in cpu_ticks()


def test_what_later_files_use_is_kept_while_its_parent_lives(inner: Inner) -> None:
    path = inner.root / "tests" / "suite" / "leftovers.py"
    path.write_text(path.read_text().replace("END_S, POLL_S = 20.0", "END_S, POLL_S = 0.5"))
    inner.write("test_a", KEPT)
    done = inner.pytest()
    (kept,) = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("kept ")]
    end([int(kept)])
    assert "2 passed, 1 error" in done.stdout
    named = [line for line in done.stdout.splitlines() if line.endswith("pyspark.daemon ")]
    (orphan,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("orphan ")]
    assert [line.split()[0] for line in named] == [orphan]


def test_marked_processes_are_found_until_they_end(marked: tuple[str, int]) -> None:
    mark, pid = marked
    wait_until(lambda: pids_marked(mark) == [pid], "the process is found by its mark")
    assert pids_marked(f"{mark}0") == []
    wait_until(lambda: any(f"% {pid} " in line for line in top_processes()), "it is among those that take the CPU")
    end([pid, 2**22 + 1])
    wait_until(lambda: not pids_marked(mark), "it has ended")
