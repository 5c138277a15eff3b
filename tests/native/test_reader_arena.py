"""What a reader's reassembly area gives back to the system, with times that no test can wait for."""

import subprocess
from pathlib import Path
from uuid import uuid4

from tests.native.sanitized import build_driver

TOUCHED = 10_000 + 4 * 300


def test_pages_that_nobody_has_needed_for_a_while_go_back_and_used_ones_stay(tmp_path: Path) -> None:
    driver = build_driver("arena_driver.c", tmp_path)
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
