"""The Spark examples run alone, and tell what their input holds."""

import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import access_log_pipeline as pipeline
import error_alerts
import kafka_job_ported
import pytest

EXAMPLES = Path(pipeline.__file__).parent


def output_of(example: str, *arguments: str, **environment: str) -> str:
    """What the example prints; AssertionError with all of it when it fails."""
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=580, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_job_itself_names_no_product() -> None:
    job = (kafka_job_ported.words_of, kafka_job_ported.batch_counts, kafka_job_ported.last_offsets)
    for part in (*job, kafka_job_ported.stream_counts):
        assert "ringmq" not in inspect.getsource(part)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_ported_kafka_job_counts_the_words() -> None:
    printed = output_of("kafka_job_ported.py", "--limit", "3000")
    lines = [*pipeline.read_lines(pipeline.DATA, 3000), b"warm-up"]
    words = Counter(word for line in lines for word in re.split("[^A-Za-z0-9]+", line.decode()) if word)
    shown = re.findall(r"^ +(\S+) +([\d,]+) in the batch, +([\d,]+) in the stream$", printed, re.MULTILINE)
    assert len(shown) == kafka_job_ported.SHOWN
    for word, in_batch, in_stream in shown:
        assert int(in_batch.replace(",", "")) == int(in_stream.replace(",", "")) == words[word]
    assert "batch and stream agree" in printed


def test_the_alerts_of_the_file_are_known() -> None:
    lines = pipeline.read_lines(pipeline.DATA, None)
    assert error_alerts.alerts_of(lines, "5xx").total() == 3
    assert error_alerts.alerts_of(lines, "4xx").total() == 217


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_alerts_reach_a_plain_consumer_once(tmp_path: Path) -> None:
    printed = output_of("error_alerts.py", "--limit", "2000", "--status", "4xx", "--store", str(tmp_path / "store"))
    expected = error_alerts.alerts_of(pipeline.read_lines(pipeline.DATA, 2000), "4xx").total()
    assert f"{expected} lines with status 4xx, {expected} alerts received" in printed
    assert "first run of the query looked at 2,001 messages" in printed
    assert "second run of the query looked at 0 messages" in printed


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_notebook_runs_and_leaves_its_plots(tmp_path: Path) -> None:
    printed = output_of("access_log_notebook.py", PLOTS=str(tmp_path))
    assert "10,000 requests of 1,753 clients" in printed
    plots = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(plots) == {"requests_per_hour.svg", "answer_sizes.svg", "busiest_clients.svg"}
    assert all(text.lstrip().startswith("<?xml") and "</svg>" in text for text in plots.values())
