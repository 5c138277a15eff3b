"""The log lines and health notes when read workers close connections for want of memory or places."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.health import Heartbeats, liveness, readiness
from ringmq.broker.reader_watch import HOST, KINDS, PARTIAL, SHORTAGE, ReaderWatch, ReaderWatchCore, cause
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.ipc.worker_blocks import publish_workers, workers
from ringmq.ipc.workers import WORKERS
from ringmq.native import lib


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    name = f"ringmq-test-{uuid.uuid4().hex}"
    plane = Plane.create(name, Capacity(1024, 4096, 1024, 1024, 4096), tmp_path.stat(), 1)
    publish_workers(plane, WORKERS.rows(1), {"metrics", "services", "delay"})
    for worker in workers(plane):
        if worker.name != "metrics":
            block = plane.role(worker.role)
            block.pid, block.generation, block.state = os.getpid(), 1, 2
    yield plane
    remove_segments(name)


def test_each_kind_has_one_line_a_minute_with_all_that_were_closed() -> None:
    core = ReaderWatchCore(lambda kind: f"of kind {kind}")

    def lines(shortage: int, host: int, now_ms: int) -> list[str]:
        return list(core.step({"read-0": {SHORTAGE: shortage, HOST: host}}, now_ms))

    assert lines(0, 0, 0) == []
    assert lines(7, 0, 1000) == [f"worker read-0 closed 7 of kind {SHORTAGE} (docs/limits.md)"]
    assert lines(9, 2, 2000) == [f"worker read-0 closed 2 of kind {HOST} (docs/limits.md)"]
    assert lines(12, 2, 60_000) == []
    assert lines(12, 2, 61_000) == [f"worker read-0 closed 5 of kind {SHORTAGE} (docs/limits.md)"]
    assert lines(12, 2, 200_000) == []


def test_a_replacement_counts_from_zero() -> None:
    core = ReaderWatchCore(lambda kind: "x")
    assert len(list(core.step({"read-0": {PARTIAL: 5}}, 0))) == 1
    assert list(core.step({"read-0": {PARTIAL: 3}}, 100_000)) == ["worker read-0 closed 3 x (docs/limits.md)"]


def test_every_kind_names_a_property() -> None:
    assert all("ringmq" in cause(kind, BrokerConfig()) for kind in KINDS)


def test_a_shortage_is_told_in_the_log_and_by_health_and_ready(plane: Plane) -> None:
    now_ms = time.monotonic_ns() // 1_000_000
    counters = plane.role(lib.RMQ_ROLE_READ).counters
    assert liveness(plane, Heartbeats(), now_ms)["degraded"] == []
    counters[lib.RMQ_READ_SHORT_MS] = now_ms - 2000
    counters[SHORTAGE] = 3
    told: list[str] = []
    watch = ReaderWatch(plane, BrokerConfig(), told.append)
    watch.tick(now_ms)
    watch.tick(now_ms + 1)
    assert len(told) == 1 and told[0].startswith("worker read-0 closed 3 connections to free memory")
    assert liveness(plane, Heartbeats(), now_ms)["degraded"][0].startswith("worker read-0 was short of memory")
    found = readiness(plane, BrokerConfig())
    assert found.ready and found.reasons[0].startswith("worker read-0 was short of memory for clients 2 s ago")
    assert liveness(plane, Heartbeats(), now_ms + 60_000)["degraded"] == []
