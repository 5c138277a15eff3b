"""Processes of this machine, read from /proc: those that tests have started, and those that take the CPU.

Tests mark what they start by a variable of the environment, which children inherit.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

MARK, SHARED = "STARTED_BY_TESTS", "/shared"
SAMPLE_S = 0.2
TOP = 8
COMMAND_CHARACTERS = 160


def processes() -> Iterator[tuple[int, Path]]:
    """Ids and /proc folders of all processes."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            yield int(folder.name), folder


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Mark processes that are started in this block as used by several files of a group."""
    mark = os.environ.get(MARK, "")
    os.environ[MARK] = mark.removesuffix(SHARED) + SHARED
    try:
        yield
    finally:
        os.environ[MARK] = mark


def started_by(worker: int) -> dict[int, str]:
    """Marks of live processes: those with the present mark or its shared one, and children of `worker` without one."""
    mark = os.environ[MARK]
    found = {}
    for pid, folder in processes():
        with contextlib.suppress(OSError):
            own = mark_of(folder)
            is_child = not own.startswith(mark) and ancestors(pid)[:1] == [worker]
            if pid != os.getpid() and (own in (mark, mark + SHARED) or is_child) and not is_zombie(folder):
                found[pid] = own if own.startswith(mark) else ""
    return found


def pids_marked(mark: str) -> list[int]:
    """Processes that were started with this mark in their environment, shared or not, without this one and zombies."""
    found = []
    for pid, folder in processes():
        with contextlib.suppress(OSError):
            is_marked = mark_of(folder).removesuffix(SHARED) == mark
            if is_marked and pid != os.getpid() and not is_zombie(folder):
                found.append(pid)
    return found


def mark_of(folder: Path) -> str:
    """The mark in the environment that a process was started with, "" for none."""
    prefix = f"{MARK}=".encode()
    marks = [word[len(prefix) :] for word in (folder / "environ").read_bytes().split(b"\0") if word.startswith(prefix)]
    return marks[0].decode(errors="replace") if marks else ""


def is_zombie(folder: Path) -> bool:
    """True if a process has ended and its parent has not asked for its status."""
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"


def ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
            found.append(pid)
    return found


def command_line(pid: int) -> str:
    """The command of a process, as long as it is useful in a line."""
    return whole_command(pid)[:COMMAND_CHARACTERS] or "(ended)"


def whole_command(pid: int) -> str:
    """The words of a process with spaces between them, "" if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def end(pids: Iterable[int]) -> None:
    """Kill processes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def top_processes() -> list[str]:
    """Processes that take the most CPU now: share of one CPU, id, command."""
    before = cpu_ticks()
    time.sleep(SAMPLE_S)  # span: the sample
    ticks_per_sample = os.sysconf("SC_CLK_TCK") * SAMPLE_S
    used = {pid: ticks - before.get(pid, 0) for pid, ticks in cpu_ticks().items()}
    busy = sorted((pid for pid in used if used[pid] > 0 and pid != os.getpid()), key=lambda pid: -used[pid])
    return [f"{used[pid] / ticks_per_sample:.0%} {pid} {command_line(pid)}" for pid in busy[:TOP]]


def cpu_ticks() -> dict[int, int]:
    """Ticks of CPU time that each process has taken."""
    ticks = {}
    for pid, folder in processes():
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            ticks[pid] = int(fields[11]) + int(fields[12])
    return ticks
