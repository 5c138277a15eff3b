"""After a failed fsync the log is read from the disk: cached pages look clean though the disk never got them."""

import os

from ringmq.native import lib
from ringmq.store import layout
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import FileQueue, MappedFileCache, StoreLoadError
from ringmq.store.segment_lock import lock_for_deletion


class LogInUseError(StoreLoadError):
    """A log file whose cached pages have to be dropped is being read by another process."""


def drop_caches(config: StoreConfig) -> None:
    """Drop cached pages: after a failed fsync they look clean though the disk never got them.

    The file system as a whole still has that failure to report, and dispatch would get it in its first sync round.
    Mapped pages cannot be dropped: raises LogInUseError if a reader has claimed a log file.
    """
    lib.rmq_file_system_sync(os.fsencode(config.root))
    log = FileQueue(config.commit_log_directories, config.commit_log_file_bytes, MappedFileCache(1))
    for path in map(log.path, log.starts):
        descriptor = lock_for_deletion(path)
        if descriptor is None:
            raise LogInUseError(
                f"{path} is being read by another process: end the readers (Spark tasks), then start again; "
                "after a failed fsync the log has to be read from the disk, and what a reader maps stays in memory"
            )
        _drop_pages(descriptor)
    for name in (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE, layout.INDEX):
        for path in (config.root / name).rglob("*"):
            if path.is_file():
                _drop_pages(os.open(path, os.O_RDONLY))


def _drop_pages(descriptor: int) -> None:
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
