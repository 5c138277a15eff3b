"""The SDK's examples run as they stand, each as a process, against a shared broker."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.client import Message, blocking
from tests.conformance.servers import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.timeout(180)


def run(name: str, *arguments: str) -> str:
    """What it prints."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_lines_of_python_can_be_typed_into_the_interpreter(ringmq_server: Server, topic: str) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    lines = readme.partition("```python\n")[2].partition("```")[0]
    for shown, own in (("127.0.0.1:9876", ringmq_server.namesrv), ("Greetings", topic), ("readers", f"G_{topic}")):
        assert shown in lines
        lines = lines.replace(shown, own)
    command = [sys.executable, "-i", "-q", "-c", ""]
    done = subprocess.run(command, input=lines + "\n", capture_output=True, text=True, timeout=60, check=False)
    assert "[b'hello']" in done.stdout, done.stderr
    assert "Error" not in done.stderr


def test_send_and_read(ringmq_server: Server, topic: str) -> None:
    said = run("send_and_read.py", "--namesrv", ringmq_server.namesrv, "--topic", topic, "--count", "5")
    assert said.startswith("sent 5")
    assert {line.partition(": ")[2] for line in said.splitlines()[1:]} == {
        f"order {n}, keys ['order-{n}']" for n in range(5)
    }


def test_send_and_read_prints_no_message_of_the_run_before(ringmq_server: Server, topic: str) -> None:
    arguments = ("--namesrv", ringmq_server.namesrv, "--topic", topic, "--count", "3")
    for _ in range(2):
        bodies = [line.split()[2] for line in run("send_and_read.py", *arguments).splitlines()[1:]]
        assert sorted(bodies) == ["0,", "1,", "2,"]


def test_ordered_steps(ringmq_server: Server, topic: str) -> None:
    for _ in range(2):
        said = run("ordered_steps.py", "--namesrv", ringmq_server.namesrv, "--topic", topic)
        assert said.splitlines() == [f"order-{n}: placed -> paid -> packed -> sent" for n in range(3)]


def test_lingering_batches(ringmq_server: Server, topic: str) -> None:
    said = run("lingering_batches.py", "--namesrv", ringmq_server.namesrv, "--topic", topic, "--count", "500")
    assert [line.partition(":")[0] for line in said.splitlines()] == ["linger 0 ms", "linger 5 ms"]


def test_a_worker_ends_well(ringmq_server: Server, topic: str) -> None:
    with blocking.Producer(ringmq_server.namesrv) as producer:
        producer.send_all([Message(topic, b"%d" % n) for n in range(100)])
    arguments = ("--namesrv", ringmq_server.namesrv, "--topic", topic, "--group", f"G_{topic}")
    handled: list[str] = []
    for _ in range(2):
        command = [sys.executable, str(EXAMPLES / "worker.py"), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            lines = iter(worker.stdout.readline, "")
            for line in lines:
                handled += [line.split()[1]] if line.startswith("handled") else []
                if len(handled) in (20, 100):
                    break
            os.kill(worker.pid, signal.SIGTERM)
            rest = list(lines)
            handled += [line.split()[1] for line in rest if line.startswith("handled")]
            assert worker.wait(60) == 0
        assert rest[-1].startswith("ended after")
    assert sorted(handled, key=int) == [str(n) for n in range(100)]  # each of them once


def test_a_pool_of_workers(server: Server, topic: str) -> None:
    said = run("worker_pool.py", "--namesrv", server.namesrv, "--topic", topic, "--count", "200").splitlines()
    assert said[0] == "sent 200 jobs to 4 queues"
    workers, _, rest = said[1].partition(" ")
    assert rest == "workers did 200 jobs, 20 of them at the second try"
    assert int(workers) > 4  # more than queues


def test_ask_and_answer(server: Server, topic: str) -> None:
    for _ in range(2):
        said = run("ask_and_answer.py", "--namesrv", server.namesrv, "--topic", topic)
        assert said.splitlines() == ["one -> ONE", "two -> TWO", "three -> THREE"]


def test_transfer(server: Server, topic: str) -> None:
    for _ in range(2):
        said = run("transfer.py", "--namesrv", server.namesrv, "--topic", topic)
        assert said.splitlines() == [
            "transfer of 50: COMMIT",
            "transfer of 500: ROLLBACK",
            "transfer of 100: COMMIT",
            "read: [50, 100]",
        ]


def test_the_tests_of_a_program(ringmq_server: Server) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "ringmq.testing.plugin"]
    command += [str(EXAMPLES / "test_orders.py"), "--rootdir", str(EXAMPLES), "-c", "/dev/null"]
    command += ["--ringmq-namesrv", ringmq_server.namesrv]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
