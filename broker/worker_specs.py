"""The specification of each worker of the worker table, made when a broker opens its store."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.listening import ListenRequest
from ringmq.ipc.named_functions import function_of
from ringmq.ipc.package_guard import PackageReplacedError
from ringmq.ipc.placement import Placement
from ringmq.ipc.plane import Plane
from ringmq.ipc.supervisor import make_event_fds
from ringmq.ipc.tenure import is_master
from ringmq.ipc.worker import WorkerSpec
from ringmq.ipc.worker_blocks import publish_workers
from ringmq.ipc.workers import WORKERS, Start, WorkerRow, is_read
from ringmq.native import lib


def open_listeners(rows: Iterable[WorkerRow], config: BrokerConfig, request: ListenRequest) -> dict[str, socket.socket]:
    """Worker -> its own listening socket, if it has one. Raises StartError."""
    opened = {row.name: function_of(row.listener)(config, request) for row in rows if row.listener}
    return {name: listener for name, listener in opened.items() if listener is not None}


def with_own_ports(config: BrokerConfig, own: Mapping[str, socket.socket]) -> BrokerConfig:
    """`config` with the actual ports of workers' own listeners. A slave has the port for slaves, too, because it may
    become a master."""
    ports = {WORKERS.row(name).role: int(listener.getsockname()[1]) for name, listener in own.items()}
    config = replace(config, ha_listen_port=ports[lib.RMQ_ROLE_HA])
    if lib.RMQ_ROLE_NAMESRV not in ports:
        return config
    addresses = [config.namesrv_addr, f"{config.broker_ip1}:{ports[lib.RMQ_ROLE_NAMESRV]}"]
    return replace(config, namesrv_addr=";".join(filter(None, addresses)))


def worker_specs(
    plane: Plane,
    rows: Iterable[WorkerRow],
    placement: Placement,
    listeners: Mapping[str, tuple[socket.socket, ...]],
    dormant: frozenset[str],
    config_path: Path,
    extras: Mapping[str, dict[str, str]],
) -> list[WorkerSpec]:
    """One spec per worker. Readers come last, so that they find the others running. Publishes the workers' names in the
    plane.

    `listeners`, `extras`: by worker.
    """
    ordered = sorted(rows, key=lambda row: (is_read(row.name), row.name))
    publish_workers(plane, ordered, dormant)
    event_fds = make_event_fds(sorted({lib.RMQ_ROLE_SUPERVISOR, *(row.role for row in ordered)}))
    plane.set_event_fds(event_fds)
    return [
        WorkerSpec(
            name=row.name,
            role=row.role,
            plane_name=plane.name,
            cpus=placement.cpus_by_worker[row.name],
            life_fd=-1,
            supervisor_pid=0,
            event_fds=event_fds,
            listen_fds=tuple(listener.fileno() for listener in listeners.get(row.name, ())),
            config_path=str(config_path),
            dormant=row.name in dormant,
            extra=extras.get(row.name, {}),
        )
        for row in ordered
    ]


def dormant_at_start(
    rows: Iterable[WorkerRow], plane: Plane, config: BrokerConfig, root: Path, log: Callable[[str], None]
) -> frozenset[str]:
    """The workers without work. A worker starts if its function `needed_at_once` fails."""
    serves, owner = is_master(plane.watermarks), int(plane.header.ports.journal.owner)
    dormant = frozenset(
        row.name
        for row in rows
        if (row.needs_master and not serves) or not (row.appends(owner) or _is_needed(row, config, root, log))
    )
    if serves:
        plane.pop_is_compared()
    return dormant


def _is_needed(row: WorkerRow, config: BrokerConfig, root: Path, log: Callable[[str], None]) -> bool:
    if row.start is Start.AT_ONCE or not row.needed_at_once:
        return row.start is Start.AT_ONCE
    try:
        return bool(function_of(row.needed_at_once)(config, root))
    except (OSError, PackageReplacedError) as error:
        log(f"worker {row.name}: {row.needed_at_once} cannot tell whether it is needed: {error}; starting it")
        return True
