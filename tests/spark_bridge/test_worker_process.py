"""What the source does to Spark's Python worker while it reads."""

import signal
import subprocess
import sys

import pytest

pytest.importorskip("pyspark.sql")
HEAD = """
import gc, os
from pyspark_ringmq.worker_process import given_to_spark
reading, writing = os.pipe()
os.close(reading)
"""


def run(task: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HEAD + task], capture_output=True, text=True, timeout=100)


def test_a_pipe_that_breaks_while_spark_has_a_batch_ends_the_process_without_a_word() -> None:
    done = run("for _ in given_to_spark(iter([1])): os.write(writing, b'x')")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGPIPE, "", "")


def test_a_pipe_that_breaks_elsewhere_is_an_error_as_ever() -> None:
    done = run("""
def batches():
    yield 1
    try:
        os.write(writing, b'x')
    except BrokenPipeError:
        yield 2
print(list(given_to_spark(batches())))
os.write(writing, b'x')
""")
    assert done.stdout == "[1, 2]\n" and "BrokenPipeError" in done.stderr


def test_what_a_first_task_has_imported_is_not_looked_at_again() -> None:
    done = run("""
list(given_to_spark(iter([1])))
frozen = gc.get_freeze_count()
kept = list(range(1000)), [[] for _ in range(1000)]
list(given_to_spark(iter([1])))
print(frozen > 10_000, gc.get_freeze_count() <= frozen)
""")
    assert done.stdout == "True True\n", done.stderr
