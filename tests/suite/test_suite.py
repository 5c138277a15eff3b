"""`python -m tests.suite` over suites of a few tests: what holds, what wavers, what fails (`__main__.py`)."""

import json

import pytest

from tests.suite.inner import Inner

pytest.importorskip("xdist")
ONCE = """
import pathlib
def first():
    flag = pathlib.Path(__file__).with_name({flag!r})
    try:
        return not flag.exists()
    finally:
        flag.touch()
"""
GOOD = "def test_good():\n    pass\n"
TWICE = "def test_twice():\n    assert 1 == 2, 'a cause'\n"
WAVERS = ONCE.format(flag="w") + "def test_wavers():\n    print('this time', 7)\n    assert not first(), 'chance'\n"
DIES = ONCE.format(flag="d") + "import os\ndef test_dies():\n    if first():\n        os._exit(3)\n"
HANGS = (
    ONCE.format(flag="h")
    + """
import pytest, time
@pytest.mark.timeout(1)
def test_hangs():
    if first():
        time.sleep(50)  # span: the time-out ends it
"""
)
FIXTURE = (
    ONCE.format(flag="f")
    + """
import pytest
@pytest.fixture(scope="module")
def server():
    assert not first(), "no server"
@pytest.mark.parametrize("number", range(9))
def test_uses(server, number):
    pass
"""
)
TEARDOWN = (
    ONCE.format(flag="t")
    + """
import pytest
@pytest.fixture
def server():
    yield
    assert not first(), "it did not stop"
def test_stops(server):
    pass
"""
)
TIMED = (
    ONCE.format(flag="m")
    + "import pytest\n@pytest.mark.timed(cpus=0, memory_mb=0)\ndef test_fast():\n    assert not first()\n"
)
RANDOM = "import random\ndef test_draws():\n    assert False, f'drawn {random.random()}'\n"
LEAVES = """
import subprocess, sys
def test_leaves():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # span: no fixture ends it
def test_last():
    pass
"""
UNCOLLECTED = "import nothing_of_that_name\n"


def test_what_holds_alone_is_listed_and_the_run_holds(inner: Inner) -> None:
    """Five causes, the most that a run may have: a worker's death, a time-out, fixtures, and a test that measures."""
    texts = {"good": GOOD, "dies": DIES, "hangs": HANGS, "fixture": FIXTURE, "teardown": TEARDOWN, "timed": TIMED}
    for name, text in texts.items():
        inner.write(f"test_{name}", text)
    done = inner.suite()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "holds: 0 failed, 5 wavering (at most 5), 0 not measured, seed 1",
        "suite: 14 passed, 0 failed, 0 skipped",
    ]
    for name in ("test_dies", "test_hangs", "test_uses[8]", "test_stops", "test_fast"):
        assert f"::{name} (" in done.stdout.partition("== failures")[2]


def test_what_fails_twice_has_a_cause(inner: Inner) -> None:
    inner.write("test_a", WAVERS)
    inner.write("test_b", TWICE)
    inner.write("test_c", RANDOM)
    done = inner.suite("--seed", "7")
    assert done.returncode == 1
    last = done.stdout.splitlines()[-200:]
    assert "failed twice: tests/test_b.py::test_twice (call): AssertionError: a cause" in last
    assert "wavering: tests/test_a.py::test_wavers (call): AssertionError: chance" in last
    assert last[-1] == "suite: 1 passed, 2 failed, 0 skipped"
    whole, number = inner.verdict(), drawn(inner)
    assert "seed 7, worker gw0" in whole
    assert "load average" in whole
    assert whole.count("this time 7") >= 2, "the outputs of both attempts"
    assert "-- second attempt, alone: passed" in whole
    inner.suite("--seed", "2", "--", "-k", "draws")
    assert drawn(inner) != number


def drawn(inner: Inner) -> str:
    """What the test RANDOM has drawn in both attempts of the last run."""
    found = {line.partition("drawn ")[2][:10] for line in inner.verdict().splitlines() if "Error: drawn" in line}
    assert len(found) == 1, "a second attempt repeats the first"
    return found.pop()


def test_what_a_file_leaves_and_what_cannot_be_read_breaks_the_run(inner: Inner) -> None:
    """A leak is charged to the last test of its file, and an error of collection comes beside a test that wavers."""
    path = inner.root / "tests" / "suite" / "leftovers.py"
    path.write_text(path.read_text().replace("END_S, POLL_S = 20.0", "END_S, POLL_S = 0.5"))
    inner.write("test_a", LEAVES)
    inner.write("test_b", UNCOLLECTED)
    inner.write("test_c", WAVERS)
    done = inner.suite()
    assert done.returncode == 1
    last = done.stdout.partition("== failures")[2]
    assert (
        "failed twice: tests/test_a.py::test_last (teardown): 1 processes still run 0.5 s after the last test" in last
    )
    assert "cannot be collected: tests/test_b.py: ModuleNotFoundError" in last
    assert "wavering: tests/test_c.py::test_wavers" in last
    assert done.stdout.splitlines()[-1] == "suite: 2 passed, 1 failed, 0 skipped"


def test_strict_ends_at_the_first_failure(inner: Inner) -> None:
    inner.write("test_a", WAVERS)
    inner.write("test_b", GOOD)
    done = inner.suite("--strict")
    assert done.returncode == 1
    assert "failed once: tests/test_a.py::test_wavers" in done.stdout
    assert "not run: 1 tests, the first is tests/test_b.py::test_good" in done.stdout
    assert "failed tests alone" not in done.stdout
    assert done.stdout.splitlines()[-1] == "suite: 0 passed, 1 failed, 0 skipped"


def test_arguments_of_pytest_are_passed_on_and_records_name_each_test(inner: Inner) -> None:
    inner.write("test_a", GOOD + TWICE)
    assert inner.suite("--", "-k", "good").returncode == 0
    rows = [json.loads(line) for line in (inner.root / "build/tests/tests.jsonl").read_text().splitlines()]
    assert [row["phase"]["when"] for row in rows if "phase" in row] == ["setup", "call", "teardown"]
    assert rows[-1] == {"end": 0}
