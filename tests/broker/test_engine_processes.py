"""Brokers where io_uring is refused: they run on epoll, whole, and say so."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from tests.broker.test_processes import SMALL, serve_command
from tests.commands import run_ringmq
from tests.raw_client import RawClient
from tests.waiting import wait_dispatched, wait_until

FILTER = Path(__file__).with_name("seccomp.py")


def under(filters: str) -> list[str]:
    """The words before a command that runs it under a filter."""
    return [sys.executable, str(FILTER), filters]


def threads(pid: int) -> list[str]:
    """The names of a process's threads."""
    return sorted(path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm"))


def is_ready(broker: RunningBroker) -> bool:
    try:
        with urllib.request.urlopen(f"{broker.metrics_url}/ready") as answer:
            return bool(json.load(answer)["ready"])
    except urllib.error.HTTPError:
        return False


@pytest.fixture(scope="module")
def fallen_back(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose filter refuses io_uring as container runtimes do."""
    store = tmp_path_factory.mktemp("refused") / "store"
    with RunningBroker(
        store, {**SMALL, "flushDiskType": "SYNC_FLUSH"}, prefix=under("io_uring=EPERM"),
        environment={"RINGMQ_ENGINE": "auto"},
    ) as broker:  # fmt: skip
        yield broker
        assert broker.stop() == 0


def test_a_broker_without_io_uring_says_so_in_one_line(fallen_back: RunningBroker) -> None:
    lines = [line for line in fallen_back.log_tail(100_000).splitlines() if "io_uring" in line]
    assert len(lines) == 1
    assert " WARNING " in lines[0] and "engine epoll, slower than io_uring: io_uring is refused: " in lines[0]
    assert "io_uring_setup answered EPERM" in lines[0]


def test_health_metrics_and_doctor_name_the_engine(fallen_back: RunningBroker) -> None:
    with urllib.request.urlopen(f"{fallen_back.metrics_url}/health") as answer:
        engine = json.load(answer)["engine"]
    assert engine["name"] == "epoll" and engine["why"].startswith("io_uring is refused: io_uring_setup answered EPERM")
    with urllib.request.urlopen(f"{fallen_back.metrics_url}/metrics") as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("ringmq_engine{")]
    assert len(lines) == 1 and lines[0].endswith(" 1")
    assert 'engine="epoll"' in lines[0] and 'fallback="true"' in lines[0]
    told = json.loads(run_ringmq("doctor", "--store", str(fallen_back.store), "-o", "json").stdout)
    findings = {finding["name"]: finding for finding in told if finding["area"] == "engine"}
    assert findings["in use"]["level"] == "warn" and findings["in use"]["value"].startswith(
        "epoll: io_uring is refused"
    )


def test_sends_and_pulls_work_on_epoll(fallen_back: RunningBroker) -> None:
    client = RawClient(fallen_back.address)
    for number in range(20):
        assert client.send("Refused", b"%d" % number).code == 0
    wait_dispatched(fallen_back.store)
    assert client.pull("Refused").code == 0
    assert "ringmq-sync" in threads(fallen_back.worker_pids()["flush"])


def test_epoll_by_property_calls_nothing_of_io_uring(tmp_path: Path) -> None:
    """The filter kills a process that does."""
    settings = {**SMALL, "flushDiskType": "SYNC_FLUSH"}
    with RunningBroker(
        tmp_path / "store", settings, prefix=under("io_uring=KILL"), environment={"RINGMQ_ENGINE": "epoll"}
    ) as broker:
        before = broker.worker_pids()
        client = RawClient(broker.address)
        assert client.send("Killed", b"text").code == 0
        wait_dispatched(broker.store)
        assert client.pull("Killed").code == 0
        assert "engine epoll: ringmqEngine = epoll" in broker.log_tail()
        assert before.items() <= broker.worker_pids().items()
        helped = {
            name for name, pid in broker.worker_pids().items() if {"ringmq-disk", "ringmq-sync"} & {*threads(pid)}
        }
        assert helped == {"flush"}, "readers have threads when there is something to read from disk"
        assert broker.stop() == 0


def test_io_uring_by_property_is_not_replaced(tmp_path: Path) -> None:
    command = [*under("io_uring_setup=EMFILE"), *serve_command(tmp_path / "store", "--set", "ringmqEngine=io_uring")]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert refused.returncode == 69
    lines = [line for line in refused.stderr.splitlines() if "io_uring_setup" in line]
    assert len(lines) == 1, refused.stderr
    assert "io_uring_setup answered EMFILE (Too many open files); raise the limit of open files" in lines[0]
    assert "or set ringmqEngine = auto or epoll" in lines[0]


@pytest.mark.io_uring
def test_the_profile_for_container_tools_allows_a_whole_broker(tmp_path: Path) -> None:
    """With io_uring, and nothing beside the profile's calls."""
    root = Path(__file__).parents[2]
    with RunningBroker(
        tmp_path / "store", SMALL, prefix=under(str(root / "packaging" / "seccomp.json")),
        environment={"RINGMQ_ENGINE": "io_uring"},
    ) as broker:  # fmt: skip
        client = RawClient(broker.address)
        assert client.send("Profiled", b"text").code == 0
        wait_dispatched(broker.store)
        assert client.pull("Profiled").code == 0
        with urllib.request.urlopen(f"{broker.metrics_url}/health") as answer:
            assert json.load(answer)["engine"]["name"] == "io_uring"
        assert broker.stop() == 0


def test_a_kernel_without_io_uring_and_populating_madvise_serves(tmp_path: Path) -> None:
    """As Linux 5.10 in a container. A replaced flush makes unsynced pages dirty again without that madvise."""
    settings = {**SMALL, "flushIntervalCommitLog": 600_000, "flushCommitLogThoroughInterval": 600_000}
    with RunningBroker(
        tmp_path / "store", settings, prefix=under("io_uring=ENOSYS,populate=EINVAL"),
        environment={"RINGMQ_ENGINE": "auto"},
    ) as broker:  # fmt: skip
        client = RawClient(broker.address)
        assert client.send("Old", bytes(100_000)).code == 0
        flush = broker.worker_pids()["flush"]
        os.kill(flush, signal.SIGKILL)
        wait_until(lambda: broker.worker_pids().get("flush", flush) != flush, "flush is back")
        wait_until(lambda: is_ready(broker), "flush has opened its files")
        assert client.send("Old", b"more").code == 0
        wait_dispatched(broker.store)
        assert client.pull("Old").code == 0
        assert "store refuses writes" not in broker.log_tail()
        assert broker.stop() == 0
