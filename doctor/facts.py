"""Facts about a machine and a store, as the gatherers find them. None: could not be found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringmq.store.record_values import NotIndexed
from ringmq.store.unserved import Unserved


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """io_uring as this process gets it."""

    kernel: str
    disabled: int | None
    """kernel.io_uring_disabled; None before Linux 6.6."""
    setup_errno: int
    """0 where a ring can be made."""
    missing_flags: tuple[str, ...] = ()
    """Setup flags that are refused."""
    missing_operations: tuple[str, ...] = ()
    refusal: str = ""
    """What the engine's own trial says; empty where it works."""
    seccomp: int = 0
    """2: the process has a seccomp filter."""


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """Resource limits of a process, -1 = none; and shared memory."""

    memlock_bytes: int
    files_soft: int
    files_hard: int
    shm_free_bytes: int
    shm_total_bytes: int
    memory_bytes: int
    memory_free_bytes: int
    """MemAvailable, or what the memory cgroup leaves of it."""
    broker: int = 0
    """The running broker whose limits they are; 0: those of this process, which a broker started here would have."""


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """CPUs of this process and the plan for them."""

    online: int
    usable: tuple[int, ...]
    quota_cpus: float | None
    """What the cgroup allows, in CPUs; None without a limit."""
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
    """As retention counts it, -1 where unknown."""
    free_bytes: int
    """For this user."""
    inodes_free: int
    sync_ms: tuple[float, ...] = ()
    write_mib_per_s: float | None = None
    error: str = ""
    """Why it could not be measured."""


@dataclass(frozen=True, slots=True)
class PortFacts:
    """One address that a server would listen on."""

    name: str
    address: str
    error: str = ""
    """Why it cannot be bound; empty = free."""
    owner: str = ""
    """The process that has it, where that can be told."""
    is_needed: bool = True


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
    """Store time of the last one, 0 without any."""
    damage: str = ""
    """Where and why the walk ended early."""
    not_indexed: NotIndexed | None = None
    """Records with impossible values."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A store folder."""

    root: str
    exists: bool
    """False with an `error`: it cannot be told."""
    is_writable: bool = True
    is_locked: bool = False
    has_abort: bool = False
    is_abort_of_stock: bool = False
    failed_cause: str | None = None
    format_number: int = 0
    error: str = ""
    """Why it cannot be read as the configuration says."""
    foreign_files: int = 0
    """Files that belong to another user."""
    cut_files: int = 0
    salvage_files: int = 0
    unserved: tuple[Unserved, ...] = ()
    tail: TailFacts | None = None
    dispatch_lag_bytes: int = 0
    """Of a live broker: appended and not in queues."""
    flush_lag_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was gathered."""

    engine: EngineFacts
    limits: LimitFacts
    cpus: CpuFacts
    clock: ClockFacts
    disk: DiskFacts
    store: StoreFacts
    sysctls: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[PortFacts, ...] = ()
    name_servers: tuple[PeerFacts, ...] = ()
