"""Facts about a machine and a store, as the gatherers find them. None means unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringmq.store.record_values import NotIndexed
from ringmq.store.unsupported import Unsupported


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """io_uring as this process gets it."""

    kernel: str
    disabled: int | None
    """kernel.io_uring_disabled; None before Linux 6.6."""
    setup_errno: int
    """errno of a ring's setup, 0 if it succeeds."""
    missing_flags: tuple[str, ...] = ()
    """Setup flags that the kernel refuses."""
    missing_operations: tuple[str, ...] = ()
    refusal: str = ""
    """Error of the engine's own trial, empty if it succeeds."""
    seccomp: int = 0
    """Seccomp mode of the process, 2 for a filter."""
    running: str = ""
    """Engine of the running broker, empty without one."""
    running_why: str = ""
    running_is_fallback: bool = False


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """Resource limits of a process (-1 = none), shared memory and memory."""

    memlock_bytes: int
    files_soft: int
    files_hard: int
    shm_free_bytes: int
    shm_total_bytes: int
    memory_bytes: int
    memory_free_bytes: int
    """MemAvailable, or the remainder of the memory cgroup's limit if smaller."""
    broker: int = 0
    """The process of the running broker with these limits. 0: the limits are this process's, as a broker started here
    has.
    """


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """CPUs of this process and the plan for them."""

    online: int
    usable: tuple[int, ...]
    quota_cpus: float | None
    """CPUs that the cgroup allows, None without a limit."""
    plan: Mapping[str, tuple[int, ...]]
    spin_pauses: int


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """Wall clock and time source."""

    synchronized: bool | None
    source: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The disk under a folder; latencies in ms, one per sync of a 4 KiB write."""

    folder: str
    filesystem: str
    options: str
    used_percent: int
    """Use as retention counts it, -1 if unknown."""
    free_bytes: int
    """Space that is free for this user."""
    inodes_free: int
    sync_ms: tuple[float, ...] = ()
    write_mib_per_s: float | None = None
    error: str = ""
    """Reason why the disk could not be measured."""


@dataclass(frozen=True, slots=True)
class PortFacts:
    """One address that a server would listen on."""

    name: str
    address: str
    error: str = ""
    """Reason why the address cannot be bound, empty if it is free."""
    owner: str = ""
    """The process that listens on the address, empty if unknown."""
    is_needed: bool = True


@dataclass(frozen=True, slots=True)
class RunningBrokerFacts:
    """The broker that has the store open."""

    pid: int
    """Its main process."""
    listeners: tuple[str, ...] = ()
    """The addresses on which its processes listen. Empty: unknown to this user."""
    is_of_other_build: bool = False
    """True if the installed package is known to be of another build."""


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """One name server that a broker would register with."""

    address: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class TailFacts:
    """The last records of the log."""

    records: int
    bytes: int
    end_offset: int
    newest_ms: int
    """Store time of the last record, 0 without any."""
    damage: str = ""
    """Position and reason of an early end of the walk."""
    not_indexed: NotIndexed | None = None
    """Records with impossible values."""


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """The tenure file. difference: it has another role than the configuration. fault: it cannot be read."""

    difference: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A store folder."""

    root: str
    exists: bool
    """False with an `error` if it is unknown."""
    is_writable: bool = True
    is_locked: bool | None = False
    """True if a process owns the store, None if this user may not look."""
    has_abort: bool = False
    is_abort_of_stock: bool = False
    failed_cause: str | None = None
    format_number: int | None = 0
    error: str = ""
    """Reason why the store cannot be read with the configuration."""
    remedy: str = ""
    """The next step after `error`, if the store shows it."""
    denied: tuple[str, ...] = ()
    """Parts that this user may not read. Facts that depend on them are unknown."""
    other_sizes: str = ""
    """Sizes of files that differ from the configuration, if a broker runs or may run."""
    foreign_files: int = 0
    """Number of files of other users."""
    cut_files: int = 0
    salvage_files: int = 0
    unsupported: tuple[Unsupported, ...] = ()
    tail: TailFacts | None = None
    of_guests: Mapping[str, Any] = field(default_factory=dict)
    """Name of a guest -> facts for its check (`ringmq.doctor.look`)."""
    guest_faults: tuple[tuple[str, str], ...] = ()
    """(guest, fault): files of guests that are not as they were written."""
    dispatch_lag_bytes: int | None = None
    """Bytes of a live broker that are appended but not in queues yet. None: unknown, as for a stock broker."""
    flush_lag_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All gathered facts."""

    engine: EngineFacts
    limits: LimitFacts
    cpus: CpuFacts
    clock: ClockFacts
    disk: DiskFacts
    store: StoreFacts
    role: RoleFacts = RoleFacts()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[PortFacts, ...] = ()
    name_servers: tuple[PeerFacts, ...] = ()
    broker: RunningBrokerFacts | None = None
    """The broker that has the store open. None: there is none, or this user may not know it."""
