"""The example that `make run` shows: it counts right, it notices a difference, and it runs."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import access_log_pipeline as example
import pytest

EXAMPLE = Path(example.__file__)


def test_the_source_file_is_what_its_page_says() -> None:
    counts = example.count_file(example.read_lines(example.DATA, None))
    assert (counts.lines, len(counts.clients)) == (10_000, 1_753)
    assert counts.by_status == Counter({"2xx": 9171, "3xx": 609, "4xx": 217, "5xx": 3})
    assert sum(counts.by_hour.values()) == 10_000


def test_a_difference_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = example.read_lines(example.DATA, 50)
    source, other = example.count_file(lines), example.count_file([*lines[:-1], lines[-1] + b" "])
    assert example.report(source, {"a": source})
    assert not example.report(source, {"a": source, "b": other})
    assert "DIFFERS" in capsys.readouterr().out


def test_a_line_without_a_time_is_refused() -> None:
    with pytest.raises(example.PipelineError, match="time stamp"):
        example.hour_of(b"no time here")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_pipeline_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--limit", "500", "--store", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all three counts agree" in done.stdout
    assert "Traceback" not in done.stderr and "log level" not in done.stderr
