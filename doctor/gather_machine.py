"""Facts about the machine from psutil, /proc/sys, /sys and a few system calls, without any grade."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import starts_as_slave
from ringmq.broker.config.relations import waits_for_replicas
from ringmq.broker.engine_choice import EngineChoice, engine_of, probe_io_uring
from ringmq.doctor.facts import ClockFacts, CpuFacts, EngineFacts, LimitFacts
from ringmq.doctor.uring import survey_ring
from ringmq.ipc.placement import place
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name

SYSCTLS = (
    "kernel.io_uring_disabled",
    "vm.dirty_ratio",
    "vm.dirty_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_background_bytes",
    "vm.overcommit_memory",
    "vm.swappiness",
    "vm.max_map_count",
    "net.core.somaxconn",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_rmem",
    "fs.file-max",
)
_UNSYNCHRONIZED = 0x40  # STA_UNSYNC
_TIME_ERROR = 5
_TIMEX_BYTES = 256
_TIMEX_STATUS_AT = 40


def read_text(path: str | Path) -> str:
    """Return a small file's text, stripped, empty if the file cannot be read."""
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def gather_sysctls(names: Iterable[str] = SYSCTLS) -> dict[str, str]:
    """Return the kernel settings that exist on this machine."""
    texts = {name: read_text(Path("/proc/sys", *name.split("."))) for name in names}
    return {name: text for name, text in texts.items() if text}


def gather_engine(store_root: Path | None = None) -> EngineFacts:
    """Return facts about io_uring as this process gets it, and the engine of the broker that runs on `store_root`.

    Makes a ring or two and closes them.
    """
    disabled = read_text("/proc/sys/kernel/io_uring_disabled")
    ring = survey_ring()
    running = _running_engine(store_root) if store_root else None
    return EngineFacts(
        kernel=platform.release(),
        disabled=int(disabled) if disabled.isdigit() else None,
        setup_errno=ring.setup_errno,
        missing_flags=ring.missing_flags,
        missing_operations=ring.missing_operations,
        refusal=probe_io_uring(),
        seccomp=_status_number("Seccomp"),
        running=running.name if running else "",
        running_why=running.why if running else "",
        running_is_fallback=running is not None and running.is_fallback,
    )


def _running_engine(root: Path) -> EngineChoice | None:
    try:
        plane = Plane.open(plane_name(root))
    except (OSError, ValueError):
        return None
    return engine_of(plane)


def _status_number(name: str) -> int:
    for line in read_text("/proc/self/status").splitlines():
        key, _, value = line.partition(":")
        if key == name and value.split()[:1] and value.split()[0].isdigit():
            return int(value.split()[0])
    return 0


def gather_limits(broker: int = 0) -> LimitFacts:
    """Return memory and the limits of the running broker's process, or of this process.

    The limits are this process's if no broker runs or its limits cannot be read.
    """
    try:
        files, locked = (resource.prlimit(broker, which) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK))
    except (PermissionError, ProcessLookupError):
        return gather_limits()
    soft, hard = files
    memlock = locked[0]
    shm = os.statvfs("/dev/shm")
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    limit, used = read_text("/sys/fs/cgroup/memory.max"), read_text("/sys/fs/cgroup/memory.current")
    if limit.isdigit() and used.isdigit() and int(limit) < total:
        total, free = int(limit), min(free, int(limit) - int(used))
    return LimitFacts(
        memlock_bytes=_limit(memlock), files_soft=_limit(soft), files_hard=_limit(hard),
        shm_free_bytes=shm.f_bavail * shm.f_frsize, shm_total_bytes=shm.f_blocks * shm.f_frsize,
        memory_bytes=total, memory_free_bytes=free, broker=broker,
    )  # fmt: skip


def _limit(value: int) -> int:
    return -1 if value == resource.RLIM_INFINITY else value


def gather_cpus(config: BrokerConfig, cpus: tuple[int, ...]) -> CpuFacts:
    """Return the CPUs of this process and the plan of a broker with `config`. `cpus` is as for --cpus, empty = all."""
    usable = tuple(cpus or sorted(os.sched_getaffinity(0)))
    plan = place(
        list(usable),
        config.readers or None,
        sync_flush=config.flush_disk_type == "SYNC_FLUSH",
        sync_replication=waits_for_replicas(config),
        slave=starts_as_slave(config),
    )
    quota = read_text("/sys/fs/cgroup/cpu.max").split()
    quota_cpus = int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdigit() else None
    return CpuFacts(os.cpu_count() or len(usable), usable, quota_cpus, plan.cpus_by_worker, plan.spin_pauses)


def gather_clock() -> ClockFacts:
    """Return the wall clock's state as the kernel knows it (adjtimex), and the time source."""
    synchronized = None
    with contextlib.suppress(OSError, AttributeError):
        room = (ctypes.c_char * _TIMEX_BYTES)()  # modes = 0: a question
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(room))
        if state >= 0:
            status = int.from_bytes(room.raw[_TIMEX_STATUS_AT : _TIMEX_STATUS_AT + 4], "little")
            synchronized = state != _TIME_ERROR and not status & _UNSYNCHRONIZED
    source = read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return ClockFacts(synchronized, source, time.time_ns() // 1_000_000)
