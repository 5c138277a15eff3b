"""The wait of an honest client for its turn beside greedy ones, with a simulated kernel."""

import subprocess
from pathlib import Path

import pytest

from tests.native.sanitized import build_driver

SMALL_BYTES, LARGE_BYTES = 64, 60_000
MOST_TURNS = 3


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled simulation."""
    return Path(build_driver("turn_driver.c", tmp_path_factory.mktemp("turns")))


@pytest.mark.parametrize("is_new", [False, True], ids=["old connection", "new connection"])
@pytest.mark.parametrize(
    ("greedy", "frame_bytes"),
    [(8, LARGE_BYTES), (64, SMALL_BYTES), (64, LARGE_BYTES), (200, LARGE_BYTES), (1000, SMALL_BYTES)],
)
def test_an_honest_client_waits_a_few_turns(driver: Path, greedy: int, frame_bytes: int, *, is_new: bool) -> None:
    done = subprocess.run(
        [driver, str(greedy), str(frame_bytes), str(int(is_new))],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    waited, _ = map(int, done.stdout.split())
    assert waited <= MOST_TURNS
