"""Needs of a test that measures time: `@pytest.mark.timed(cpus=1, memory_mb=1000)`.

Such a test waits until so many CPUs are idle and so much memory is free. After 30 s it is skipped, and the skip names
what was missing. When all tests together have waited for two minutes, the next one is skipped at once.

A run of these tests alone (`-m timed`) imports no other files: all files together take longer than these tests do.
"""

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.suite.recorder import LOG

SAMPLE_S = 0.1
WAIT_S = 30.0
WAIT_OF_ALL_S = 120.0
IDLE_OF_ONE = 0.8
"""Of each CPU that a test needs: pytest itself and the kernel take a part of it while the sample is taken."""
MEMORY_MB = 500
MARK_TEXT = b"mark.timed("
"""Each file of such tests has it: files without it are not read by a run of these tests alone."""


@dataclass(frozen=True)
class Machine:
    """A sample: idle CPUs and memory that can be had without swapping."""

    idle_cpus: float
    free_mb: float


@dataclass(frozen=True)
class Needs:
    """The needs of one test."""

    cpus: float
    memory_mb: float = MEMORY_MB

    def missing(self, machine: Machine) -> str:
        """Name what the machine lacks, "" for nothing."""
        lacks = []
        if machine.idle_cpus < self.cpus * IDLE_OF_ONE:
            lacks.append(f"{self.cpus:g} idle CPUs, found {machine.idle_cpus:.1f}")
        if machine.free_mb < self.memory_mb:
            lacks.append(f"{self.memory_mb:g} MB of memory, found {machine.free_mb:.0f}")
        return " and ".join(lacks)


@dataclass
class Patience:
    """The wait that is left to each test and to all together. Times are seconds of one clock."""

    each_s: float = WAIT_S
    left_s: float = WAIT_OF_ALL_S

    def allows(self, waited_s: float) -> bool:
        """True if a test that has waited so long may go on waiting."""
        return waited_s < min(self.each_s, self.left_s)

    def spend(self, waited_s: float) -> None:
        """A test has ended its wait."""
        self.left_s = max(0.0, self.left_s - waited_s)


PATIENCE = Patience()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of these tests alone leaves files out that mark none."""
    if config.getoption("markexpr") != "timed" or collection_path.suffix != ".py":
        return None
    return None if MARK_TEXT in collection_path.read_bytes() else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mark that came by another file's name would be missed above, so its test would run nowhere."""
    marked = {item.path for item in items if item.get_closest_marker("timed")}
    if hidden := sorted(str(path) for path in marked if MARK_TEXT not in path.read_bytes()):
        text = f"write @pytest.{MARK_TEXT.decode()}...) at the tests of {', '.join(hidden)}"
        print(text, file=LOG, flush=True)  # xdist shows no error of a worker that collects
        raise pytest.UsageError(text)


@cache
def refusal_of_io_uring() -> str:
    """Why io_uring cannot be had here, empty if it can."""
    from ringmq.broker.engine_choice import probe_io_uring  # here: the tests without compiled code have none

    return probe_io_uring()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `timed` waits for what it needs, or is skipped by name. One marked `io_uring` is skipped where that
    is refused."""
    if item.get_closest_marker("io_uring") and (why := refusal_of_io_uring()):
        pytest.skip(why)
    marker = item.get_closest_marker("timed")
    if marker is None:
        return
    needs, began_s = Needs(**marker.kwargs), time.monotonic()
    can_come = needs.cpus <= (os.cpu_count() or 1)
    while missing := needs.missing(sample()):
        if not can_come or not PATIENCE.allows(time.monotonic() - began_s):
            break
    waited_s = time.monotonic() - began_s
    PATIENCE.spend(waited_s if waited_s > 2 * SAMPLE_S else 0.0)
    if missing:
        pytest.skip(f"timed: needs {missing} within {waited_s:.0f} s")


def sample() -> Machine:
    """Watch the machine for a moment."""
    before, began_s = idle_ticks(), time.monotonic()
    time.sleep(SAMPLE_S)  # span: the sample
    ticks = (time.monotonic() - began_s) * os.sysconf("SC_CLK_TCK")
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return Machine((idle_ticks() - before) / ticks, int(meminfo["MemAvailable"].split()[0]) / 1024)


def idle_ticks() -> int:
    """Ticks of all CPUs in which nothing ran, or something waited for a disk."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[4]) + int(fields[5])
