"""The doctor's round: gathers all facts and runs all checks."""

from __future__ import annotations

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import starts_as_slave
from ringmq.broker.config.run_config import store_config
from ringmq.broker.memory_watch import memory_max_bytes
from ringmq.broker.plane_setup import capacity_of
from ringmq.doctor.check_endpoints import check_endpoints, endpoints_of
from ringmq.doctor.check_environment import (
    check_build,
    check_disk,
    check_name_servers,
    check_ports,
    check_role,
    check_store,
)
from ringmq.doctor.check_machine import (
    check_clock,
    check_cpus,
    check_engine,
    check_limits,
    check_memory_max,
    check_sysctls,
)
from ringmq.doctor.facts import CpuFacts, Facts
from ringmq.doctor.finding import Finding
from ringmq.doctor.gather_disk import gather_disk
from ringmq.doctor.gather_machine import gather_clock, gather_cpus, gather_engine, gather_limits, gather_sysctls
from ringmq.doctor.gather_network import (
    gather_broker,
    gather_name_servers,
    gather_ports,
    gather_serve_port,
    wanted_ports,
)
from ringmq.doctor.gather_store import gather_role, gather_store, running_broker, runs_other_build
from ringmq.doctor.look import check_guests
from ringmq.ipc.plane import plane_bytes
from ringmq.ipc.workers import WORKERS, is_read


def gather(config: BrokerConfig, cpus: tuple[int, ...] = (), *, measure_disk: bool = True) -> Facts:
    """Return the facts for a broker with `config`, which names its store. Disk and name servers take some seconds."""
    store = store_config(config)
    broker = running_broker(store.root)
    return Facts(
        engine=gather_engine(store.root if broker else None),
        limits=gather_limits(broker),
        sysctls=gather_sysctls(),
        cpus=gather_cpus(config, cpus),
        clock=gather_clock(),
        ports=(*gather_ports(wanted_ports(config)), *gather_serve_port(config)),
        name_servers=gather_name_servers(config.namesrv_addr),
        broker=gather_broker(broker, is_of_other_build=broker > 0 and runs_other_build(store.root)),
        store=gather_store(store),
        role=gather_role(config),
        disk=gather_disk(store.commit_log_directories[0], measure=measure_disk),
    )


def memory_max_of(config: BrokerConfig, cpus: CpuFacts) -> int:
    """Return ringmqMemoryMax of a broker with this configuration, in bytes. Computes the default if it is not set."""
    readers = sum(map(is_read, cpus.plan))
    capacity = capacity_of(config, WORKERS.rows(readers))
    return memory_max_bytes(config, plane_bytes(capacity), sum(port.arena_bytes for port in capacity.ports))


def check(facts: Facts, config: BrokerConfig) -> list[Finding]:
    """Return every finding, in the order in which an operator would look."""
    tail = facts.store.tail
    return [
        *check_engine(facts.engine, config.engine),
        *check_limits(facts.limits),
        *check_memory_max(memory_max_of(config, facts.cpus), facts.limits.memory_bytes),
        *check_sysctls(facts.sysctls, facts.limits.memory_bytes),
        *check_cpus(facts.cpus),
        *check_clock(facts.clock, tail.newest_ms if tail is not None else 0),
        *check_disk(
            facts.disk,
            log_file_bytes=config.mapped_file_size_commit_log,
            full_ratio=config.disk_space_warning_level_ratio,
            clean_ratio=config.disk_max_used_space_ratio,
            sync_flush=config.flush_disk_type == "SYNC_FLUSH",
        ),
        *check_guests(facts, config),
        *check_ports(facts.ports, is_running=_is_running(facts), broker=facts.broker),
        *check_build(facts.broker),
        *check_endpoints(endpoints_of(config)),
        *check_name_servers(facts.name_servers),
        *check_role(facts.role),
        # a slave's is not judged at the start either: its master delivers
        *check_store(facts.store, accept_unserved=config.accept_unserved or starts_as_slave(config)),
    ]


def _is_running(facts: Facts) -> bool | None:
    """Return whether a broker has the store open, or None if this user may not look."""
    return None if facts.store.error and not facts.store.exists else facts.store.is_locked
