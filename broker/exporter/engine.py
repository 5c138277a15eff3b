"""Families of the broker itself: requests by stage, connections, log, tables, replication, workers, health."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import master_role
from ringmq.broker.control_report import ControlReport
from ringmq.broker.engine_choice import engine_of
from ringmq.broker.exporter.http_counts import HttpPort
from ringmq.broker.exporter.labels import is_system_group, java_bool
from ringmq.broker.exporter.metric import LOCAL_DISK, STAGE_BOUNDS
from ringmq.broker.exporter.tables import Tables, live_groups, live_topics
from ringmq.broker.exporter.text import Page
from ringmq.broker.health import FAULT_WORDS, Readiness
from ringmq.broker.replication import refusals
from ringmq.broker.replication.view import ReplicationView, mono_ms
from ringmq.broker.requests.slow_requests import DROPPED_COUNTER
from ringmq.ha.replica_policy import ReplicaPolicy
from ringmq.ha.settings import HaSettings
from ringmq.ipc import namesrv_counters
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import follows_master
from ringmq.ipc.worker_blocks import Worker
from ringmq.ipc.workers import read_name
from ringmq.native import lib
from ringmq.remoting.codes import version_name

STAGES = (
    ("queued", lib.RMQ_ROLE_READ, lib.RMQ_READ_LATENCY_QUEUED),
    ("appended", lib.RMQ_ROLE_WRITE, lib.RMQ_WRITE_LATENCY_APPENDED),
    ("flushed", lib.RMQ_ROLE_FLUSH, lib.RMQ_FLUSH_LATENCY_FLUSHED),
    ("replicated", lib.RMQ_ROLE_FLUSH, lib.RMQ_FLUSH_LATENCY_REPLICATED),
    ("answered", lib.RMQ_ROLE_READ, lib.RMQ_READ_LATENCY_ANSWERED),
    ("control", lib.RMQ_ROLE_CONTROL, lib.RMQ_CONTROL_LATENCY_ANSWERED),
    ("services", lib.RMQ_ROLE_SERVICES, lib.RMQ_SERVICES_LATENCY_ANSWERED),
)
READ_COUNTERS = {
    "ringmq_connections": lib.RMQ_READ_CONNECTIONS,
    "ringmq_connections_accepted_total": lib.RMQ_READ_ACCEPTED,
    "ringmq_frames_total": lib.RMQ_READ_FRAMES,
    "ringmq_received_bytes_total": lib.RMQ_READ_BYTES_IN,
    "ringmq_sent_bytes_total": lib.RMQ_READ_BYTES_OUT,
    "ringmq_pulls_total": lib.RMQ_READ_PULLS,
    "ringmq_pulls_held": lib.RMQ_READ_PARKED,
    "ringmq_filtered_messages_total": lib.RMQ_READ_FILTERED,
    "ringmq_filter_limited_pulls_total": lib.RMQ_READ_FILTER_LIMITED,
    "ringmq_polls_held": lib.RMQ_READ_HELD,
    "ringmq_named_messages_total": lib.RMQ_READ_NAMED_MESSAGES,
    "ringmq_answers_unsent_total": lib.RMQ_READ_UNSENT,
    "ringmq_control_requests_total": lib.RMQ_READ_COLD,
    "ringmq_busy_answers_total": lib.RMQ_READ_OVERLOAD,
    "ringmq_receive_stalls_total": lib.RMQ_READ_STALLS,
    "ringmq_receive_buffers_free": lib.RMQ_READ_BUFFERS_FREE,
    "ringmq_frame_memory_free_bytes": lib.RMQ_READ_BLOCK_BYTES_FREE,
    "ringmq_answers_waiting_bytes": lib.RMQ_READ_ANSWER_BYTES,
    "ringmq_client_memory_bytes": lib.RMQ_READ_PRIVATE_BYTES,
}
CLOSED = {
    "client": lib.RMQ_READ_CLOSED_PEER,
    "frame": lib.RMQ_READ_CLOSED_FRAME,
    "idle": lib.RMQ_READ_CLOSED_IDLE,
    "slow": lib.RMQ_READ_CLOSED_SLOW,
    "partial": lib.RMQ_READ_CLOSED_PARTIAL,
    "memory": lib.RMQ_READ_CLOSED_MEMORY,
    "shortage": lib.RMQ_READ_CLOSED_SHORTAGE,
    "large": lib.RMQ_READ_CLOSED_LARGE,
    "full": lib.RMQ_READ_CLOSED_FULL,
    "host": lib.RMQ_READ_CLOSED_HOST,
    "answers": lib.RMQ_READ_CLOSED_ANSWERS,
    "control": lib.RMQ_READ_CLOSED_CONTROL,
}
ROLE_COUNTERS = {
    "ringmq_write_batches_total": (lib.RMQ_ROLE_WRITE, lib.RMQ_WRITE_BATCHES),
    "ringmq_write_requests_total": (lib.RMQ_ROLE_WRITE, lib.RMQ_WRITE_REQUESTS),
    "ringmq_write_refused_total": (lib.RMQ_ROLE_WRITE, lib.RMQ_WRITE_REFUSED),
    "ringmq_write_segment_waits_total": (lib.RMQ_ROLE_WRITE, lib.RMQ_WRITE_SEGMENT_WAITS),
    "ringmq_write_dispatch_waits_total": (lib.RMQ_ROLE_WRITE, lib.RMQ_WRITE_DISPATCH_WAITS),
    "ringmq_flush_syncs_total": (lib.RMQ_ROLE_FLUSH, lib.RMQ_FLUSH_SYNCS),
    "ringmq_flush_timeouts_total": (lib.RMQ_ROLE_FLUSH, lib.RMQ_FLUSH_TIMEOUTS),
    "ringmq_dispatch_records_total": (lib.RMQ_ROLE_DISPATCH, lib.RMQ_DISPATCH_RECORDS),
    "ringmq_dispatch_bad_records_total": (lib.RMQ_ROLE_DISPATCH, lib.RMQ_DISPATCH_BAD_RECORDS),
    "ringmq_records_not_indexed_total": (lib.RMQ_ROLE_DISPATCH, lib.RMQ_DISPATCH_NOT_INDEXED),
}
HA_REFUSED = {
    "full": lib.RMQ_HA_REFUSED,
    "network": lib.RMQ_HA_REFUSED_NETWORK,
    "silent": lib.RMQ_HA_REFUSED_SILENT,
    "replaced": lib.RMQ_HA_REFUSED_REPLACED,
    refusals.UNNAMED: lib.RMQ_HA_REFUSED_UNNAMED,
}
CONSUME_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
TABLES = ("topic", "queue", "group", "subscription", "offset")


def add_requests(page: Page, plane: Plane, tables: Tables) -> None:
    """Add the stages of requests and the counters of readers."""
    readers = plane.readers
    rows = [plane.header.ports.port[reader.port] for reader in readers]
    histograms = []
    for stage, role, place in STAGES:
        roles = [reader.role for reader in readers] if role == lib.RMQ_ROLE_READ else [role]
        words = [plane.header.latency[number][place] for number in roles]
        counts = [sum(int(word.counts[i]) for word in words) for i in range(lib.RMQ_LATENCY_BUCKETS)]
        histograms.append(({"stage": stage}, counts, sum(int(word.sum_ns) for word in words) / 1e9))
    page.add_histograms("ringmq_request_seconds", STAGE_BOUNDS, histograms)
    in_full_rings = sum(int(row.slow_dropped) for row in rows)
    answerers = (lib.RMQ_ROLE_CONTROL, lib.RMQ_ROLE_SERVICES)
    over_the_rate = sum(int(plane.role(role).counters[DROPPED_COUNTER]) for role in answerers)
    for name in ("ringmq_slow_requests_unlogged_total", "ringmq_slow_requests_untold_total"):
        page.add(name, in_full_rings + over_the_rate)
    for name in ("ringmq_junk_unlogged_total", "ringmq_junk_untold_total"):
        page.add(name, sum(int(row.junk_dropped) for row in rows))
    counters = {read_name(reader.number): plane.role(reader.role).counters for reader in readers}
    page.add("ringmq_pulls_uncounted_total", tables.pull_stats_left_out)
    for name, number in READ_COUNTERS.items():
        page.add(name, [({"worker": worker}, int(words[number])) for worker, words in counters.items()])
    page.add(
        "ringmq_connections_closed_total",
        [
            ({"worker": worker, "reason": reason}, int(words[number]))
            for worker, words in counters.items()
            for reason, number in CLOSED.items()
        ],
    )


def add_log(page: Page, plane: Plane, disk_path: Path, earliest_store_time_ms: int, now_ms: int) -> None:
    """Add the watermarks, the counters of the roles and the disk."""
    marks, header = plane.watermarks, plane.header
    readable = plane.confirm_offset()
    page.add("rocketmq_storage_flush_behind_bytes", [(LOCAL_DISK, _behind(marks.append_offset, marks.flushed_offset))])
    page.add("rocketmq_storage_dispatch_behind_bytes", [(LOCAL_DISK, _behind(readable, marks.dispatched_offset))])
    if earliest_store_time_ms > 0:
        age_ms = max(0, now_ms - earliest_store_time_ms)
        page.add("rocketmq_storage_message_reserve_time_milliseconds", [(LOCAL_DISK, age_ms)])
    disk = os.statvfs(disk_path)
    used, available = (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_bavail * disk.f_frsize
    page.add("rocketmq_storage_size_bytes", [(LOCAL_DISK, used)])
    states = {"total": used + available, "free": disk.f_bfree * disk.f_frsize, "available": available}
    page.add("ringmq_disk_bytes", [({"state": state}, value) for state, value in states.items()])
    offsets = {
        "min": marks.min_offset,
        "appended": marks.append_offset,
        "flushed": marks.flushed_offset,
        "dispatched": marks.dispatched_offset,
        "readable": readable,
        "replicated": marks.replicated_offset,
    }
    page.add("ringmq_log_offset_bytes", [({"mark": mark}, int(value)) for mark, value in offsets.items()])
    for name, (role, number) in ROLE_COUNTERS.items():
        page.add(name, int(plane.role(role).counters[number]))
    page.add(
        "ringmq_flush_sync_seconds_total",
        int(plane.role(lib.RMQ_ROLE_FLUSH).counters[lib.RMQ_FLUSH_SYNC_NS]) / 1e9,
    )
    faults = {int(marks.store_fault), int(marks.dispatch_fault)}
    page.add("ringmq_store_fault", [({"cause": words}, int(fault in faults)) for fault, words in FAULT_WORDS.items()])
    waiting = sum(_used(header.ports.port[port].request) for port in range(header.ports.count))
    page.add("rocketmq_processor_watermark", [({"processor": "send"}, waiting)])
    page.add(
        "ringmq_requests_waiting", [({"ring": "write"}, waiting), ({"ring": "parked"}, _used(header.ports.parked))]
    )


def add_tables(page: Page, plane: Plane) -> None:
    """Add the use of the shared tables. Deleted entries keep their slots until the next start."""
    for name, what in (("ringmq_table_entries", "count"), ("ringmq_table_capacity", "capacity")):
        values = {table: int(getattr(plane.header.tables, f"{table}_{what}")) for table in TABLES}
        page.add(name, [({"table": f"{table}s"}, value) for table, value in values.items()])


def replicas_wanted(config: BrokerConfig) -> int:
    """Number of replicas that the policy requires, the master counted."""
    return ReplicaPolicy.from_settings(HaSettings.from_properties(config.as_properties())).need


def add_replication(page: Page, plane: Plane, config: BrokerConfig, wanted: int) -> None:
    """Add policy, replicas and their progress. `wanted`: the result of replicas_wanted, which takes 0.4 ms."""
    view = ReplicationView(plane)
    marks, follows = view.marks(), follows_master(plane.watermarks)
    role = "slave" if follows else master_role(config).lower()
    level, replicas = config.replication_policy or "by role", config.replica_policy or "by role"
    page.add("ringmq_replication_policy_info", [({"level": level, "replicas": replicas, "role": role}, 1)])
    page.add("ringmq_write_held", int(marks.write_hold != 0))
    bad_bodies = [({"found_by": "start"}, int(plane.role(lib.RMQ_ROLE_DISPATCH).counters[lib.RMQ_DISPATCH_BAD_BODIES]))]
    if follows:
        received = int(plane.role(lib.RMQ_ROLE_HA).counters[lib.RMQ_RECEIVE_BAD_BODIES])
        page.add("ringmq_bad_bodies_total", [*bad_bodies, ({"found_by": "slave"}, received)])
        link = view.link()
        page.add("ringmq_master_connected", int(link.state == lib.RMQ_HA_TRANSFER))
        page.add("ringmq_master_lag_bytes", max(0, link.master_offset - marks.append_offset))
        return
    page.add("ringmq_bad_bodies_total", bad_bodies)
    page.add("ringmq_replication_wanted_replicas", wanted)
    page.add("ringmq_replication_in_sync_replicas", max(1, marks.in_sync_replicas))
    page.add("ringmq_replication_state", marks.replication_state)
    degraded = plane.role(lib.RMQ_ROLE_HA).counters[lib.RMQ_HA_DEGRADED_ENTERED]
    page.add("ringmq_replication_degraded_total", int(degraded))
    page.add("ringmq_ha_refused_total", [({"reason": reason}, count) for reason, count in _refused(plane).items()])
    peers, now = view.peers(), mono_ms()
    names = [{"slave": peer.address, "broker_id": str(peer.broker_id)} for peer in peers]
    behind = [max(0, marks.append_offset - peer.reported_offset) for peer in peers]
    since = [(now - (peer.caught_up_mono_ms or peer.connected_mono_ms)) / 1000 for peer in peers]
    page.add("ringmq_slave_lag_bytes", zip(names, behind, strict=True))
    page.add(
        "ringmq_slave_lag_seconds",
        [(name, max(0.0, age) if lag else 0.0) for name, lag, age in zip(names, behind, since, strict=True)],
    )
    page.add("ringmq_slave_in_sync", [(name, int(peer.in_sync)) for name, peer in zip(names, peers, strict=True)])
    page.add(
        "ringmq_slave_bytes_per_second",
        [(name, peer.bytes_per_second) for name, peer in zip(names, peers, strict=True)],
    )


def _refused(plane: Plane) -> dict[str, int]:
    """Reason -> slaves and connections that the HA worker or control has refused."""
    ha, control = plane.role(lib.RMQ_ROLE_HA).counters, plane.role(lib.RMQ_ROLE_CONTROL).counters
    counts = {reason: int(ha[number]) for reason, number in HA_REFUSED.items()}
    for reason, number in refusals.COUNTERS.items():
        counts[reason] = counts.get(reason, 0) + int(control[number])
    return counts


def add_clients(page: Page, tables: Tables, report: ControlReport | None, config: BrokerConfig) -> None:
    """Add the values of control's report, and the sizes of control's tables."""
    report = report or ControlReport(config.broker_permission)
    page.add("rocketmq_broker_permission", report.permission)
    page.add("rocketmq_topic_number", int(live_topics(tables.topics).sum()))
    page.add("rocketmq_consumer_group_number", int(live_groups(tables.groups).sum()))
    producers, consumers = [], []
    for kind in report.clients:
        labels = {
            "language": kind.language.lower(),
            "version": version_name(kind.version).lower(),
            "protocol_type": "remoting",
        }
        if not kind.group:
            producers.append((labels, kind.count))
            continue
        labels["consumer_group"] = kind.group
        labels["consume_mode"] = CONSUME_MODES.get(kind.consume_type, kind.consume_type.lower())
        labels["is_system"] = java_bool(is_system_group(kind.group))
        consumers.append((labels, kind.count))
    page.add("rocketmq_producer_connections", producers)
    page.add("rocketmq_consumer_connections", consumers)
    if report.left_out:  # kinds of producers come first, and are few
        page.leave_out("rocketmq_consumer_connections", report.left_out)
    refused = [({"class": access}, count) for access, count in report.refused]
    page.add("ringmq_requests_refused_total", refused)
    page.add("ringmq_control_entries", [({"kind": kind}, used) for kind, used, _ in report.entry_counts])
    page.add("ringmq_control_capacity", [({"kind": kind}, limit) for kind, _, limit in report.entry_counts])
    page.add(
        "ringmq_name_server_registered",
        [
            ({"address": server.address}, int(server.registered and not server.failures))
            for server in report.name_servers
        ],
    )
    page.add(
        "ringmq_name_server_duplicate_broker",
        [({"address": server.address}, int(bool(server.other))) for server in report.name_servers],
    )


def add_name_server(page: Page, plane: Plane) -> None:
    """Add the counters of the name server of `ringmq serve`, if there is one."""
    role = plane.role(lib.RMQ_ROLE_NAMESRV)
    if role.generation:
        page.add("ringmq_name_server_requests_refused_total", int(role.counters[namesrv_counters.REFUSED]))
        page.add("ringmq_name_server_disputes_total", int(role.counters[namesrv_counters.DISPUTES]))
        page.add("ringmq_name_server_left_out_total", int(role.counters[namesrv_counters.LEFT_OUT]))


def add_workers(page: Page, workers: list[Worker], ages_ms: dict[str, int], readiness: Readiness) -> None:
    """Add health, and the resources of the processes."""
    page.add("ringmq_ready", int(readiness.ready))
    page.add("ringmq_writable", int(readiness.writable))
    started = [worker for worker in workers if not worker.is_dormant]
    page.add("ringmq_worker_up", [({"worker": worker.name}, int(worker.pid != 0)) for worker in started])
    known = [worker for worker in workers if worker.generation]  # counters of a worker that is dormant again, too
    page.add("ringmq_worker_starts_total", [({"worker": worker.name}, worker.generation) for worker in known])
    page.add("ringmq_worker_deaths_total", [({"worker": worker.name}, worker.deaths) for worker in known])
    page.add(
        "ringmq_worker_impossible_states_total", [({"worker": worker.name}, worker.impossible) for worker in known]
    )
    page.add(
        "ringmq_worker_silent_seconds",
        [({"worker": worker.name}, ages_ms.get(worker.name, 0) / 1000) for worker in started],
    )
    used = list(_process_use(started))
    page.add("ringmq_worker_cpu_seconds_total", [({"worker": name}, seconds) for name, seconds, _ in used])
    page.add("ringmq_worker_resident_bytes", [({"worker": name}, size) for name, _, size in used])


def add_engine(page: Page, plane: Plane) -> None:
    """Add the event engine."""
    engine = engine_of(plane)
    page.add("ringmq_engine", [({"engine": engine.name, "fallback": java_bool(engine.is_fallback)}, 1)])


def add_memory(page: Page, plane: Plane) -> None:
    """Add the memory of all processes, as the supervisor has sampled it."""
    header = plane.header
    kinds = {"private": header.memory.private_bytes, "shared": header.memory.shared_bytes}
    page.add("ringmq_memory_bytes", [({"kind": kind}, int(size)) for kind, size in kinds.items()])
    page.add("ringmq_memory_max_bytes", int(header.memory.max_bytes))
    page.add("ringmq_memory_level", int(header.memory.level))


def add_listeners(page: Page, port: HttpPort) -> None:
    """Add the open doors and the counters of the HTTP port."""
    page.add("ringmq_open_doors", [({"listener": name, "property": what}, 1) for name, what in port.public_endpoints])
    page.add("ringmq_http_connections", port.counts.connections)
    page.add("ringmq_http_connections_accepted_total", port.counts.accepted)
    closed = [({"reason": reason}, count) for reason, count in port.counts.closed.items()]
    page.add("ringmq_http_connections_closed_total", closed)


def _process_use(workers: list[Worker]) -> Iterator[tuple[str, float, int]]:
    """Yield (worker, CPU seconds, resident bytes), without workers that have just ended."""
    for worker in workers:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(worker.pid)
            with process.oneshot():
                times = process.cpu_times()
                yield worker.name, times.user + times.system, process.memory_info().rss


def _behind(ahead: int, behind: int) -> int:
    return max(0, int(ahead) - int(behind))


def _used(ring: Any) -> int:
    return max(0, int(ring.head) - int(ring.tail))
