"""Entries of requests under way: an id is true for one turn of its entry, and an entry is given back once."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.native.sanitized import build_driver

ENTRIES, PAGES = 8, 64


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled driver."""
    return Path(build_driver("pending_driver.c", tmp_path_factory.mktemp("pending")))


def test_an_id_names_its_entry_until_that_is_released(driver: Path) -> None:
    done = subprocess.run([driver], check=True, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines == [" ".join(["1", *["10"] * ENTRIES, "0", "0", str(PAGES)])] * 3, "no entry, count or page is lost"


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("twice", r"pending.c:\d+: not p->kind != RMQ_PENDING_FREE; .* = 1048576 0 310"),
        ("frame", r"arena.c:\d+: not a->block_used\[ref->block\]"),
    ],
)
def test_an_entry_that_is_given_back_twice_ends_the_reader(driver: Path, what: str, line: str) -> None:
    """The completion of one client's send would be the answer to another's."""
    done = subprocess.run([driver, what], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode and re.search(line, done.stderr), done.stderr
