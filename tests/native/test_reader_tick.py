"""The reader's ticks, with times that no test can wait for."""

import subprocess
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def parked_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled runs of six parked pulls, of two connections by turns."""
    return Path(build_driver("parked_driver.c", tmp_path_factory.mktemp("parked")))


@pytest.mark.parametrize("cause", ["arrival", "tick"])
def test_a_run_of_parked_pulls_survives_that_it_closes_a_connection(parked_driver: Path, cause: str) -> None:
    """The pulls of the closed one run no more, those of the other do. That run's entry goes with the settlement."""
    for closing, ran in enumerate((6, 4, 4, 5, 5, 6, 6)):
        parked = 1 if closing else 0
        done = subprocess.run(
            [parked_driver, cause, str(closing)], check=True, capture_output=True, text=True, timeout=60
        )
        assert [int(word) for word in done.stdout.split()] == [ran, parked, parked, 0, 0], closing
