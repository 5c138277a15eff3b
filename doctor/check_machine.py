"""Checks of the machine for a broker: io_uring, limits, memory, kernel settings, CPUs, clock."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ringmq.doctor.facts import ClockFacts, CpuFacts, EngineFacts, LimitFacts
from ringmq.doctor.finding import FAIL, OK, WARN, Finding, graded, ok

MIB = 1 << 20
SHM_MIN_BYTES = 64 * MIB
"""Shared memory for tables and arenas of an ordinary broker under load. A start needs 4 MiB."""
FILES_WANTED = 65_536
MEMLOCK_WANTED_BYTES = 8 * MIB
BACKLOG = 1024
SOCKET_BUFFER_BYTES = 4 * MIB
MAPS_WANTED = 65_530
DIRTY_MAX_BYTES = 4 << 30
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


def check_engine(facts: EngineFacts, wanted: str = "auto") -> Iterator[Finding]:
    """Check the engine of the running broker, or of the next one with ringmqEngine = `wanted`, and what io_uring needs.

    Without io_uring the broker runs on epoll, unless it must not.
    """
    yield _engine(facts, wanted)
    if wanted == "epoll":
        return
    for finding in check_io_uring(facts):
        lowered = finding.level == FAIL and wanted == "auto"
        yield replace(finding, level=WARN) if lowered else finding


def _engine(facts: EngineFacts, wanted: str) -> Finding:
    if facts.running:
        value, is_slow = f"{facts.running}: {facts.running_why}", facts.running_is_fallback
    else:
        is_slow = bool(facts.refusal) and wanted == "auto"
        value = f"{'epoll' if is_slow or wanted == 'epoll' else 'io_uring'} at the next start (ringmqEngine = {wanted})"
    return graded(
        "engine",
        "in use" if facts.running else "to be used",
        WARN if is_slow else OK,
        value,
        "epoll runs everywhere and is slower than io_uring (docs/operating.md, Engines)",
        "allow io_uring, see the lines below, or set ringmqEngine=epoll",
    )


def check_io_uring(facts: EngineFacts) -> Iterator[Finding]:
    """Check the kernel, the settings that forbid io_uring, each operation and flag in use, a whole trial."""
    area = "io_uring"
    yield ok(area, "kernel", facts.kernel, "io_uring needs Linux 6.0 or later")
    yield graded(
        area,
        "io_uring_disabled",
        {None: OK, 0: OK, 1: WARN}.get(facts.disabled, FAIL),
        "not there" if facts.disabled is None else str(facts.disabled),
        "kernel.io_uring_disabled: 0 allows it to all, 1 to root and kernel.io_uring_group, 2 to nobody",
        "sysctl kernel.io_uring_disabled=0, and a line in /etc/sysctl.d to keep it",
    )
    yield graded(
        area,
        "seccomp",
        FAIL if facts.seccomp == 2 and facts.setup_errno in (errno.EPERM, errno.ENOSYS) else OK,
        "filtered" if facts.seccomp == 2 else "no filter",
        "container runtimes refuse io_uring by their default filter",
        "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile",
    )
    if facts.setup_errno:
        yield Finding(
            area, "ring", FAIL, os.strerror(facts.setup_errno), "no ring can be made",
            "see the lines above; ENOMEM: raise the locked-memory limit (LimitMEMLOCK=)",
        )  # fmt: skip
        return
    yield graded(
        area,
        "operations",
        FAIL if facts.missing_operations else OK,
        "missing: " + ", ".join(facts.missing_operations) if facts.missing_operations else "all that are used",
        "what the event engine and the flusher ask the kernel for",
        "use Linux 6.0 or later (Debian 12 has 6.1)",
    )
    yield graded(
        area,
        "setup flags",
        WARN if facts.missing_flags else OK,
        "missing: " + ", ".join(facts.missing_flags) if facts.missing_flags else "all that are used",
        "without them a reader is interrupted for each completion: a few per cent slower",
        "use Linux 6.1 or later",
    )
    yield graded(
        area,
        "trial",
        FAIL if facts.refusal else OK,
        facts.refusal or "accept, lend, receive, send work",
        "a ring with lent buffers and a multishot receive, as a reader uses it",
        "what the message says",
    )


def check_limits(facts: LimitFacts) -> Iterator[Finding]:
    """Check limits of a process, shared memory and memory."""
    area = "limits"
    whose = f", of the running broker ({facts.broker})" if facts.broker else ""
    files = facts.files_hard  # a process that needs more than the soft limit raises it
    yield graded(
        area,
        "open files",
        FAIL if 0 <= files < 256 else WARN if 0 <= files < FILES_WANTED else OK,
        _number(files) + (f" (soft limit {_number(facts.files_soft)})" if facts.files_soft != files else "") + whose,
        "each connection and each file of a queue that is being written takes one",
        f"ulimit -n {FILES_WANTED}; LimitNOFILE={FILES_WANTED} in a unit",
    )
    memlock = facts.memlock_bytes
    yield graded(
        area,
        "locked memory",
        WARN if 0 <= memlock < MEMLOCK_WANTED_BYTES else OK,
        ("no limit" if memlock < 0 else _mib(memlock)) + whose,
        "rings and lent buffers count against it on some kernels",
        "ulimit -l unlimited; LimitMEMLOCK=infinity in a unit",
    )
    shm = facts.shm_free_bytes
    yield graded(
        area,
        "/dev/shm",
        FAIL if shm < 4 * MIB else WARN if shm < SHM_MIN_BYTES else OK,
        f"{_mib(shm)} free of {_mib(facts.shm_total_bytes)}",
        "workers share tables and buffers there; when it is full under way a worker dies",
        "mount -o remount,size=512m /dev/shm; docker run --shm-size=512m",
    )
    yield graded(
        area,
        "memory",
        WARN if facts.memory_free_bytes < 512 * MIB else OK,
        f"{_mib(facts.memory_free_bytes)} available of {_mib(facts.memory_bytes)}",
        "what is free keeps the log in the page cache; consumers that lag behind it read the disk",
        "give the machine (or the cgroup: memory.max) more memory",
    )


def check_memory_max(max_bytes: int, memory_bytes: int) -> Iterator[Finding]:
    """Compare ringmqMemoryMax with the memory of the machine, in bytes."""
    yield graded(
        "limits",
        "ringmqMemoryMax",
        WARN if max_bytes > memory_bytes else OK,
        f"{_mib(max_bytes)}; the machine has {_mib(memory_bytes)}",
        "near it the broker refuses what is new; where the machine runs out first, the kernel ends a process",
        "set ringmqMemoryMax well below the machine's memory, or give the machine more",
    )


def check_sysctls(values: Mapping[str, str], memory_bytes: int) -> Iterator[Finding]:
    """Check the kernel settings that matter to a broker. Absent settings are left out."""
    yield from _dirty_pages(values, memory_bytes)
    numbers = {
        "net.core.somaxconn": (
            BACKLOG, "connections that may wait to be accepted; more are dropped when many clients come at once",
        ),
        "vm.max_map_count": (MAPS_WANTED, "mapped files per process: log files and queues"),
        "fs.file-max": (FILES_WANTED, "open files of the whole machine"),
    }  # fmt: skip
    for name, (wanted, meaning) in numbers.items():
        text = values.get(name, "")
        if text.isdigit():
            level = OK if int(text) >= wanted else WARN
            yield graded("kernel", name, level, _number(int(text)), meaning, f"sysctl {name}={wanted}")
    for name, who in (("net.ipv4.tcp_wmem", "pulls over long links"), ("net.ipv4.tcp_rmem", "sends over long links")):
        parts = values.get(name, "").split()
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            level = OK if int(parts[2]) >= SOCKET_BUFFER_BYTES else WARN
            meaning = f"the third number bounds how much is under way on one connection: {who}"
            advice = f'sysctl -w {name}="{parts[0]} {parts[1]} {SOCKET_BUFFER_BYTES}"'
            yield graded("kernel", name, level, " ".join(parts), meaning, advice)
    if (overcommit := values.get("vm.overcommit_memory", "")) != "":
        yield graded(
            "kernel",
            "vm.overcommit_memory",
            WARN if overcommit == "2" else OK,
            overcommit,
            "2 counts sparse shared memory in full: making the tables may be refused",
            "sysctl vm.overcommit_memory=0",
        )
    if (swappiness := values.get("vm.swappiness", "")).isdigit():
        yield graded(
            "kernel",
            "vm.swappiness",
            WARN if int(swappiness) > 60 else OK,
            swappiness,
            "a high value swaps workers out for the sake of the page cache",
            "sysctl vm.swappiness=10",
        )


def _dirty_pages(values: Mapping[str, str], memory_bytes: int) -> Iterator[Finding]:
    texts = [values.get(name, "") for name in ("vm.dirty_bytes", "vm.dirty_ratio")]
    if not all(text.isdigit() for text in texts):
        return
    limit = int(texts[0]) or memory_bytes * int(texts[1]) // 100
    yield graded(
        "kernel",
        "dirty pages",
        WARN if limit > DIRTY_MAX_BYTES else OK,
        f"writers are stopped at {_mib(limit)} (vm.dirty_ratio)",
        "the more may pile up, the longer everybody waits when the kernel writes it out, and the more a power cut "
        "takes under ASYNC_FLUSH",
        "sysctl vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824",
    )


def check_cpus(facts: CpuFacts) -> Iterator[Finding]:
    """Check the CPUs and the plan for the workers."""
    count = len(facts.usable)
    yield graded(
        "CPUs",
        "usable",
        WARN if count < 2 else OK,
        f"{count} of {facts.online}: {','.join(map(str, facts.usable))}",
        "read and write share one, flush, dispatch and control the other; with 8 and more each worker has its own",
        "give the broker two CPUs at least (--cpus, taskset, CPUAffinity=)",
    )
    if facts.quota_cpus is not None:
        yield graded(
            "CPUs",
            "cgroup quota",
            WARN if facts.quota_cpus < count else OK,
            f"{facts.quota_cpus:.1f} CPUs",
            "a quota stops all workers together for the rest of each 100 ms once it is used up",
            "raise CPUQuota= (cpu.max), or pin the broker to fewer CPUs",
        )
    by_cpus: dict[tuple[int, ...], list[str]] = {}
    for worker, cpus in facts.plan.items():
        by_cpus.setdefault(cpus, []).append(worker)
    plan = "; ".join(f"{','.join(map(str, cpus))}: {' '.join(names)}" for cpus, names in sorted(by_cpus.items()))
    spin = f"; {facts.spin_pauses} pauses before a worker sleeps" if facts.spin_pauses else ""
    yield ok("CPUs", "plan", plan + spin, "CPU: workers, as a broker started here now would pin them")


def check_clock(facts: ClockFacts, newest_ms: int) -> Iterator[Finding]:
    """Check the wall clock. `newest_ms` is the newest store time of the log, 0 without one."""
    words = {True: "synchronized", False: "not synchronized", None: "cannot be asked"}
    yield graded(
        "clock",
        "NTP",
        OK if facts.synchronized else WARN,
        words[facts.synchronized],
        "store times, retention and searches by time use the wall clock; clients compare theirs with it",
        "apt install systemd-timesyncd (or chrony), then timedatectl set-ntp true",
    )
    yield graded(
        "clock",
        "source",
        WARN if facts.source in SLOW_CLOCKS else OK,
        facts.source or "unknown",
        "workers read the clock for every batch; a slow source costs a system call each time",
        "let the machine use tsc or its hypervisor's clock (dmesg | grep -i clocksource says why not)",
    )
    ahead_ms = newest_ms - facts.now_ms
    if newest_ms:
        yield graded(
            "clock",
            "against the store",
            WARN if ahead_ms > 1000 else OK,
            f"the newest record is {ahead_ms / 1000:.0f} s ahead" if ahead_ms > 1000 else "the newest record is past",
            "records from the future: the clock was set back, or the store comes from another machine",
            "set the clock; searches by time are wrong until it has caught up",
        )


def _number(value: int) -> str:
    return "no limit" if value < 0 else str(value)


def _mib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / MIB:.0f} MiB"
