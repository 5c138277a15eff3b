"""Memory and processor time of a broker's processes, read from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)  # before its file was opened, before it was read


def family(pid: int) -> list[int]:
    """Return `pid` and all processes below it."""
    found = [pid]
    for parent in found:
        for task in _tasks(parent):
            try:
                children = (task / "children").read_text().split()
            except OSError:
                continue  # the thread ended meanwhile
            found.extend(int(child) for child in children)
    return found


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except _GONE:
        return []


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the user and system time of these processes so far. Ended ones do not count."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except _GONE:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def busy_seconds(pids: Iterable[int]) -> float:
    """Return the same in the scheduler's nanoseconds, for spans of milliseconds."""
    total = 0
    for task in (task for pid in pids for task in _tasks(pid)):
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except _GONE:
            continue
    return total / 1e9


def private_bytes(pids: Iterable[int]) -> dict[str, int]:
    """Return `anonymous` (pages without a file), `shared` (resident pages of segments) and `total` (both).

    A page or segment of several of these processes counts once, as for ringmqMemoryMax. Files of the store (anything
    on a real file system) belong to the page cache and do not count.
    """
    from ringmq.ipc.memory import private_bytes as anonymous_bytes

    alive: list[int] = []
    segments: dict[str, int] = {}
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/smaps").read_text()
        except _GONE:
            continue
        alive.append(pid)
        for segment, resident in shared_segments(maps).items():
            segments[segment] = max(segments.get(segment, 0), resident)
    anonymous = anonymous_bytes(alive)
    shared = sum(_allocated(segment, resident) for segment, resident in segments.items())
    return {"anonymous": anonymous, "shared": shared, "total": anonymous + shared}


def resident_anonymous_bytes(pid: int) -> int:
    """Return RssAnon of a process, 0 if it is gone. Pages that it shares with its parent count in full."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except _GONE:
        return 0
    return sum(_kib(line) for line in status.splitlines() if line.startswith("RssAnon:")) * 1024


def shared_segments(smaps: str) -> dict[str, int]:
    """Return resident bytes of each memory-backed shared mapping of an smaps text.

    Keys are paths (with `:inode` for memfds).
    """
    found: dict[str, int] = {}
    segment: str | None = None
    for line in smaps.splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            path = words[5] if len(words) > 5 else ""
            memory = path.startswith(("/dev/shm/", "/memfd:", "/dev/zero")) and words[1].endswith("s")
            segment = (path if path.startswith("/dev/shm/") else f"{path}:{words[4]}") if memory else None
        elif segment is not None and words[0] == "Rss:":
            found[segment] = found.get(segment, 0) + _kib(line) * 1024
    return found


def _allocated(segment: str, resident: int) -> int:
    """Return the allocated bytes of a segment: a single process may have touched only a part of it."""
    try:
        return max(resident, os.stat(segment).st_blocks * 512)  # noqa: PTH116 - a memfd's name is no path
    except OSError:
        return resident


def _kib(line: str) -> int:
    return int(line.split()[1])
