"""Thousands of simulated clients against the reader's own code for memory, with a simulated kernel and clock."""

import subprocess
from pathlib import Path

from tests.native.sanitized import build_driver

SEEDS = 120
"""`guard_driver FIRST COUNT` runs more; each stands for seconds of up to 400 connections."""


def test_no_mixture_of_clients_takes_an_honest_one_its_buffers(tmp_path: Path) -> None:
    driver = build_driver("guard_driver.c", tmp_path)
    done = subprocess.run([driver, "0", str(SEEDS)], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
