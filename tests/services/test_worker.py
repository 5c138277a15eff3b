"""The life of the worker `services`: no process until a request or open work needs it, and none when it has rested."""

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringmq.client.errors import BrokerError
from ringmq.client.producing.staged_writes import describe_staging
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name, segment_path
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData
from tests.broker.test_processes import SMALL
from tests.raw_client import RawClient
from tests.services.late_start import ask_started
from tests.staging import Stager, bodies_of, make_topic, messages_of
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
ROLE = lib.RMQ_ROLE_SERVICES
FAST = {**SMALL, "flushConsumerOffsetInterval": 20, "flushCommitLogLeastPages": 0}


def state_of(broker: RunningBroker) -> str:
    """Of the worker, by /health."""
    with urllib.request.urlopen(broker.metrics_url + "/health", timeout=60) as answer:
        return str(json.loads(answer.read())["workers"]["services"]["state"])


def is_serving(broker: RunningBroker) -> bool:
    plane = Plane.open(plane_name(broker.store))  # what it maps goes with it
    return bool(plane.role(ROLE).state == STATE_SERVING)


@contextmanager
def resting(store: Path) -> Iterator[RunningBroker]:
    """A broker whose `services` rests after a moment."""
    prefix = [sys.executable, str(ROOT / "tests" / "services" / "resting_worker.py")]
    with RunningBroker(store, FAST, prefix=prefix, environment={"PYTHONPATH": str(ROOT)}) as broker:
        yield broker


def commit(broker: RunningBroker, batch: int, rows: list[bytes]) -> None:
    with Stager(broker) as stager:
        stager.commit("q", batch, stager.stage("q", batch, [("T", 0, rows)]))


def test_a_broker_without_staged_writes_has_no_such_process(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        make_topic(broker.address, "T", 1)
        with RawClient(broker.address) as client:
            assert client.send("T", b"ordinary").code == 0
        assert "services" not in broker.worker_pids() and state_of(broker) == "dormant"
        assert arena_blocks(broker) == 0
        assert describe_staging(broker.address) is not None
        wait_until(lambda: is_serving(broker), "the first request starts it")
        wait_until(lambda: state_of(broker) == "running", "the supervisor's next turn tells it")
        commit(broker, 0, [b"row"])
        assert arena_blocks(broker) > 0, "it does not rest so soon"
        assert broker.stop() == 0


def test_the_heartbeat_of_a_push_consumer_starts_it(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        with RawClient(broker.address) as client:
            beat = HeartbeatData("client", consumers=[ConsumerData("G")]).encode()
            client.send_request(RequestCode.HEART_BEAT, {}, beat)
            wait_until(lambda: is_serving(broker), "a message may fail at any time")
        assert broker.stop() == 0


def arena_blocks(broker: RunningBroker) -> int:
    """Memory that the arena of its port takes."""
    plane = Plane.open(plane_name(broker.store))
    return segment_path(plane.name, f"arena{plane.port_of(ROLE)}").stat().st_blocks


def test_it_rests_and_the_next_request_finds_what_was_committed(tmp_path: Path) -> None:
    with resting(tmp_path / "store") as broker:
        make_topic(broker.address, "T", 1)
        for batch in range(3):
            commit(broker, batch, [b"%d" % batch])
            wait_until(lambda: "services" not in broker.worker_pids(), "it has nothing to do and ends")
            wait_until(lambda: arena_blocks(broker) == 0, "what rests holds no memory")
            commit(broker, batch, [b"again"])
        wait_until(lambda: len(bodies_of(broker.address, "T", 1)) == 3, "all is readable")
        assert bodies_of(broker.address, "T", 1) == [b"0", b"1", b"2"]
        wait_until(lambda: state_of(broker) == "dormant", "a rest is no death")
        plane = Plane.open(plane_name(broker.store))
        assert plane.role(ROLE).deaths == 0
        assert broker.stop() == 0


def test_requests_that_meet_its_end_are_answered(tmp_path: Path) -> None:
    """A request may come at any moment of a rest: between the last look and the end of the process, too."""
    with resting(tmp_path / "store") as broker:
        answered, stop = [0], threading.Event()

        def ask() -> None:
            with RawClient(broker.address) as client:
                while not stop.is_set():
                    answer = client.ask(RequestCode.STAGED_WRITES, {"operation": "describe"})
                    answered[0] += answer.code == 0
                    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY)
                    stop.wait(0.2 + answered[0] % 8 * 0.05)

        plane = Plane.open(plane_name(broker.store))
        asker = threading.Thread(target=ask)
        asker.start()
        try:
            wait_until(lambda: plane.role(ROLE).generation >= 8, "it has rested and started several times")
        finally:
            stop.set()
            asker.join()
        assert answered[0] >= 8 and plane.role(ROLE).deaths == 0


@pytest.mark.parametrize("has_table", [True, False])
def test_it_starts_with_the_broker_when_the_log_holds_an_open_commit(tmp_path: Path, *, has_table: bool) -> None:
    """Without the table: as on a slave that is made master, which has the log alone."""
    store = tmp_path / "store"
    with RunningBroker(store, FAST) as broker:
        make_topic(broker.address, "T", 1)
        with Stager(broker) as stager:
            stager.commit("q", 0, stager.stage("q", 0, [("T", 0, [b"a"]), ("T", 0, [b"b"])]))
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) == 2, "both chunks are readable")
        cut = messages_of(broker.address, "T", 1)[1].commit_log_offset
        broker.kill_all()
    for name in () if has_table else ("ringmqStagedWrites.json", "ringmqStagedWrites.json.bak"):
        (store / "config" / name).unlink(missing_ok=True)
    log = store / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:cut].ljust(FAST["mappedFileSizeCommitLog"], b"\0"))
    with RunningBroker(store, FAST) as broker:
        wait_until(lambda: bodies_of(broker.address, "T", 1) == [b"a", b"b"], "the rest is published, nobody asks")
        wait_until(lambda: not saved_commits_open(store), "the table is saved")
        assert broker.stop() == 0
    with RunningBroker(store, FAST) as broker:
        assert "services" not in broker.worker_pids(), "nothing is open any more"


def saved_commits_open(store: Path) -> bool:
    """By the snapshot: its first record to replay is not behind the last one."""
    path = store / "config" / "ringmqStagedWrites.json"
    queue = store / "consumequeue" / "rmq_sys_RINGMQ_COMMITS" / "0" / f"{0:020d}"
    records = len(queue.read_bytes().rstrip(b"\0")) // 20 + 1 if queue.exists() else 0
    return not path.exists() or json.loads(path.read_text())["replayFrom"] < min(records, 2)


def test_a_permission_that_control_changes_holds_for_the_next_request(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SMALL) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        for batch in range(3):
            commit(broker, batch, [b"%d" % batch])
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n").code == 0
            answer = ask_started(client, RequestCode.STAGED_WRITES, {"operation": "describe"})
            assert answer.code == ResponseCode.NO_PERMISSION and "forbidden" in (answer.remark or "")
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n").code == 0


def test_a_worker_that_keeps_dying_costs_answers_and_not_the_broker(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SMALL) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        plane = Plane.open(plane_name(broker.store))
        for death in range(1, 4):
            assert describe_staging(broker.address) is not None
            pid = broker.worker_pids()["services"]
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: plane.role(ROLE).deaths == death, "its death is seen")  # noqa: B023 (called within)
        wait_until(lambda: is_serving(broker), "it is started again")
        assert client.send("T", b"ordinary").code == 0
        with urllib.request.urlopen(broker.metrics_url + "/health", timeout=60) as answer:
            told = json.loads(answer.read())
        assert told["alive"] and told["workers"]["services"]["deaths"] == 3
        commit(broker, 0, [b"row"])
        with pytest.raises(BrokerError), Stager(broker) as stager:
            stager.commit("q", 1, stager.stage("q", 1, [("Unknown", 0, [b"x"])]))
        assert broker.stop() == 0


def test_a_sigterm_from_elsewhere_is_no_rest(tmp_path: Path) -> None:
    """An open commit may be under way: the worker is replaced, as after any death."""
    with RunningBroker(tmp_path / "store", SMALL) as broker:
        make_topic(broker.address, "T", 1)
        commit(broker, 0, [b"row"])
        plane = Plane.open(plane_name(broker.store))
        pid = broker.worker_pids()["services"]
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: plane.role(ROLE).deaths == 1, "its end is a death")
        wait_until(lambda: is_serving(broker) and broker.worker_pids()["services"] != pid, "it is started again")
        commit(broker, 1, [b"another"])
        assert broker.stop() == 0
