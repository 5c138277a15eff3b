"""The streaming example: it counts what the file holds, and it runs beside a producer."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests_per_minute as example

EXAMPLE = Path(example.__file__)


def test_minutes_are_those_of_the_lines() -> None:
    lines = example.read_lines(example.DATA, 3)
    assert example.minutes_of([*lines, b"no time here"]) == {datetime(2015, 5, 17, 10, 5, tzinfo=UTC): 3}
    assert sum(example.minutes_of(example.read_lines(example.DATA, None)).values()) == 10_000


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_it_counts_while_lines_come(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--limit", "600", "--rate", "20", "--store", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stream and file agree" in done.stdout
    assert done.stdout.count("batch") > 1, "it came in several batches"
