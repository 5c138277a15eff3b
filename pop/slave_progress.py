"""Control of a slave keeps a copy of its master's POP memory. The slave goes on with it when it is made the master.

A copy waits until the slave's log has all that it tells of: copies of messages in topics of retries above all. A thread
writes the files, because control waits for no disk.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ringmq.broker.config.live_config import LiveConfig
from ringmq.pop.copy_files import CopyError, CopyFiles
from ringmq.pop.copy_sync import WAIT_MS_MAX, CopySync, Known

log = logging.getLogger(__name__)


class SlaveProgress:
    """See `ringmq.broker.replication.slave_role.SlaveProgress`. `root`: of the store."""

    what = "open messages of POP"
    is_wanted = True

    def __init__(self, live: LiveConfig, root: Path) -> None:
        self._files = CopyFiles(root)
        self.sync = CopySync(_known(self._files))
        self._thread = ThreadPoolExecutor(1, "pop-copy")
        self._applied: Future[Known] | None = None

    def close(self) -> None:
        """See SlaveProgress."""
        self._thread.shutdown()

    def save(self, own_end: int, now_ms: int) -> None:
        """See SlaveProgress."""
        try:
            self._go_on(own_end, now_ms)
        except (OSError, CopyError) as error:
            self._applied = None
            self.sync.dropped(now_ms)
            self._files.drop()
            raise error if isinstance(error, OSError) else OSError(str(error)) from error

    def _go_on(self, own_end: int, now_ms: int) -> None:
        sync = self.sync
        if self._applied is not None:
            if self._applied.done():
                applied, self._applied = self._applied, None
                sync.taken_over(applied.result())
            return
        if sync.is_gone:
            self._files.remove()
            sync.taken_over(Known())
        if sync.coming is None:
            self._files.drop()
            return
        for piece in sync.take_pieces():
            self._files.add(piece)
        if not sync.is_whole:
            return
        if sync.coming.log_end <= own_end:
            self._applied = self._thread.submit(self._files.apply, sync.coming, sync.known)
        elif now_ms - sync.came_ms > WAIT_MS_MAX:
            raise CopyError(f"the log ends at {own_end}, the copy of POP's memory waits for {sync.coming.log_end}")


def _known(files: CopyFiles) -> Known:
    """The state of the copy. One that cannot be read now stays: a start as the master may be able to."""
    try:
        return files.known()
    except OSError as error:
        log.warning("%s", f"the copy of the master's open messages cannot be read: {error}; another one follows")
        return Known()
