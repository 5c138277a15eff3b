"""Content of the bundle: the doctor's findings, settings, versions, the store from outside, processes, /proc."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from msgspec import structs

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.check import EffectiveValue
from ringmq.broker.config.run_config import store_config
from ringmq.doctor.bundle import ENTRY_BYTES_MAX, Entry, json_entry, text_entry
from ringmq.doctor.finding import Finding
from ringmq.doctor.render import render
from ringmq.ipc.segment import SHM_DIR, plane_name
from ringmq.ipc.watermark import read_watermarks
from ringmq.store import inspect, layout
from ringmq.store.message_store import MessageStore
from ringmq.store.store_task import TASK_FILE
from ringmq.store.write_hold import HOLD_FILE

LISTED_FILES_MAX = 5000
LISTED_QUEUES_MAX = 2000
PROCESSES_MAX = 64
PROC_FILES = (
    *("cpuinfo", "meminfo", "loadavg", "vmstat", "diskstats", "swaps", "uptime", "version", "cmdline"),
    *("self/mountinfo", "self/limits", "self/cgroup", "net/sockstat", "net/netstat", "net/snmp"),
    *("pressure/cpu", "pressure/io", "pressure/memory"),
)
PROCESS_FILES = ("cmdline", "status", "limits", "stat", "schedstat", "wchan", "io", "cgroup", "stack")
MARKER_FILES = (
    *(layout.ABORT, layout.BOOT_MARKER, layout.FAILED_MARKER, layout.FORMAT_MARKER),
    *(f"{layout.CONFIG}/{name}" for name in (TASK_FILE, HOLD_FILE)),
)


def collect(
    config: BrokerConfig, values: Sequence[EffectiveValue], findings: Sequence[Finding], proc: Path = Path("/proc")
) -> Iterator[Entry]:
    """Yield all entries about this machine, the most useful first: a full bundle loses the last ones."""
    yield json_entry("doctor.json", [dataclasses.asdict(finding) for finding in findings])
    lines = render(findings, 110, verbose=True, paint=lambda text, colour: text)
    yield text_entry("doctor.txt", "\n".join(lines) + "\n")
    settings = "".join(f"{value.name}={value.value}\t# {value.place}\n" for value in values)
    yield text_entry("config.properties", settings)
    yield json_entry("versions.json", versions())
    root = Path(config.store_path_root_dir)
    try:
        marks = read_watermarks(root) if root.is_dir() else None
    except OSError as error:  # another user's
        marks = None
        yield json_entry("store/watermarks.json", {"error": str(error)})
    if marks is not None:
        yield json_entry("store/watermarks.json", {**structs.asdict(marks), "confirm_offset": marks.confirm_offset})
        yield from _store(config, root)
        yield from _processes(proc, marks.owner_pid if marks.live else 0)
    for name in PROC_FILES:
        yield from _file(proc / name, f"proc/{name}")


def versions() -> dict[str, Any]:
    """Return the versions of RingMQ, Python, the kernel and the installed packages."""
    packages = {found.metadata["Name"]: found.version for found in metadata.distributions() if found.metadata["Name"]}
    return {
        "ringmq": packages.get("ringmq", "unknown"),
        "python": sys.version,
        "executable": sys.executable,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _os_release(),
        "packages": dict(sorted(packages.items())),
    }


def _os_release() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _store(config: BrokerConfig, root: Path) -> Iterator[Entry]:
    """Yield names, sizes and ranges. Of a record only the times are decoded."""
    for name in MARKER_FILES:
        yield from _file(root / name, f"store/{name}")
    rows = [_listed(path, root) for path in itertools.islice(_walk(root), LISTED_FILES_MAX)]
    yield text_entry("store/files.txt", "bytes on_disk modified_s mode path\n" + "".join(rows))
    shm = [_listed(path, SHM_DIR) for path in sorted(SHM_DIR.glob(f"{plane_name(root)}-*"))]
    yield text_entry("store/shared_memory.txt", "bytes on_disk modified_s mode path\n" + "".join(shm))
    try:
        store = MessageStore(store_config(config))
        marks = read_watermarks(root)
        is_closed = not marks.live and marks.lock_holder is None
        end = marks.confirm_offset if marks.live else store.log_end() if is_closed else store.queue_end()
        survey: dict[str, Any] = {
            **inspect.overview(store, end),
            "log_files": inspect.log_files(store, end),
            "queues": _queues(store, end),
        }
    except Exception as error:  # a store in disorder is why somebody makes a bundle
        survey = {"error": f"{type(error).__name__}: {error}"}
    yield json_entry("store/survey.json", survey)


def _queues(store: MessageStore, end: int) -> list[dict[str, Any]]:
    names = itertools.islice(store.queue_names(), LISTED_QUEUES_MAX)
    return [row for topic in dict.fromkeys(name.topic for name in names) for row in inspect.queues(store, end, topic)]


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(files))


def _listed(path: Path, root: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        return f"- - - - {path.relative_to(root)}: {error.strerror}\n"
    return (
        f"{status.st_size} {status.st_blocks * 512} {status.st_mtime:.3f} {status.st_mode:o} {path.relative_to(root)}\n"
    )


def _processes(proc: Path, owner: int) -> Iterator[Entry]:
    """Yield /proc of the broker's main process and its workers."""
    for pid in broker_processes(owner) if owner else ():
        for name in PROCESS_FILES:
            yield from _file(proc / str(pid) / name, f"processes/{pid}/{name}")
        try:
            count = sum(1 for _ in (proc / str(pid) / "fd").iterdir())
        except OSError:
            continue
        yield text_entry(f"processes/{pid}/open_files", f"{count}\n")


def broker_processes(owner: int) -> list[int]:
    """Return `owner` and its children, at most PROCESSES_MAX."""
    with contextlib.suppress(psutil.Error):
        return sorted([owner, *(child.pid for child in psutil.Process(owner).children())])[:PROCESSES_MAX]
    return [owner]


def _file(path: Path, name: str) -> Iterable[Entry]:
    try:
        with path.open("rb") as file:
            data = file.read(ENTRY_BYTES_MAX)
    except OSError:
        return ()
    return (text_entry(name, data.replace(b"\0", b" ").decode("utf-8", "replace")),)


def log_tail(path: Path) -> Entry:
    """Return the end of a log file. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - ENTRY_BYTES_MAX))
        return text_entry(f"log/{path.name}", file.read(ENTRY_BYTES_MAX).decode("utf-8", "replace"))
