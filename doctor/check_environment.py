"""Checks of the surroundings of a broker: disk, ports, name servers, store."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Sequence

from ringmq.doctor.facts import DiskFacts, PeerFacts, PortFacts, RoleFacts, RunningBrokerFacts, StoreFacts
from ringmq.doctor.finding import FAIL, OK, WARN, Finding, graded, ok
from ringmq.store.store_format import FORMAT
from ringmq.store.unsupported import ROCKSDB_TIMERS

MIB = 1 << 20
SYNC_SLOW_MS = 10.0
SYNC_TAIL_MS = 100.0
BANDWIDTH_MIN_MIB_PER_S = 100.0
INODES_MIN = 10_000
DENIED_NAMED_MAX = 3
AS_ITS_USER = "run doctor as the broker's user, or as root"
LAG_MAX_BYTES = 256 * MIB
UNSAFE_FILESYSTEMS = {
    "tmpfs": "everything is gone at a reboot",
    "ramfs": "everything is gone at a reboot",
    "overlay": "the layer of a container: gone with it, and slow",
    "nfs": "locks and mapped files over a network are not reliable",
    "nfs4": "locks and mapped files over a network are not reliable",
    "cifs": "locks and mapped files over a network are not reliable",
    "9p": "mapped files over a network are not reliable",
    "fuse": "mapped files depend on the file system's program",
}


def check_disk(
    facts: DiskFacts, *, log_file_bytes: int, full_ratio: int, clean_ratio: int, sync_flush: bool
) -> Iterator[Finding]:
    """Check space and speed.

    `full_ratio` is diskSpaceWarningLevelRatio, `clean_ratio` diskMaxUsedSpaceRatio, in per cent.
    """
    kind = facts.filesystem
    danger = UNSAFE_FILESYSTEMS.get(kind) or UNSAFE_FILESYSTEMS.get(kind.split(".")[0])
    yield graded(
        "disk",
        "file system",
        WARN if danger else OK,
        f"{kind or 'unknown'} ({facts.folder})",
        danger or "local, with files that can be mapped",
        "put the store on a local ext4 or xfs (storePathRootDir)",
    )
    used = facts.used_percent
    needed = 2 * log_file_bytes
    is_full = used >= full_ratio or facts.free_bytes < needed
    yield graded(
        "disk",
        "space",
        FAIL if is_full else WARN if used >= clean_ratio else OK,
        f"{facts.free_bytes / (1 << 30):.1f} GiB free, {used} % used",
        f"from {clean_ratio} % on old log files go at any hour, above diskSpaceCleanForciblyRatio those of any age, "
        f"from {full_ratio} % on sends are refused; "
        f"log files take {log_file_bytes / MIB:.0f} MiB each, one is made ahead",
        "make room, a shorter fileReservedTime, smaller log files (only for a new store), or another disk",
    )
    if facts.inodes_free >= 0:
        yield graded(
            "disk",
            "inodes",
            WARN if facts.inodes_free < INODES_MIN else OK,
            f"{facts.inodes_free} free",
            "each queue of each topic takes a folder and a file",
            "make the file system with more inodes, or use fewer queues per topic",
        )
    yield from _speed(facts, sync_flush)


def _speed(facts: DiskFacts, sync_flush: bool) -> Iterator[Finding]:
    if facts.error:
        yield Finding("disk", "speed", WARN, facts.error, "the disk was not measured", "run it as the broker's user")
        return
    if facts.sync_ms:
        middle, longest = statistics.median(facts.sync_ms), max(facts.sync_ms)
        slow = middle > SYNC_SLOW_MS or longest > SYNC_TAIL_MS
        waits = "every answer waits for one (SYNC_FLUSH)" if sync_flush else "nobody waits for it under ASYNC_FLUSH"
        yield graded(
            "disk",
            "fdatasync",
            WARN if slow else OK,
            f"median {middle:.2f} ms, longest {longest:.1f} ms of {len(facts.sync_ms)}",
            f"a 4 KiB write and its sync; {waits}",
            "a disk with power-loss protection needs well below 1 ms; look for others that write to it (iostat -x 1)",
        )
    if facts.write_mib_per_s is not None:
        yield graded(
            "disk",
            "bandwidth",
            WARN if facts.write_mib_per_s < BANDWIDTH_MIN_MIB_PER_S else OK,
            f"{facts.write_mib_per_s:.0f} MiB/s written and synced",
            "what producers send for long cannot be more than this",
            "a faster disk, or look for others that write to it (iostat -x 1)",
        )


def check_ports(
    ports: Sequence[PortFacts], *, is_running: bool | None, broker: RunningBrokerFacts | None = None
) -> Iterator[Finding]:
    """Check the ports. If `is_running`, a broker has the store open and rightly holds its own ports.

    `is_running` is None if this user cannot look at the store. `broker` is that broker, if it is known.
    """
    listeners = () if broker is None else broker.listeners
    if broker is not None and listeners:
        value = f"{', '.join(listeners)} (process {broker.pid})"
        yield ok("network", "broker listens on", value, "the addresses of the broker that runs on this store")
    for port in ports:
        if not port.error:
            yield ok("network", port.name, f"{port.address} free", "where it would listen")
        elif is_running and broker is not None and _is_among(port.address, listeners):
            value = f"{port.address} listens (process {broker.pid})"
            yield ok("network", port.name, value, "in use by the broker that runs on this store")
        else:
            yield _taken_port(port, is_running, is_known=bool(listeners))


def check_build(broker: RunningBrokerFacts | None) -> Iterator[Finding]:
    """Warn of a broker whose package was replaced while it runs."""
    if broker is not None and broker.is_of_other_build:
        yield Finding(
            "store", "package", WARN, f"replaced while the broker runs (process {broker.pid})",
            "the broker runs the old files; the next death of a worker ends it",
            "restart the broker; it then runs the new files",
        )  # fmt: skip


def _is_among(address: str, listeners: Sequence[str]) -> bool:
    """True if the address, or its port on every address of this machine, is among the listeners."""
    port = address.rpartition(":")[2]
    return any(listener in listeners for listener in (address, f"0.0.0.0:{port}", f":::{port}"))


def _taken_port(port: PortFacts, is_running: bool | None, *, is_known: bool) -> Finding:
    """Return the finding for a port that is not known to be the broker's. `is_known`: its listeners are known."""
    taken = f"{port.address} {port.error}{f', by {port.owner}' if port.owner else ''}"
    if is_running and not is_known:
        return ok("network", port.name, taken, "in use, presumably by the broker that runs on this store")
    if is_running:
        return Finding(
            "network", port.name, WARN if port.is_needed else OK, taken,
            "in use, but not by the broker of this store, which listens elsewhere",
            "give doctor the options with which the broker was started (-c, --set)",
        )  # fmt: skip
    if is_running is None:
        return Finding(
            "network", port.name, WARN, taken,
            "perhaps in use by the broker of this store, which this user cannot look at", AS_ITS_USER,
        )  # fmt: skip
    remedy = f"stop the process that has it, or choose another port ({port.name})"
    return Finding("network", port.name, FAIL if port.is_needed else WARN, taken, "where it would listen", remedy)


def check_name_servers(peers: Sequence[PeerFacts]) -> Iterator[Finding]:
    """Check that this machine can reach the name servers."""
    for peer in peers:
        yield graded(
            "network",
            "name server",
            WARN if peer.error else OK,
            f"{peer.address} " + (peer.error or "answers"),
            "clients find the broker through it; registration is tried again until it answers",
            "start it, open the firewall, or correct namesrvAddr",
        )


def check_role(facts: RoleFacts) -> Iterator[Finding]:
    """Check that the configuration names the role that the store has."""
    if facts.fault:
        yield Finding("store", "role", FAIL, facts.fault, "without this file the role of the broker is not known")
    if facts.difference:
        yield Finding(
            "store", "role", WARN, facts.difference, "a changed role outlasts restarts and edits of broker.conf",
            "set brokerRole and brokerId to this role, or leave them: they do not count",
        )  # fmt: skip


def check_store(facts: StoreFacts, *, accept_unserved: bool) -> Iterator[Finding]:
    """Check the store: its owner, the end of its last owner, the readability of its files."""
    if not facts.exists and facts.error:
        yield Finding(
            "store", "folder", FAIL, facts.error, "the store cannot be looked at",
            f"{AS_ITS_USER}; else look at the disk",
        )  # fmt: skip
        return
    if not facts.exists:
        yield ok("store", "folder", f"{facts.root} is not there yet", "the first start makes it")
        return
    yield from _access(facts)
    if facts.format_number is not None:
        yield graded(
            "store",
            "format",
            FAIL if facts.format_number > FORMAT else OK,
            f"{facts.format_number} (this RingMQ knows up to {FORMAT})" if facts.format_number else "none yet",
            "rises when an older RingMQ would misread what a newer one writes; none: a store of RocketMQ, or a new one",
            "start a RingMQ that is at least as new as the one that wrote it",
        )
    if facts.error:
        yield Finding(
            "store", "files", FAIL, facts.error, "the store cannot be read with these settings",
            facts.remedy or "give the file sizes that it was made with (-c broker.conf), or restore the files",
        )  # fmt: skip
    if facts.other_sizes:
        yield Finding(
            "store", "files", WARN, facts.other_sizes, "the files have other sizes than these settings",
            "give doctor, and the next start, the settings of this broker (-c, --set)",
        )  # fmt: skip
    for guest, fault in facts.guest_faults:
        yield Finding(
            "store", f"{guest} files", WARN, fault, f"{guest} messages wait in these files, and in the log",
            "start the broker: it rebuilds them from the log, and a log line says so",
        )  # fmt: skip
    yield from _last_end(facts)
    yield from _left_behind(facts, accept_unserved)


def _access(facts: StoreFacts) -> Iterator[Finding]:
    """Check who owns the store, and whether this user may look at it."""
    is_own = facts.is_writable and not facts.foreign_files
    is_refused = not facts.is_writable and facts.is_locked is False
    yield graded(
        "store",
        "folder",
        OK if is_own else FAIL if is_refused else WARN,
        facts.root
        + ("" if facts.is_writable else ", not writable for this user")
        + (f", {facts.foreign_files} entries of another user" if facts.foreign_files else ""),
        "the broker's user has to own it",
        "chown -R USER DIR while no broker runs, or run as the user who owns it",
    )
    meaning = "byte 0 of the file lock; a second broker is refused"
    if facts.is_locked is None:
        mark = ": it has the mark of a broker that runs, or that did not stop cleanly" if facts.has_abort else ""
        yield Finding("store", "owner", WARN, f"unknown whether a broker has it open{mark}", meaning, AS_ITS_USER)
    else:
        yield ok("store", "owner", "a live broker has it open" if facts.is_locked else "nobody has it open", meaning)
    if facts.denied:
        named = "; ".join(facts.denied[:DENIED_NAMED_MAX])
        more = len(facts.denied) - DENIED_NAMED_MAX
        yield Finding(
            "store", "access", FAIL, named + (f"; {more} more" if more > 0 else ""),
            "what this user may not read was not checked", AS_ITS_USER,
        )  # fmt: skip


def _last_end(facts: StoreFacts) -> Iterator[Finding]:
    if facts.failed_cause is not None:
        yield Finding(
            "store", "ringmq.failed", FAIL, facts.failed_cause.strip(),
            "a sync failed: writes are refused until a restart, which reads the log again from the disk",
            "look at the disk (dmesg, smartctl), end all readers (Spark tasks), then restart the broker",
        )  # fmt: skip
    if facts.has_abort and facts.is_locked is False:
        who = "a stock broker" if facts.is_abort_of_stock else "the broker"
        yield Finding(
            "store", "abort", WARN, f"{who} did not stop cleanly",
            "the next start recovers: nothing acknowledged is lost under the configured policy", "start the broker",
        )  # fmt: skip
    if facts.dispatch_lag_bytes is not None and facts.flush_lag_bytes is not None:
        lag = max(facts.dispatch_lag_bytes, facts.flush_lag_bytes)
        yield graded(
            "store",
            "lag",
            WARN if lag > LAG_MAX_BYTES else OK,
            f"{facts.flush_lag_bytes} bytes to flush, {facts.dispatch_lag_bytes} to dispatch",
            "what was taken in and is not on the disk, or not readable, yet",
            "a full or slow disk shows first; the log of the broker names it",
        )
    tail = facts.tail
    if tail is not None:
        yield graded(
            "store",
            "tail of the log",
            FAIL if tail.damage and not facts.has_abort else WARN if tail.damage else OK,
            tail.damage
            or f"{tail.records} records, {tail.bytes / MIB:.1f} MiB up to offset {tail.end_offset} are sound",
            "the newest records were read and their checksums compared",
            "after an unclean stop the next start cuts it. After a clean one look at the disk, and run: "
            + shlex.join(["ringmq", "store", "verify", facts.root]),
        )
    if tail is not None and tail.not_indexed is not None:
        yield Finding(
            "store", "impossible values", WARN, f"in the tail of the log, {tail.not_indexed}",
            "no queue and no index has these records; slaves get them byte for byte",
            "look at memory and disk of this machine, and at the master's. To name each, run: "
            + shlex.join(["ringmq", "store", "verify", facts.root]),
        )  # fmt: skip


def _left_behind(facts: StoreFacts, accept_unserved: bool) -> Iterator[Finding]:
    in_rocksdb = [str(entry) for entry in facts.unsupported if entry.kind == ROCKSDB_TIMERS]
    others = [str(entry) for entry in facts.unsupported if entry.kind != ROCKSDB_TIMERS]
    if in_rocksdb:
        yield Finding(
            "store", "rocksdb", FAIL, "; ".join(in_rocksdb),
            "RingMQ cannot read it and would deliver timer messages again, so it does not start",
            "let the stock broker deliver it, stop it, move the folder out of the store (docs/take-over.md)",
        )  # fmt: skip
    if others:
        yield Finding(
            "store", "unserved", WARN if accept_unserved else FAIL, "; ".join(others),
            "a stock broker has left it, RingMQ does not serve it yet and leaves it untouched",
            "let the stock broker deliver it first, or accept it: --accept-unserved (docs/take-over.md)",
        )  # fmt: skip
    if facts.cut_files or facts.salvage_files:
        yield Finding(
            "store", "cut or salvaged", WARN, f"{facts.cut_files} in ringmq.cut, {facts.salvage_files} in salvage",
            "bytes that a recovery or the replication took out of the log",
            "look at them (ringmq store inspect DIR --salvage NAME), then delete them",
        )  # fmt: skip
