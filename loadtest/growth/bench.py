"""The shared parts of scenarios: a broker for each point, its costs under load, disk space, open files."""

import contextlib
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from ringmq.loadtest.bench.rows import MIB, Context, send_row
from ringmq.loadtest.load.background import BackgroundLoad, running
from ringmq.loadtest.load.process_stats import cpu_seconds, private_bytes
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.load.tools import Report
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import RINGMQ, Goal, Measurement
from ringmq.loadtest.measuring.tables import Column

RECORD_BYTES = 460  # of a message of 200 B in log, queue and index, about
RESERVE_BYTES = 2 << 30  # of the disk, always left free
FILES_BESIDE = 4096  # that a broker may need beside its connections


class GrowthError(RuntimeError):
    """A scenario cannot run here. The message names its needs."""


@dataclass(frozen=True)
class Point:
    """One run at one point of the axis."""

    at: float
    measurement: Measurement


@dataclass
class Bench:
    """Lengths and sizes of a run."""

    context: Context
    settings: Mapping[str, str | int | bool] = field(default_factory=dict)
    soak_s: float = 3600.0
    soak_rate: float = 0.0
    """Messages/s, 0 for half of the best rate."""
    warm_memory: bool = False
    """If True, touch free memory before each scenario."""
    say: Callable[[str], None] = print

    @property
    def folder(self) -> Path:
        """The folder of the current broker."""
        return self.context.folder / RINGMQ

    @property
    def store(self) -> Path:
        """The current broker's store."""
        return self.folder / "store"

    def start(
        self, settings: Mapping[str, str | int | bool] = MappingProxyType({}), *, keep: bool = False
    ) -> RingmqTarget:
        """Start a broker, on an empty store unless `keep`."""
        return RingmqTarget(self.folder, {**self.settings, **settings}, self.context.cpus, keep=keep)

    @contextlib.contextmanager
    def broker(self, **settings: str | int | bool) -> Iterator[RingmqTarget]:
        """Yield a broker on an empty store, which is removed."""
        with contextlib.closing(self.start(settings)) as target:
            yield target

    def circumstances(self) -> Document:
        """Return the conditions of a run."""
        return {**self.context.circumstances(), "settings": dict(self.settings), "warm_memory": self.warm_memory}

    def quick_check(self, target: RingmqTarget, topic: str, **lanes: object) -> Report:
        """Read everything back."""
        return self.context.loader(target.port).run("verify", topic=topic, **lanes)


@dataclass(frozen=True)
class Scenario:
    """One table. `run` measures the points of `values` in order. The first one is the reference of the others."""

    name: str
    title: str
    axis: str
    values: tuple[float, ...]
    run: Callable[[Bench, Sequence[float]], Iterator[Point]]
    columns: tuple[Column, ...]
    goals: Mapping[float, tuple[Goal, ...]] = field(default_factory=dict)
    """Goals by point. LAST is the last point."""
    once: bool = False
    """True if the scenario is too long for a repetition in every round."""


LAST = float("inf")
RATE_COLUMNS = (
    Column("msg/s", "messages_per_s"),
    Column("of the first", "kept", "{:.2f}"),
    Column("p50 us", "p50"),
    Column("p99 us", "p99"),
    Column("p99.9 us", "p99_9"),
)
COST_COLUMNS = (
    Column("private MiB", "private_mib", "{:.1f}"),
    Column("CPU us a message", "cpu_us", "{:.2f}"),
)


class MemoryWatch:
    """Samples the private memory of processes while a block runs: MiB by seconds since its begin.

    Raises GrowthError at the block's end if a sample failed: memory without samples is not proven flat.
    """

    def __init__(self, pids: Callable[[], Mapping[int, str]], every_s: float = 1.0) -> None:
        self._pids = pids
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)
        self._began = time.monotonic()
        self._error: Exception | None = None
        self.samples: list[tuple[float, float]] = []

    def _sample(self) -> None:
        mib = private_bytes(self._pids())["total"] / MIB
        self.samples.append((time.monotonic() - self._began, mib))

    def _sample_until_stopped(self) -> None:
        try:
            while not self._end.wait(self._every_s):
                self._sample()
        except Exception as error:  # raised later, in the thread that waits
            self._error = error

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if error is not None:
            return
        if self._error is not None:
            raise GrowthError(
                f"the memory of the broker was not watched to the end: {type(self._error).__name__}: {self._error}"
            ) from self._error
        self._sample()

    @property
    def largest_mib(self) -> float:
        """The largest sample."""
        return max(mib for _, mib in self.samples)


def cpu_us(report: Report) -> float:
    """Return the processor time of the broker per message, all processes together."""
    used = sum(process["user_s"] + process["system_s"] for process in report["watched"].values())
    return float(1e6 * used / max(report["messages"], 1))


def busy_percent(target: RingmqTarget, seconds: float) -> float:
    """Return the processor time of the broker within so many seconds, in percent of one CPU."""
    pids = target.pids()
    before = cpu_seconds(pids)
    time.sleep(seconds)
    return 100 * (cpu_seconds(pids) - before) / seconds


def sends(bench: Bench, target: RingmqTarget, name: str, **options: object) -> Measurement:
    """Run a closed loop of sends with everything read back, and return its costs."""
    with MemoryWatch(target.pids) as memory:
        measured = send_row(name, "send", **options)(bench.context, target)
    values = {**measured.values, "private_mib": memory.largest_mib, "cpu_us": cpu_us(dict(measured.raw))}
    return replace(measured, values=values)


@contextlib.contextmanager
def background(bench: Bench, target: RingmqTarget, command: str, **options: object) -> Iterator[BackgroundLoad]:
    """Yield a load that does not outlive the block."""
    with running(bench.context.tools, target.port, command, **options) as found:
        yield found


def faults(sent: Report, read: Report, groups: int = 1) -> list[str]:
    """Return differences between the sends and the reads of full consumers: lost, doubled, changed, out of order."""
    wrong = []
    if not read["ok"]:
        wrong.append(f"consumers: {read['errors']} {read['remark']} {read['trouble']}".strip())
    if read["read"] != groups * sent["acked"]:
        wrong.append(f"consumed {read['read']} of {groups * sent['acked']}")
    if read["read_crc_sum"] != groups * sent["acked_crc_sum"] % (1 << 64):
        wrong.append("what was consumed differs from what was sent")
    return wrong


def need_space(bench: Bench, wanted_bytes: int, what: str) -> None:
    """Raise GrowthError unless the disk has so much free space."""
    bench.context.folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(bench.context.folder).free - RESERVE_BYTES
    if free < wanted_bytes:
        raise GrowthError(
            f"{what} needs {wanted_bytes / 1e9:.1f} GB of disk under {bench.context.folder}, {max(free, 0) / 1e9:.1f} "
            f"GB are free beside a reserve of {RESERVE_BYTES / 1e9:.1f} GB: make room, or choose a smaller size"
        )


def need_files(connections: int) -> None:
    """Raise the limit of open files as far as possible. Raises GrowthError if it is too low for so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = connections + FILES_BESIDE
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise GrowthError(
            f"{connections} connections need {wanted} open files in broker and loader each, the hard limit is {hard}: "
            "raise it (ulimit -Hn, LimitNOFILE), or choose fewer connections"
        )


def queue_kib(store: Path, topics: str, queues: int) -> tuple[float, float]:
    """Return KiB of disk per queue of the topics with this prefix: (blocks of queue files, blocks of their folders)."""
    files = folders = 0
    found = list((store / "consumequeue").glob(f"{topics}*"))
    for path in [*found, *(path for topic in found for path in topic.rglob("*"))]:
        blocks = path.stat().st_blocks * 512
        if path.is_dir():
            folders += blocks
        else:
            files += blocks
    return files / 1024 / queues, folders / 1024 / queues
