"""Log lines about read workers that close connections for want of a resource: one line per kind, worker and minute.

The readers count. The main process reads their counters, so that a busy control does not delay the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.workers import read_name
from ringmq.native import lib

LOOK_EVERY_MS = 1000
LINE_EVERY_MS = 60_000
SHORT_FOR_MS = 60_000
"""Time after a close for want of memory during which a reader counts as short of memory."""
SHORTAGE, ANSWERS, PARTIAL, LARGE, FULL, HOST = (
    int(lib.RMQ_READ_CLOSED_SHORTAGE),
    int(lib.RMQ_READ_CLOSED_ANSWERS),
    int(lib.RMQ_READ_CLOSED_PARTIAL),
    int(lib.RMQ_READ_CLOSED_LARGE),
    int(lib.RMQ_READ_CLOSED_FULL),
    int(lib.RMQ_READ_CLOSED_HOST),
)
KINDS = (SHORTAGE, ANSWERS, PARTIAL, LARGE, FULL, HOST)


class ReaderWatchCore:
    """Decides which lines to write: `step(counts, now_ms)`."""

    def __init__(self, cause: Callable[[int], str]) -> None:
        """`cause`: kind of close -> the closed connections and their limit, for the line."""
        self._cause = cause
        self._seen: dict[tuple[str, int], int] = {}
        self._unlogged: dict[tuple[str, int], int] = {}
        self._told_ms: dict[tuple[str, int], int] = {}

    def step(self, counts: Mapping[str, Mapping[int, int]], now_ms: int) -> Iterator[str]:
        """`counts`: worker -> kind -> closes since the worker started."""
        for worker, kinds in counts.items():
            for kind, count in kinds.items():
                key = worker, kind
                seen = self._seen.get(key, 0)
                self._seen[key] = count
                new = count - seen if count >= seen else count  # fewer: a replacement counts from 0
                self._unlogged[key] = self._unlogged.get(key, 0) + new
                told_ms = self._told_ms.get(key)
                if self._unlogged[key] and (told_ms is None or now_ms - told_ms >= LINE_EVERY_MS):
                    self._told_ms[key] = now_ms
                    yield f"worker {worker} closed {self._unlogged.pop(key)} {self._cause(kind)} (docs/limits.md)"


class ReaderWatch:
    """Watches the readers of one plane."""

    def __init__(self, plane: Plane, config: BrokerConfig, log: Callable[[str], None]) -> None:
        self._plane = plane
        self._log = log
        self._look_ms = 0
        self._core = ReaderWatchCore(lambda kind: cause(kind, config))

    def tick(self, now_ms: int) -> None:
        """Check once a second. `now_ms`: of the monotonic clock."""
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_EVERY_MS
        for line in self._core.step(_counts(self._plane), now_ms):
            self._log(line)


def cause(kind: int, config: BrokerConfig) -> str:
    """The text of a kind of close: the closed connections, and the property that limits them."""
    return {
        SHORTAGE: "connections to free memory for waiting frames: ringmqReceiveBufferCount = "
        f"{config.receive_buffer_count}, ringmqReassemblyBytesMax = {config.reassembly_bytes_max}",
        ANSWERS: "connections with the most unread answers: all answers exceeded ringmqAnswerBytesMax = "
        f"{config.answer_bytes_max}",
        PARTIAL: "connections with an incomplete frame after ringmqPartialFrameTimeoutMs = "
        f"{config.partial_frame_timeout_ms}",
        LARGE: "connections that announced a frame of more than 16777216 bytes, or of more than 3/4 of "
        f"ringmqReassemblyBytesMax = {config.reassembly_bytes_max}",
        FULL: f"new connections beyond ringmqConnectionsMax = {config.connections_max}",
        HOST: "new connections of hosts beyond ringmqHostConnectionsMax",
    }[kind]


def short_readers(plane: Plane, now_ms: int) -> list[str]:
    """Notes for `/health` and `/ready`: the readers that have closed connections for want of memory lately."""
    notes = []
    for reader in plane.readers:
        counters = plane.role(reader.role).counters
        short_ms = int(counters[lib.RMQ_READ_SHORT_MS])
        if short_ms and now_ms - short_ms < SHORT_FOR_MS:
            free = int(counters[lib.RMQ_READ_BLOCK_BYTES_FREE]) >> 20
            notes.append(
                f"worker {read_name(reader.number)} was short of memory for clients "
                f"{max(0, now_ms - short_ms) // 1000} s ago: "
                f"{int(counters[lib.RMQ_READ_BUFFERS_FREE])} receive buffers and {free} MiB for frames are free"
            )
    return notes


def _counts(plane: Plane) -> dict[str, dict[int, int]]:
    counters = {read_name(reader.number): plane.role(reader.role).counters for reader in plane.readers}
    return {name: {kind: int(words[kind]) for kind in KINDS} for name, words in counters.items()}
