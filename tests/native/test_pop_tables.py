"""POP's tables of polls and of expressions in C under sanitizers: random calls."""

import subprocess
from pathlib import Path

import pytest

from tests.native.sanitized import build_driver

ROUNDS = "30"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver("pop_polls_driver.c", tmp_path_factory.mktemp("pop_polls"))


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_random_calls(driver: Path, seed: str) -> None:
    done = subprocess.run([driver, ROUNDS, seed], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "played\n"), done.stderr[-4000:]
