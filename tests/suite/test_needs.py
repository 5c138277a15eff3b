"""Tests that measure wait for a quiet machine, for a bounded time (`needs.py`)."""

import pytest

from tests.suite import needs
from tests.suite.inner import Inner
from tests.suite.needs import Machine, Needs, Patience

TIMED = """
import pytest
@pytest.mark.timed(cpus=10_000)
@pytest.mark.parametrize("n", [1, 2])
def test_fast(n):
    pass
"""


@pytest.mark.parametrize(
    ("wanted", "machine", "missing"),
    [
        (Needs(1), Machine(1.0, 500), ""),
        (Needs(1), Machine(0.8, 4000), ""),
        (Needs(1), Machine(0.7, 4000), "1 idle CPUs, found 0.7"),
        (Needs(cpus=2), Machine(1.0, 4000), "2 idle CPUs, found 1.0"),
        (Needs(1, memory_mb=800), Machine(2.0, 700), "800 MB of memory, found 700"),
        (Needs(cpus=2, memory_mb=800), Machine(0.1, 7), "2 idle CPUs, found 0.1 and 800 MB of memory, found 7"),
    ],
)
def test_what_is_missing_is_named(wanted: Needs, machine: Machine, missing: str) -> None:
    assert wanted.missing(machine) == missing


def test_the_wait_of_each_test_and_of_all_is_bounded() -> None:
    patience = Patience(each_s=30, left_s=50)
    assert patience.allows(29.9)
    assert not patience.allows(30.0)
    patience.spend(30.0)
    assert patience.allows(19.9)
    assert not patience.allows(20.0)
    patience.spend(30.0)
    assert not patience.allows(0.0)


def test_a_sample_is_of_this_machine() -> None:
    found = needs.sample()
    assert 0 <= found.idle_cpus < 4096
    assert found.free_mb > 1


def test_a_test_that_cannot_be_measured_is_skipped_by_name(inner: Inner) -> None:
    inner.write("test_a", TIMED)
    (inner.root / "tests/suite/needs.py").write_text(
        (inner.root / "tests/suite/needs.py").read_text().replace("WAIT_S = 30.0", "WAIT_S = 0.3")
    )
    done = inner.suite()
    assert "not measured on a busy machine: tests/test_a.py::test_fast[1]" in done.stdout
    assert done.stdout.splitlines()[-1] == "suite: 0 passed, 0 failed, 2 skipped"


def test_a_run_of_timed_tests_imports_no_other_file(inner: Inner) -> None:
    inner.write("test_a", TIMED.replace("10_000", "0, memory_mb=0"))
    inner.write("test_b", "from pathlib import Path\nPath('imported').touch()\ndef test_b():\n    pass\n")
    assert "2 passed" in inner.pytest("-m", "timed").stdout
    assert not (inner.root / "imported").exists()
    assert "3 passed" in inner.pytest().stdout
    assert (inner.root / "imported").exists()


def test_a_mark_under_another_name_is_refused(inner: Inner) -> None:
    """Neither run would have its tests."""
    inner.write("marks", "import pytest\nQUIET = pytest.mark.timed(cpus=0)\n")
    inner.write("test_a", "from tests.marks import QUIET\n@QUIET\ndef test_a():\n    pass\n")
    done = inner.suite()
    assert "write @pytest.mark.timed(...) at the tests of" in done.stderr
    assert "does not hold" in done.stdout
