"""The broker as a set of processes: who runs where, who dies with whom, what is refused at start."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ringmq.ipc.placement import place
from ringmq.ipc.segment import SHM_DIR, plane_name
from ringmq.ipc.watermark import read_watermarks, store_is_locked
from ringmq.loadtest.load.running import RunningBroker, wait_ended
from ringmq.remoting.codes import RequestCode
from tests.descriptors import descriptors_of
from tests.raw_client import RawClient, pull_fields
from tests.waiting import wait_until

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
DATA_PLANE = {"read-0", "write", "flush", "dispatch", "control", "namesrv"}


def serve_command(store: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "ringmq.cli.main", "serve", "--store", str(store), "--port", "0",
            "--namesrv-port", "0", *arguments]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """For tests that leave it as it was. It registers once a minute."""
    settings = {**SMALL, "registerNameServerPeriod": 60_000}
    with RunningBroker(tmp_path_factory.mktemp("broker") / "store", settings) as broker:
        yield broker
        assert broker.stop() == 0


def test_roles_are_processes_of_their_own_and_pinned_as_planned(broker: RunningBroker) -> None:
    workers = broker.worker_pids()
    assert set(workers) == DATA_PLANE
    plan = place(sorted(os.sched_getaffinity(0))).cpus_by_worker
    for name in DATA_PLANE - {"namesrv"}:
        assert os.sched_getaffinity(workers[name]) == set(plan[name]), name
    assert len(set(workers.values()) | {broker.process.pid}) == 7


def test_two_readers_are_two_processes(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {**SMALL, "ringmqReaders": 2}) as broker:
        assert {"read-0", "read-1"} <= set(broker.worker_pids())
        assert broker.stop() == 0


def test_a_clean_stop_leaves_no_marks(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        assert (store / "abort").exists()
        assert read_watermarks(store).live
        assert broker.stop() == 0
    assert not (store / "abort").exists()
    assert not list(SHM_DIR.glob(f"{plane_name(store)}-*"))
    assert not store_is_locked(store)


@pytest.mark.parametrize("name", sorted(DATA_PLANE))
def test_a_killed_worker_comes_back(broker: RunningBroker, name: str) -> None:
    old = broker.signal_worker(name, signal.SIGKILL)
    assert old is not None
    wait_until(lambda: broker.worker_pids().get(name, old) != old, f"{name} is started again")
    wait_until(lambda: set(broker.worker_pids()) == DATA_PLANE, "everybody is there")
    with RawClient(broker.address, 60) as client:
        wait_until(lambda: client.send("Back", b"x").code == 0, "it takes sends")


def test_routes_are_back_soon_after_the_name_server_was_killed(broker: RunningBroker) -> None:
    def has_route() -> bool:
        try:
            with RawClient(broker.namesrv) as client:
                return client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code == 0
        except (OSError, AssertionError):
            return False  # its successor is not there yet

    wait_until(has_route, "the broker has registered")
    broker.signal_worker("namesrv", signal.SIGKILL)
    wait_until(has_route, "the broker registers again before its period is over", timeout_s=30)


def test_workers_follow_settings_that_change_while_they_run(broker: RunningBroker) -> None:
    with RawClient(broker.address) as client:
        client.send("Live", b"first")
        pull = pull_fields("Live", 0, 1) | {"sysFlag": 2 | 4, "suspendTimeoutMillis": 600_000}
        body = b"longPollingEnable=false\nshortPollingTimeMills=100\nslaveReadEnable=true"
        with RawClient(broker.address) as held:
            held.send_request(RequestCode.PULL_MESSAGE, pull)
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body).code == 0
            answer = held.receive()
        assert answer is not None
        assert answer.code == 19
        assert client.ask(RequestCode.PULL_MESSAGE, pull).code == 19
        shown = client.ask(RequestCode.GET_BROKER_CONFIG, {}).body
        assert set(body.split()) <= set(shown.split())


def test_workers_end_with_their_supervisor_even_a_stopped_one(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SMALL) as broker:
        workers = {name: psutil.Process(pid) for name, pid in broker.worker_pids().items()}
        os.kill(workers["write"].pid, signal.SIGSTOP)
        broker.kill_supervisor()
        assert not wait_ended(workers.values(), 0)
    assert not store_is_locked(store)
    broker.close()


def test_the_store_stays_locked_while_any_worker_lives(broker: RunningBroker) -> None:
    """The lock is the open file's: a worker that outlives the supervisor keeps every other broker out."""
    workers = broker.worker_pids()
    assert {name for name, pid in workers.items() if descriptors_of(pid, broker.store / "lock")} == DATA_PLANE


def test_a_second_broker_on_the_store_is_refused(broker: RunningBroker) -> None:
    second = subprocess.run(serve_command(broker.store), capture_output=True, text=True, timeout=90, check=False)
    assert second.returncode != 0
    assert "another broker" in second.stderr and str(broker.store) in second.stderr


def test_a_taken_port_is_named(broker: RunningBroker, tmp_path: Path) -> None:
    command = [*serve_command(tmp_path / "two"), "--port", str(broker.port)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert second.returncode != 0
    assert f"cannot listen on 127.0.0.1:{broker.port}" in second.stderr
    command = [*serve_command(tmp_path / "three"), "--set", f"haListenPort={broker.port}"]
    third = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert third.returncode != 0
    assert f"cannot listen on 127.0.0.1:{broker.port}" in third.stderr
    assert "set haListenPort to a free port" in third.stderr


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("flushDiskTyp=SYNC_FLUSH", "flushDiskType"),
        ("syncFlushTimeout=0", "1..3600000"),
        ("flushDiskType=NEVER", "ASYNC_FLUSH or SYNC_FLUSH"),
    ],
)
def test_impossible_settings_are_refused_at_start(tmp_path: Path, setting: str, says: str) -> None:
    command = [*serve_command(tmp_path / "store"), "--set", setting]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert refused.returncode != 0
    assert setting.partition("=")[0] in refused.stderr
    assert says in refused.stderr
    with contextlib.suppress(FileNotFoundError):
        assert not store_is_locked(tmp_path / "store")
