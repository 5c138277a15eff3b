"""Health of the broker, read from shared memory alone: no requests, no waits.

Readiness is one read. Liveness of a worker needs two reads (`Heartbeats`), because a stopped or hung process leaves its
state word unchanged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import waits_for_replicas
from ringmq.broker.control_report import ControlReport, read_report
from ringmq.broker.engine_choice import engine_of
from ringmq.broker.reader_watch import short_readers
from ringmq.broker.replication.view import HOLD_WORDS, REPLICATION_WORDS
from ringmq.ha.replica_policy import ReplicaPolicy
from ringmq.ha.settings import HaSettings
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import follows_master, is_master, tenure_of
from ringmq.ipc.worker import STATE_SERVING
from ringmq.ipc.worker_blocks import workers
from ringmq.native import lib
from ringmq.remoting.flags import Perm

SILENT_AFTER_MS = 10_000
"""Time without a turn after which a worker counts as silent. Every worker turns at least four times a second, but a
write to a bad disk may take seconds.
"""
FAULT_WORDS = {
    lib.RMQ_FAULT_FSYNC: "fsync of the commit log failed",
    lib.RMQ_FAULT_DISK_FULL: "the disk is full",
    lib.RMQ_FAULT_CREATE_FILE: "the next log file cannot be made",
    lib.RMQ_FAULT_QUEUE_IO: "a consume queue or index cannot be written",
    lib.RMQ_FAULT_QUEUE_SYNC: "fsync of a consume queue or index file failed",
}


def fault_text(fault: int, number: int) -> str:
    """The reason why the store refuses writes, for log and health."""
    cause = f": {os.strerror(number)}" if number else ""
    return (
        f"the store refuses writes ({FAULT_WORDS.get(fault, f'fault {fault}')}){cause}; see Faults in docs/operating.md"
    )


class Readiness(Struct, frozen=True):
    """The broker's ability to serve."""

    ready: bool
    """True if it serves reads, accepts writes (not needed on a slave), and a name server knows it."""
    reasons: list[str]
    """Reasons why it is not ready, and other problems: one short line each."""
    serving: bool = True
    """True if every worker is up and all recovered records can be read."""
    writable: bool = True
    """True if sends are accepted."""


def readiness(plane: Plane, config: BrokerConfig) -> Readiness:
    """The readiness from one read of the broker's plane and of control's report."""
    report = read_report(plane.name)
    down = list(_workers_down(plane))
    refused = list(_why_no_writes(plane, config, report))
    unknown, notes = _name_servers(config, report)
    notes += [report.role] if report is not None and report.role else []
    notes += _replication_notes(plane, config)
    notes += (
        _replaced_package(plane)
        + _memory_notes(plane)
        + short_readers(plane, time.monotonic_ns() // 1_000_000)
        + _optional_workers(plane)
    )
    return Readiness(
        ready=not (down or refused or unknown),
        reasons=[*down, *refused, *unknown, *notes],
        serving=not down,
        writable=not refused and is_master(plane.watermarks),
    )


def _workers_down(plane: Plane) -> Iterator[str]:
    for worker in workers(plane):
        if worker.is_optional or worker.is_dormant:
            continue
        if not worker.pid:
            yield f"worker {worker.name} is not running"
        elif worker.state != STATE_SERVING:
            yield f"worker {worker.name} is starting or stopping"
    marks = plane.watermarks
    if marks.dispatched_offset < plane.header.recovered_end and not marks.dispatch_fault:
        left = plane.header.recovered_end - marks.dispatched_offset
        yield f"{left} recovered bytes cannot be read yet"


def _why_no_writes(plane: Plane, config: BrokerConfig, report: ControlReport | None) -> Iterator[str]:
    marks, serves = plane.watermarks, is_master(plane.watermarks)
    faults = (marks.store_fault, marks.store_fault_errno), (marks.dispatch_fault, marks.dispatch_fault_errno)
    yield from (fault_text(fault, number) for fault, number in faults if fault)
    if marks.write_hold:
        yield f"writes are held: {HOLD_WORDS.get(marks.write_hold, 'by an operator')} (ringmq ha status)"
    permission = config.broker_permission if report is None else report.permission
    if not permission & Perm.WRITE and serves:
        yield f"writes are refused: brokerPermission = {permission}"
    sends_from_ms = config.start_accept_send_request_time_stamp if report is None else report.sends_from_ms
    if sends_from_ms > time.time_ns() // 1_000_000 and serves:
        yield f"writes are refused before {sends_from_ms} ms (startAcceptSendRequestTimeStamp)"
    if not permission & Perm.READ:
        yield f"reads are refused: brokerPermission = {permission}"
    if waits_for_replicas(config) and marks.replication_state:
        word = REPLICATION_WORDS.get(marks.replication_state, str(marks.replication_state))
        yield f"writes that wait for replicas are refused: replication is {word} ({marks.in_sync_replicas} in sync)"


def _name_servers(config: BrokerConfig, report: ControlReport | None) -> tuple[list[str], list[str]]:
    """(reasons why no client finds the broker, other problems)."""
    if not config.namesrv_addr:
        return [], []
    if report is None:
        return ["this broker is not registered at any name server yet"], []
    silent = [server for server in report.name_servers if not server.registered or server.failures]
    lines = [
        f"name server {server.address} "
        + (f"does not answer ({server.failures} tries)" if server.failures else "has not answered yet")
        for server in silent
    ]
    if all(not server.registered for server in report.name_servers):
        return [*lines, "this broker is registered at no name server"], []
    return [], lines


def _replication_notes(plane: Plane, config: BrokerConfig) -> list[str]:
    if follows_master(plane.watermarks):
        connected = plane.header.replication.link.state == lib.RMQ_HA_TRANSFER
        return [] if connected else ["the master is not connected"]
    wanted = ReplicaPolicy.from_settings(HaSettings.from_properties(config.as_properties())).need
    in_sync = max(1, int(plane.watermarks.in_sync_replicas))
    return [f"replication is degraded: {in_sync} of {wanted} replicas in sync"] if in_sync < wanted else []


def _replaced_package(plane: Plane) -> list[str]:
    """A note if no worker can be started with the broker's build any more."""
    if not plane.role(lib.RMQ_ROLE_SUPERVISOR).flags & lib.RMQ_ROLE_REPLACED:
        return []
    return ["the installed package was replaced: restart the broker, the next death of a worker ends it"]


def _memory_notes(plane: Plane) -> list[str]:
    header = plane.header
    if not header.memory.level:
        return []
    used = (header.memory.private_bytes + header.memory.shared_bytes) >> 20
    return [f"new connections and clients are refused: memory is {used} of {header.memory.max_bytes >> 20} MiB"]


class _Beat(Struct):
    generation: int
    progress: int
    seen_ms: int


class Heartbeats(Struct):
    """Remembers the last turn of each worker's loop. Call `observe` at least every second."""

    beats: dict[str, _Beat] = field(default_factory=dict)

    def observe(self, plane: Plane, now_ms: int) -> None:
        """Read the progress of all workers. `now_ms`: of the monotonic clock."""
        for worker in workers(plane):
            known = self.beats.get(worker.name)
            if worker.is_dormant:
                self.beats.pop(worker.name, None)
                continue
            if known is None or (known.generation, known.progress) != (worker.generation, worker.progress):
                self.beats[worker.name] = _Beat(worker.generation, worker.progress, now_ms)

    def ages_ms(self, now_ms: int) -> dict[str, int]:
        """Worker -> time since its last turn."""
        return {name: now_ms - beat.seen_ms for name, beat in self.beats.items()}

    def silent(self, now_ms: int, limit_ms: int = SILENT_AFTER_MS) -> dict[str, int]:
        """Worker -> time since its last turn, for those silent for longer than `limit_ms`."""
        return {name: age for name, age in self.ages_ms(now_ms).items() if age > limit_ms}


def liveness(plane: Plane, beats: Heartbeats, now_ms: int) -> dict[str, Any]:
    """The body of /health: `alive`, `degraded` (a replaced package, readers short of memory, faulty optional
    workers), the role and its epoch, the engine and why it was chosen, and each worker's state.

    An optional worker never changes `alive`.
    """
    ages, silent = beats.ages_ms(now_ms), beats.silent(now_ms)
    rows, alive = {}, True
    for worker in workers(plane):
        state = "dormant" if worker.is_dormant else "running" if worker.pid else "down"
        rows[worker.name] = {
            "pid": worker.pid,
            "starts": worker.generation,
            "deaths": worker.deaths,
            "state": state,
            "silent_ms": 0 if worker.is_dormant else ages.get(worker.name, 0),
            "optional": worker.is_optional,
        }
        alive = alive and (worker.is_optional or (state != "down" and worker.name not in silent))
    degraded = [
        *_replaced_package(plane),
        *short_readers(plane, now_ms),
        *_optional_workers(plane),
        *_silent_optional(plane, silent),
    ]
    engine, tenure = engine_of(plane), tenure_of(plane.watermarks)
    return {
        "alive": alive,
        "degraded": degraded,
        "role": {"state": tenure.state.name.lower(), "epoch": tenure.epoch},
        "engine": {"name": engine.name, "why": engine.why},
        "workers": rows,
    }


def _optional_workers(plane: Plane) -> list[str]:
    """The problems of optional workers."""
    return [
        f"worker {worker.name} keeps dying ({worker.deaths} deaths): see the broker's log"
        for worker in workers(plane)
        if worker.is_optional and worker.in_crash_loop
    ]


def _silent_optional(plane: Plane, silent: dict[str, int]) -> list[str]:
    return [
        f"worker {worker.name} has not turned its loop for {silent[worker.name] // 1000} s"
        for worker in workers(plane)
        if worker.is_optional and worker.pid and worker.name in silent
    ]
