"""Reading one slice: where its rows come from is chosen here, on the host of the task. No Spark.

By shared memory where the task sees the very files that the planner or the broker saw (same boot, same inode), over
remoting otherwise. Both ways give the same rows.
"""

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from ringmq.spark_bridge.columns import Keep, build_batch
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.plan import LogRange
from ringmq.spark_bridge.scan import Scan, scan_log
from ringmq.spark_bridge.slices import Slice, StorePlace
from ringmq.store import record as records

WINDOW_BYTES = 2 << 20  # one batch: Spark is fastest with 1 to 2 MiB
RECORD_BYTES_MAX = 64 << 20
BATCH_BYTES = 1 << 20
BATCH_ROWS = 8192
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Transport = Literal["auto", "shm", "tcp"]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a slice is read; pickled to tasks. `window_bytes` of the log are mapped at a time, a batch ends at
    `batch_bytes` of values or `batch_rows` rows.

    With `reuse_buffers` a batch is overwritten when the next one is asked for: for callers like Spark, which
    serialises each batch before that.
    """

    transport: Transport = "auto"
    verify_crc: bool = False
    fail_on_data_loss: bool = True
    window_bytes: int = 4 << 20
    batch_bytes: int = BATCH_BYTES
    batch_rows: int = BATCH_ROWS
    reuse_buffers: bool = False
    pull_group: str = "spark-ringmq"  # the consumer group in whose name tasks pull over tcp


def store_here(place: StorePlace) -> bool:
    """Whether this host has the store that `place` means: same boot of the same host, same inode of its commit log."""
    try:
        status = (Path(place.root) / "commitlog").stat()
        boot_id = BOOT_ID.read_text().strip()
    except OSError:
        return False
    return (boot_id, status.st_dev, status.st_ino) == (place.boot_id, place.device, place.inode)


def read_slice(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> Iterator[pa.RecordBatch]:
    """The slice's rows as batches of `columns` (names of `schema.COLUMNS`); log order or queue by queue.

    Raises `DataLossError` (unless told not to) and `ReadError`.
    """
    if _by_shared_memory(part, how):
        from ringmq.spark_bridge.shm_log import read_log
        from ringmq.spark_bridge.shm_queues import read_queues

        return read_log(part, columns, how) if part.log else read_queues(part, columns, how)
    from ringmq.spark_bridge.tcp_reader import read_over_tcp

    return read_over_tcp(part, columns, how)


def _by_shared_memory(part: Slice, how: ReadSettings) -> bool:
    place, address = part.broker.store, part.broker.address
    if how.transport != "tcp" and place is not None and store_here(place):
        return True
    if how.transport == "shm" or address is None:
        where = f"the store {place.root} that was planned" if place else "a store"
        raise ReadError(
            f"broker {part.broker.name}: this task's host does not have {where} (another host, boot or folder); run "
            "the tasks on the broker's host, or read with transport=auto and the option bootstrap"
        )
    return False


def read_range(
    log_range: LogRange,
    columns: tuple[str, ...],
    keep: Keep,
    *,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Batches of the range's rows, in log order. Raises `ReadError`."""
    try:
        descriptor = os.open(log_range.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ReadError(
            f"{log_range.path} is gone since the read was planned (retention), or is not on this host"
        ) from None
    try:
        file_bytes = os.fstat(descriptor).st_size
        if log_range.end - log_range.file_start > file_bytes:
            raise ReadError(f"{log_range.path} has {file_bytes} bytes, less than planned: it was replaced")
        at, wanted = log_range.begin, window_bytes
        while at < log_range.end:
            window_end = min(log_range.end, at + wanted)
            with _Window(descriptor, log_range.file_start, at, window_end) as window:
                scan = window.scan(at, window_end)
                if len(scan.rows):
                    batch = build_batch(scan, window.mapped, window.start, columns, keep)
                    if batch.num_rows:
                        yield batch
                    del batch
                stopped_at = window.start + scan.stopped_at
            if scan.reason == records.BLANK:
                return  # the rest of the file is empty
            if scan.reason not in (records.END, records.FULL, records.SHORT):
                raise ReadError(f"{log_range.path}: no record at {stopped_at}: {_reason(scan.reason)}")
            if stopped_at > at:
                at, wanted = stopped_at, window_bytes
            elif window_end == log_range.end or wanted >= RECORD_BYTES_MAX:
                raise ReadError(f"{log_range.path}: no whole record at {stopped_at}")
            else:
                wanted *= 2  # one record is larger than the window
    finally:
        os.close(descriptor)


def _reason(code: int) -> str:
    return records.REASONS.get(code, str(code))


class _Window:
    """A mapped piece of the file, from the page border below `begin` to `end`."""

    def __init__(self, descriptor: int, file_start: int, begin: int, end: int) -> None:
        first = (begin - file_start) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        self.start = file_start + first
        self.mapped = mmap.mmap(descriptor, end - self.start, mmap.MAP_SHARED, mmap.PROT_READ, offset=first)

    def scan(self, begin: int, end: int) -> Scan:
        """Records of [begin, end), commit-log offsets."""
        return scan_log(self.mapped, begin - self.start, end - self.start, self.start)

    def __enter__(self) -> "_Window":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BufferError):  # a batch of ours still looks at it: it is unmapped when that goes
            self.mapped.close()
