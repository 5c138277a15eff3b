"""Thousands of simulated clients against the reader's own code for memory, with a simulated kernel and clock."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "native" / "src"
SEEDS = 120
"""`guard_driver FIRST COUNT` runs more; each stands for seconds of up to 400 connections."""


def test_no_mixture_of_clients_takes_an_honest_one_its_buffers(tmp_path: Path) -> None:
    driver = Path(__file__).with_name("guard_driver.c")
    command = [
        "gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCE}", str(driver), "-o",
        str(tmp_path / "driver"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True)
    done = subprocess.run(
        [tmp_path / "driver", "0", str(SEEDS)], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
