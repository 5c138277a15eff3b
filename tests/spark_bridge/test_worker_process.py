"""What the source does to Spark's Python worker while it reads."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

pytest.importorskip("pyspark.sql")
import pyspark_ringmq

from tests.waiting import wait_until

HEAD = """
import gc, os
from pyspark_ringmq.worker_process import task_batches
reading, writing = os.pipe()
os.close(reading)
"""


def run(task: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HEAD + task], capture_output=True, text=True, timeout=200)


def test_a_pipe_that_breaks_while_spark_has_a_batch_ends_the_process_without_a_word() -> None:
    done = run("for _ in task_batches(iter([1])): os.write(writing, b'x')")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGPIPE, "", "")


def test_a_pipe_that_breaks_elsewhere_is_an_error_as_ever() -> None:
    done = run("""
def batches():
    yield 1
    try:
        os.write(writing, b'x')
    except BrokenPipeError:
        yield 2
print(list(task_batches(batches())))
os.write(writing, b'x')
""")
    assert done.stdout == "[1, 2]\n" and "BrokenPipeError" in done.stderr


def test_what_a_first_task_has_imported_is_not_looked_at_again() -> None:
    done = run("""
list(task_batches(iter([1])))
frozen = gc.get_freeze_count()
kept = list(range(1000)), [[] for _ in range(1000)]
list(task_batches(iter([1])))
print(frozen > 10_000, gc.get_freeze_count() <= frozen)
""")
    assert done.stdout == "True True\n", done.stderr


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


# what the JVM sends to have the data sources looked up: Python's version, files, broadcasts, settings, end of stream
LOOKUP = text("{}.{}".format(*sys.version_info)) + text("") + struct.pack(">i?iii", 0, False, 0, 0, -4)


def number(answers: IO[bytes]) -> int:
    return int(struct.unpack(">i", answers.read(4))[0])


def block(answers: IO[bytes]) -> bytes:
    return answers.read(number(answers))


def one_lookup_and_no_more(*, then: bytes) -> str:
    """What Spark's own daemon and its worker say when the worker gets one lookup, `then`, and a closed socket."""
    path = Path(pyspark_ringmq.__file__).parents[1]  # an editable install hides it from lookups
    sockets = tempfile.mkdtemp()  # a socket's path has room for 107 characters: a test's own folder may be too deep
    settings = {
        "PYTHONPATH": str(path),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "SPARK_REUSE_WORKER": "1",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **settings},
    )  # fmt: skip
    try:
        assert daemon.stdout is not None
        with socket.socket(socket.AF_UNIX) as spark:
            spark.settimeout(60)
            spark.connect(block(daemon.stdout))
            with spark.makefile("rb") as answers:
                worker = number(answers)
                spark.sendall(LOOKUP)
                found = [(block(answers), block(answers)) for _ in range(number(answers))]
                assert b"ringmq" in dict(found)
                _accumulators = [block(answers) for _ in range(number(answers))]
                assert number(answers) == -4  # end of stream: Spark keeps the worker
                spark.sendall(then)
        wait_until(lambda: not Path(f"/proc/{worker}").exists(), "the worker has ended")
        return daemon.communicate(timeout=60)[1].decode()  # which closes its input: it ends
    finally:
        daemon.kill()
        shutil.rmtree(sockets)


def test_an_idle_worker_ends_without_a_word_when_spark_stops() -> None:
    assert one_lookup_and_no_more(then=b"") == ""


def test_a_worker_whose_socket_closes_in_a_task_says_so() -> None:
    assert "BrokenPipeError" in one_lookup_and_no_more(then=LOOKUP[:9])
