"""Parts of a plan: queues, spans of them, and slices, each one task's work. Plain data, pickled to tasks.

A slice names its rows by queue offsets, which every transport understands. A full scan also names them as bytes of
the log. Both mean the same rows, so a task may choose its way to read them on its own host.
"""

from dataclasses import dataclass
from typing import NamedTuple


class QueueKey(NamedTuple):
    """One queue of one topic on one broker. A tuple: a stream sorts and looks up thousands of them at each trigger."""

    topic: str
    broker: str
    queue_id: int

    @property
    def label(self) -> str:
        """The queue as offset options write it: `broker:queue`."""
        return f"{self.broker}:{self.queue_id}"


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """Queue offsets [`begin`, `end`) of a queue.

    In a slice with a log range, records before `log_begin` (a commit-log offset) do not count: they belong to an
    earlier topic of the same name.
    """

    key: QueueKey
    begin: int
    end: int
    log_begin: int = 0

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Commit-log offsets [`begin`, `end`), both at borders of records, all in one file of the log."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A store as its planner or its broker saw it. A task reads it by shared memory only where it finds the very same
    folder: same boot of the same host (`boot_id`), same inode of `<root>/commitlog`."""

    root: str
    boot_id: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class BrokerLocation:
    """Address and store of a broker; at least one of the two is set."""

    name: str
    address: str | None = None
    store: StoreLocation | None = None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Store times [`begin_ms`, `end_ms`) in milliseconds. None leaves a side open."""

    begin_ms: int | None = None
    end_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """True if every time matches."""
        return self.begin_ms is None and self.end_ms is None


EVERY_TIME = TimeRange()


@dataclass(frozen=True, slots=True)
class Slice:
    """One task's rows, all of one broker: those whose queue offsets are in `spans` and whose store time is in
    `times`.

    With `log`, they are also the records in that range of the log whose queue offsets the spans of their queues hold.
    The task has to read them there: the newest may have no unit in a ConsumeQueue yet.
    """

    broker: BrokerLocation
    spans: tuple[QueueSpan, ...]
    log: LogSpan | None = None
    times: TimeRange = EVERY_TIME

    @property
    def rows_max(self) -> int:
        """The number of rows before the check of times."""
        return sum(span.count for span in self.spans)
