"""Readiness and liveness from the words of a plane, and of a running broker."""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole, difference
from ringmq.broker.config.relations import changed
from ringmq.broker.control_report import (
    ClientCensus,
    ClientKind,
    ControlReport,
    NameServerState,
    ReportWriter,
    read_report,
)
from ringmq.broker.health import Heartbeats, liveness, readiness
from ringmq.broker.requests.request import Connection, Outbox
from ringmq.broker.requests.turns import finish
from ringmq.broker.tables.consumers import ConsumerTable, Member
from ringmq.broker.tables.producers import ProducerTable
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import plane_name, remove_segments
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.ipc.worker import STATE_SERVING
from ringmq.ipc.worker_blocks import publish_workers, workers
from ringmq.ipc.workers import WORKERS, Start
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.heartbeat import ConsumerData
from ringmq.store.tenure_file import TenureRecord
from tests.waiting import wait_until

NAMED = changed(BrokerConfig(), {"namesrvAddr": "a:1;b:2"})


DORMANT = {row.name for row in WORKERS if row.is_optional and row.start is not Start.AT_ONCE}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    """A plane whose workers all serve."""
    name = f"ringmq-test-{uuid.uuid4().hex}"
    plane = Plane.create(name, Capacity(1024, 4096, 1024, 1024, 4096), tmp_path.stat(), 1)
    publish_workers(plane, WORKERS.rows(1), DORMANT)
    for worker in workers(plane):
        if worker.name not in DORMANT:
            block = plane.role(worker.role)
            block.pid, block.generation, block.state = os.getpid(), 1, 2
    yield plane
    remove_segments(name)


def test_a_broker_without_name_servers_is_ready(plane: Plane) -> None:
    found = readiness(plane, BrokerConfig())
    assert (found.ready, found.reasons, found.serving, found.writable) == (True, [], True, True)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("store_fault", lib.RMQ_FAULT_FSYNC, "fsync of the commit log failed"),
        ("dispatch_fault", lib.RMQ_FAULT_QUEUE_IO, "consume queue"),
        ("write_hold", lib.RMQ_HOLD_LONGER_SLAVE, "longer-slave"),
    ],
)
def test_a_broker_that_refuses_writes_says_why(plane: Plane, field: str, value: int, reason: str) -> None:
    setattr(plane.watermarks, field, value)
    found = readiness(plane, BrokerConfig())
    assert not found.ready and not found.writable and found.serving
    assert reason in found.reasons[0]


def test_a_dead_worker_and_one_that_starts_are_named(plane: Plane) -> None:
    plane.role(lib.RMQ_ROLE_WRITE).pid = 0
    plane.role(lib.RMQ_ROLE_READ).state = 1
    found = readiness(plane, BrokerConfig())
    assert not found.ready and not found.serving
    assert found.reasons == ["worker write is not running", "worker read-0 is starting or stopping"]


def test_what_was_recovered_has_to_be_readable(plane: Plane) -> None:
    plane.header.recovered_end = 500
    plane.watermarks.dispatched_offset = 200
    assert readiness(plane, BrokerConfig()).reasons == ["300 recovered bytes cannot be read yet"]
    plane.watermarks.dispatched_offset = 500
    assert readiness(plane, BrokerConfig()).ready


def test_one_name_server_that_answers_is_enough(plane: Plane) -> None:
    assert readiness(plane, NAMED).reasons == ["this broker is not registered at any name server yet"]
    writer = ReportWriter(plane.name)
    silent = NameServerState("b:2", False, 3)
    writer.publish(ControlReport(6, (NameServerState("a:1", True, 0), silent)), 0)
    found = readiness(plane, NAMED)
    assert found.ready and found.reasons == ["name server b:2 does not answer (3 tries)"]
    writer.publish(ControlReport(6, (NameServerState("a:1", False, 2), silent)), 500)
    assert readiness(plane, NAMED).ready, "not more than once a second"
    writer.publish(ControlReport(6, (NameServerState("a:1", False, 2), silent)), 1000)
    found = readiness(plane, NAMED)
    assert not found.ready and found.reasons[-1] == "this broker is registered at no name server"


def test_a_permission_that_was_taken_away_shows(plane: Plane) -> None:
    ReportWriter(plane.name).publish(ControlReport(4), 0)
    found = readiness(plane, BrokerConfig())
    assert not found.writable and "brokerPermission = 4" in found.reasons[0]


def test_the_role_is_shown_and_a_property_that_does_not_count_is_told(plane: Plane) -> None:
    plane.watermarks.tenure = Tenure(TenureState.SLAVE, 65537).word
    assert liveness(plane, Heartbeats(), 0)["role"] == {"state": "slave", "epoch": 65537}
    plane.header.replication.link.state = lib.RMQ_HA_TRANSFER
    line = difference(FirstRole.of(BrokerConfig()), TenureRecord(False, 65537))
    ReportWriter(plane.name).publish(ControlReport(role=line), 0)
    found = readiness(plane, BrokerConfig())
    assert found.ready and found.reasons == [line] and "brokerRole = ASYNC_MASTER" in line


def test_a_broker_that_takes_sends_later_says_so(plane: Plane) -> None:
    later = changed(BrokerConfig(), {"startAcceptSendRequestTimeStamp": str(1 << 60)})
    found = readiness(plane, later)
    assert not found.ready and not found.writable and "startAcceptSendRequestTimeStamp" in found.reasons[0]
    writer = ReportWriter(plane.name)
    writer.publish(ControlReport(sends_from_ms=1), 0)
    assert readiness(plane, later).ready, "changed since the start"
    writer.publish(ControlReport(sends_from_ms=1 << 60), 1000)
    assert not readiness(plane, BrokerConfig()).writable


def test_replication_degraded_is_told_and_lost_is_a_reason(plane: Plane) -> None:
    config = changed(BrokerConfig(), {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2"})
    found = readiness(plane, config)
    assert found.ready and found.reasons == ["replication is degraded: 1 of 2 replicas in sync"]
    plane.watermarks.replication_state = lib.RMQ_REPLICATION_LOST
    assert not readiness(plane, config).ready


def test_a_slave_without_its_master_is_ready_for_reads(plane: Plane) -> None:
    plane.watermarks.tenure = Tenure(TenureState.SLAVE).word
    found = readiness(plane, BrokerConfig())
    assert found.ready and not found.writable and found.reasons == ["the master is not connected"]


def test_a_worker_whose_loop_stands_still_is_silent(plane: Plane) -> None:
    beats = Heartbeats()
    beats.observe(plane, 0)
    for worker in workers(plane):
        plane.role(worker.role).progress += worker.name != "flush"
    beats.observe(plane, 15_000)
    assert beats.silent(20_000) == {"flush": 20_000}
    told = liveness(plane, beats, 20_000)
    assert not told["alive"] and told["workers"]["flush"]["silent_ms"] == 20_000
    plane.role(lib.RMQ_ROLE_FLUSH).generation += 1  # a successor counts as a sign of life
    beats.observe(plane, 20_000)
    assert not beats.silent(20_000)


def test_what_an_optional_worker_does_degrades_and_is_no_death_of_the_broker(plane: Plane) -> None:
    block, beats = plane.role(lib.RMQ_ROLE_METRICS), Heartbeats()
    block.generation, block.pid, block.state, block.flags = 1, os.getpid(), 2, lib.RMQ_ROLE_OPTIONAL

    def told(now_ms: int) -> dict[str, Any]:
        for worker in workers(plane):
            plane.role(worker.role).progress += worker.name != "metrics"
        beats.observe(plane, now_ms)
        return liveness(plane, beats, now_ms)

    assert (told(0)["alive"], told(0)["degraded"]) == (True, [])
    hung = told(15_000)
    assert hung["alive"] and hung["degraded"] == ["worker metrics has not turned its loop for 15 s"]
    block.pid, block.deaths, block.flags = 0, 7, lib.RMQ_ROLE_OPTIONAL | lib.RMQ_ROLE_CRASH_LOOP
    dying = told(16_000)
    assert dying["alive"] and dying["workers"]["metrics"]["state"] == "down"
    assert dying["degraded"] == ["worker metrics keeps dying (7 deaths): see the broker's log"]
    found = readiness(plane, BrokerConfig())
    assert found.ready and found.serving and found.reasons == dying["degraded"]
    plane.role(lib.RMQ_ROLE_SUPERVISOR).flags = lib.RMQ_ROLE_REPLACED
    note = "the installed package was replaced: restart the broker, the next death of a worker ends it"
    assert told(17_000)["degraded"][0] == readiness(plane, BrokerConfig()).reasons[0] == note
    plane.role(lib.RMQ_ROLE_SUPERVISOR).flags = 0
    block.flags = lib.RMQ_ROLE_OPTIONAL | lib.RMQ_ROLE_DORMANT
    resting = liveness(plane, beats, 30_000)
    assert (resting["workers"]["metrics"]["state"], resting["workers"]["metrics"]["silent_ms"]) == ("dormant", 0)
    assert (resting["alive"], resting["degraded"], readiness(plane, BrokerConfig()).reasons) == (False, [], [])
    assert told(30_001)["alive"], "the others have turned since"


def test_clients_are_counted_by_kind_and_in_slices() -> None:
    consumers, producers = ConsumerTable(Outbox()), ProducerTable()
    for number in range(500):
        connection = Connection(0, 1, number, 1, "127.0.0.1", 1, False)
        member = Member(f"c{number}", "JAVA" if number % 2 else "PYTHON", 477, 0)
        data = ConsumerData(f"g{number // 2}", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [], False)
        finish(consumers.register(connection, member, data, with_subscriptions=True))
        producers.register("p", connection, member)
    census = ClientCensus(consumers, producers)
    census.turn()
    census.turn()
    assert census.clients == (), "250 groups take more than one turn"
    census.turn()
    assert sum(kind.count for kind in census.clients) == 1000
    assert ClientKind("", "JAVA", 477, "", 250) in census.clients
    assert ClientKind("g7", "PYTHON", 477, "CONSUME_PASSIVELY", 1) in census.clients


def test_a_running_broker_is_ready_until_a_worker_stands_still(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(
        store, {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 100, "maxIndexNum": 400}
    ) as broker:
        plane = Plane.open(plane_name(store))
        config = changed(BrokerConfig(), {"namesrvAddr": broker.namesrv})
        wait_until(lambda: readiness(plane, config).ready, f"it is ready: {readiness(plane, config)}")
        report = read_report(plane.name)
        assert report is not None and report.name_servers[0].registered
        beats = Heartbeats()

        def silent() -> dict[str, int]:
            beats.observe(plane, time.monotonic_ns() // 1_000_000)
            return beats.silent(time.monotonic_ns() // 1_000_000, 2000)

        broker.signal_worker("dispatch", signal.SIGSTOP)
        wait_until(lambda: "dispatch" in silent(), "the stopped worker is seen")
        blocks = {worker.name: plane.role(worker.role) for worker in workers(plane)}
        running = [name for name, block in blocks.items() if block.state == STATE_SERVING]
        before = {name: int(blocks[name].progress) for name in running}
        turning = set(running) - {"dispatch"}
        wait_until(lambda: all(blocks[name].progress > before[name] for name in turning), "others turn without work")
        assert turning and blocks["dispatch"].progress == before["dispatch"]
        broker.signal_worker("dispatch", signal.SIGCONT)
        wait_until(lambda: not silent(), "it turns again")
        assert broker.stop() == 0
