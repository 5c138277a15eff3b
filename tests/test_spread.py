"""How the suite is spread over workers, and what it shows of a failure (`tests/conftest.py`)."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.conftest import HERE, SHARING_GROUP, group_of

pytest_plugins = ["pytester"]
TEST = """
import os, pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    with open({record!r}, "a") as record:
        record.write(f"{{os.environ['PYTEST_XDIST_WORKER']}}\\n")
"""


def test_files_that_share_servers_are_one_group() -> None:
    assert {group_of(HERE / folder / "test_x.py") for folder in ("client", "conformance")} == {SHARING_GROUP}
    assert group_of(HERE / "ha" / "test_x.py") == str(Path("ha", "test_x.py"))


def test_a_group_is_run_by_one_worker(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    tests, records = pytester.mkdir("tests"), pytester.mkdir("records")
    (tests / "conftest.py").write_text((HERE / "conftest.py").read_text())
    for name in ("client/test_a", "conformance/test_b", "native/test_c", "native/test_d", "test_e"):
        path = tests / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TEST.format(record=str(records / path.stem)))
    pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider", str(tests)).assert_outcomes(passed=100)
    workers = defaultdict(set)
    for record in records.iterdir():
        for line in record.read_text().split():
            workers[record.name].add(line)
    assert all(len(names) == 1 for names in workers.values()), workers
    assert workers["test_a"] == workers["test_b"]
    assert len(set().union(*workers.values())) == 2


def test_a_failure_shows_what_servers_said(pytester: pytest.Pytester) -> None:
    tests = pytester.mkdir("tests")
    (tests / "conftest.py").write_text((HERE / "conftest.py").read_text())
    said = 'def test_it(tmp_path):\n    (tmp_path / "store.log").write_text("disk on fire")\n    assert False\n'
    (tests / "test_x.py").write_text(said)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", str(tests))
    done.stdout.fnmatch_lines(["*end of *store.log*", "disk on fire"])
