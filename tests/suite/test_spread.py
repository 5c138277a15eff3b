"""The spread of the suite over workers (`spread.py`), and the logs beside a failure (`tests/conftest.py`)."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.suite.groups import (
    LONGEST_FIRST,
    PAIRS,
    PAIRS_GROUP,
    SHARING_GROUP,
    SPARK_FILES,
    SPARK_GROUP,
    STOCK_USERS,
    group_of,
)  # fmt: skip
from tests.suite.inner import Inner

TEST = """
import os, pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    with open({record!r}, "a") as record:
        record.write(f"{{os.environ['PYTEST_XDIST_WORKER']}}\\n")
"""
CRASH = """
import os, signal, pytest

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with open({record!r}, "a") as record:
        record.write(f"{{number}}\\n")
"""


def test_files_that_share_servers_are_one_group(tmp_path: Path) -> None:
    names = {group_of(tmp_path / "tests" / folder / "test_x.py", tmp_path) for folder in ("client", "conformance")}
    assert names == {SHARING_GROUP}
    assert group_of(tmp_path / "tests" / "ha" / "test_x.py", tmp_path) == str(Path("ha", "test_x.py"))
    assert {group_of(tmp_path / "tests" / name, tmp_path) for name in PAIRS} == {PAIRS_GROUP}
    assert all((Path(__file__).parents[1] / name).is_file() for name in PAIRS | STOCK_USERS)
    assert {group_of(tmp_path / "tests" / name, tmp_path) for name in STOCK_USERS} == {SHARING_GROUP}


def test_files_that_use_the_stock_broker_follow_each_other(inner: Inner) -> None:
    names = ("client/test_a", "client/test_examples", "conformance/test_assignments", "native/test_c")
    for name in reversed(names):
        inner.write(name, "def test_it(): pass\n")
    listed = [line.partition("::")[0] for line in inner.pytest("--collect-only", "-q").stdout.splitlines()]
    wanted = ["client/test_examples", "conformance/test_assignments", "client/test_a", "native/test_c"]
    assert [line for line in listed if line.endswith(".py")] == [f"tests/{name}.py" for name in wanted]


def test_files_that_use_the_spark_session_are_one_group(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    given = re.compile(r"\bspark: Any\b")  # the fixture of tests/spark_bridge/conftest.py
    files = (tests / "spark_bridge").glob("test_*.py")
    assert {path.relative_to(tests).as_posix() for path in files if given.search(path.read_text())} == SPARK_FILES
    assert {group_of(tmp_path / "tests" / name, tmp_path) for name in SPARK_FILES} == {SPARK_GROUP}


def test_the_files_that_begin_early_exist() -> None:
    tests = Path(__file__).parents[1]
    assert [name for name in LONGEST_FIRST if name.endswith(".py") and not (tests / name).is_file()] == []


def test_a_group_is_run_by_one_worker(inner: Inner) -> None:
    pytest.importorskip("xdist")
    names = ("client/test_a", "conformance/test_b", "native/test_c", "native/test_d", "test_e")
    records = {name: inner.root / f"{Path(name).stem}.record" for name in names}
    for name, record in records.items():
        inner.write(name, TEST.format(record=str(record)))
    assert inner.pytest("-n", "2").returncode == 0
    workers = defaultdict(set)
    for name, record in records.items():
        lines = record.read_text().split()
        assert len(lines) == 20
        workers[name] |= set(lines)
    assert all(len(found) == 1 for found in workers.values()), workers
    assert workers["client/test_a"] == workers["conformance/test_b"]
    assert len(set().union(*workers.values())) == 2


def test_a_test_that_ends_its_worker_fails_once_and_the_others_run(inner: Inner) -> None:
    pytest.importorskip("xdist")
    record = inner.root / "record"
    inner.write("test_a", CRASH.format(record=str(record)))
    done = inner.pytest("-n", "1", "--max-worker-restart=3")
    assert done.returncode == 1
    assert "1 failed, 5 passed" in done.stdout
    assert record.read_text().split() == ["0", "1", "3", "4", "5"]


def test_a_failure_shows_what_servers_said(inner: Inner) -> None:
    said = 'def test_it(tmp_path):\n    (tmp_path / "store.log").write_text("disk on fire")\n    assert False\n'
    inner.write("test_x", said)
    printed = inner.pytest().stdout
    assert "end of test_it0/store.log" in printed
    assert "disk on fire" in printed
