"""What a reader's reassembly area gives back to the system, with times that no test can wait for."""

import re
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from tests.native.sanitized import build_driver

TOUCHED = 10_000 + 4 * 300


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled driver."""
    return Path(build_driver("arena_driver.c", tmp_path_factory.mktemp("arena")))


def test_pages_that_nobody_has_needed_for_a_while_go_back_and_used_ones_stay(driver: Path) -> None:
    arena = Path(f"/dev/shm/ringmq-test-{uuid4().hex}")
    try:
        done = subprocess.run([driver, arena], check=True, capture_output=True, text=True, timeout=60)
    finally:
        arena.unlink(missing_ok=True)
    loaded, a_little_later, later, whole, without_large, empty = map(int, done.stdout.split())
    assert loaded == a_little_later == TOUCHED
    assert whole
    # the last large frame keeps what lies below it in its part, the small ones theirs
    assert later == TOUCHED - (4096 - 100)
    assert (without_large, empty) == (100, 0)


@pytest.mark.parametrize(
    ("what", "line"), [("buffer", r"not a->buffer_references\[buffer\]"), ("block", r"not a->block_used\[ref->block\]")]
)
def test_memory_that_is_given_back_twice_ends_the_reader(driver: Path, tmp_path: Path, what: str, line: str) -> None:
    """The second owner's bytes would become those of another connection's frame."""
    done = subprocess.run([driver, tmp_path / "arena", what], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode and re.search(rf"arena.c:\d+: {line}", done.stderr), done.stderr
