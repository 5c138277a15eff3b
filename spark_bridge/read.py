"""Reading one planned range: small mapped windows, one Arrow batch each. No Spark.

A window is mapped, scanned and unmapped, so that a task's address space and resident size stay small
(`spark.executor.pyspark.memory` counts mappings) and no mapping outlives a change of the file. Reading a range twice
gives the same rows.
"""

import contextlib
import mmap
import os
from collections.abc import Iterator

import pyarrow as pa

from ringmq.spark_bridge.columns import Keep, build_batch
from ringmq.spark_bridge.plan import LogRange
from ringmq.spark_bridge.scan import Scan, scan_log
from ringmq.store import record as records

WINDOW_BYTES = 2 << 20  # one batch: Spark is fastest with 1 to 2 MiB
RECORD_BYTES_MAX = 64 << 20


class ReadError(RuntimeError):
    """A range cannot be read; the message names file, offset and reason."""


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
