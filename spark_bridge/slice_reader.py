"""The read of one slice, with the choice of its way on the host of the task. No Spark.

If the task sees the very files that the planner or the broker saw (same boot, same inode), it reads by shared memory,
otherwise over remoting. Both ways give the same rows.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ringmq.native import available
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slices import Slice, StoreLocation
from ringmq.store.markers import BOOT_ID


def store_here(place: StoreLocation) -> bool:
    """True if this host has the store of `place`: same boot of the same host, same inode of its commit log."""
    try:
        status = (Path(place.root) / "commitlog").stat()
        boot_id = BOOT_ID.read_text().strip()
    except OSError:
        return False
    return (boot_id, status.st_dev, status.st_ino) == (place.boot_id, place.device, place.inode)


def read_slice(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield the slice's rows as batches of `columns` (names of `schema.COLUMNS`), in log order or queue by queue.

    Raises `DataLossError` (unless failOnDataLoss is false) and `ReadError`.
    """
    if not _by_shared_memory(part, how):
        from ringmq.spark_bridge.tcp_reader import read_over_tcp

        return read_over_tcp(part, columns, how)
    from ringmq.spark_bridge.shm_log import read_log
    from ringmq.spark_bridge.shm_queues import read_queues, units_answer

    if part.log is None or units_answer(part, columns, how):
        return read_queues(part, columns, how)
    return read_log(part, columns, how)


def _by_shared_memory(part: Slice, how: ReadSettings) -> bool:
    place, broker = part.broker.store, part.broker
    obstacle = "transport=tcp was asked for" if how.transport == "tcp" else _obstacle(place)
    may_pull = how.transport != "shm" and broker.address is not None
    if place is not None and not obstacle:
        return not may_pull or how.transport == "shm" or os.access(f"{place.root}/commitlog", os.R_OK | os.X_OK)
    if may_pull:
        return False
    raise ReadError(
        f"broker {broker.name}: {obstacle}, and its address is not known; run the tasks on the broker's host with "
        "ringmq[spark] installed, or give the option bootstrap and transport=auto"
    )


def _obstacle(place: StoreLocation | None) -> str:
    """Reason why this host cannot read the store's files, empty if it can."""
    if place is None:
        return "no store was planned"
    if not store_here(place):
        return f"this task's host does not have the store {place.root} that was planned (another host, boot or folder)"
    return "" if available() else "the C core, which reads the mapped log, is not installed on this task's host"
