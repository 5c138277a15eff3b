"""`session()` in a process of its own: the lines on standard error, and errors of one line."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
JOB = Path(__file__).with_name("session_job.py")


@pytest.fixture(scope="module")
def job(golden_store: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(JOB), str(golden_store)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def line(done: subprocess.CompletedProcess[str], name: str) -> str:
    (found,) = [text for text in done.stdout.splitlines() if text.startswith(f"{name}: ")]
    return found


def test_java_does_not_warn_of_incubator_modules(job: subprocess.CompletedProcess[str]) -> None:
    assert "incubator" not in job.stdout + job.stderr


def test_options_of_kafkas_client_are_logged_once_a_read_or_write(job: subprocess.CompletedProcess[str]) -> None:
    """However many tasks, actions and micro-batches there are."""
    assert int(line(job, "partitions").split()[1]) >= 4
    assert int(line(job, "batches").split()[1]) > 1
    logged = [text for text in job.stderr.splitlines() if "kafka." in text]
    assert sorted(logged) == [
        f"ignored options of Kafka's client: {name}"
        for name in ("kafka.acks", "kafka.group.id", "kafka.max.poll.records")
    ]


def test_a_save_without_append_is_told_to_append(job: subprocess.CompletedProcess[str]) -> None:
    """Spark refuses the default mode for Python sources by itself."""
    default = line(job, "default mode")
    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in default and '"Append"' in default
    assert ".mode('append')" in line(job, "overwrite").replace("\\'", "'")


def test_errors_have_no_traceback(job: subprocess.CompletedProcess[str]) -> None:
    assert "no connection to name server 127.0.0.1:1" in line(job, "append")
    assert "unknown option 'stroe'" in line(job, "misspelled").replace("\\'", "'")
    assert "Traceback" not in job.stdout
