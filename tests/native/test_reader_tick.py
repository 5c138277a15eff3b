"""The reader's ticks, with times that no test can wait for."""

import subprocess
from pathlib import Path

from tests.native.sanitized import build_driver


def run_driver(name: str, folder: Path) -> list[str]:
    """Build the driver with sanitizers; the words that it prints."""
    driver = build_driver(name, folder)
    done = subprocess.run([driver], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def test_a_client_is_not_slow_while_its_answer_is_read_from_the_disk(tmp_path: Path) -> None:
    assert run_driver("tick_driver.c", tmp_path) == ["open", "slow", "open"]


def test_a_reader_is_deaf_when_bytes_wait_and_nothing_comes_in(tmp_path: Path) -> None:
    """Not when its sockets are empty, when only bytes of stalled connections wait, or when bytes come."""
    assert run_driver("watchdog_driver.c", tmp_path) == ["hears", "5", "hears", "hears"]
