"""The decisions of the dispatch worker between two slices of its C loop: cleaning, checkpoint values, the fault
marker.
"""

import logging
import os
import resource
from pathlib import Path
from typing import Any

from ringmq.broker.config.run_config import read_run_config, store_config
from ringmq.ipc.plane import Plane
from ringmq.ipc.worker import WorkerSpec
from ringmq.native import ffi, lib
from ringmq.store.inferred_config import check_index_sizes
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.markers import write_failed_marker
from ringmq.store.record_values import not_indexed_line

log = logging.getLogger(__name__)

QUEUES_PER_SLICE = 256
OPEN_FILES_MAX = 16_384


class DispatchShell:
    """The shell. The dispatch worker owns it; all calls come from its main thread."""

    def __init__(self, plane: Plane, spec: WorkerSpec) -> None:
        self.config = read_run_config(Path(spec.config_path))
        self.dispatcher: Any = None
        self._plane = plane
        self._cleaned_min_offset = int(plane.watermarks.min_offset)
        self._next_slot = 0
        self._cleaning_to: int | None = None
        self._fault_told = 0
        self._impossible_told = self._impossible_field()

    def open_files_max(self) -> int:
        """Half of the descriptors that this process may have, at most OPEN_FILES_MAX. Raises the soft limit first."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2 * OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, 2 * OPEN_FILES_MAX)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return max(16, min(OPEN_FILES_MAX, max(soft, wanted) // 2))

    def log_damaged_index(self) -> None:
        """Name the index file whose length prevents the start of dispatch."""
        try:
            check_index_sizes(store_config(self.config))
        except (StoreLoadError, OSError) as error:
            logging.getLogger(__name__).error("%s", error)

    def idle(self, reason: int) -> None:
        """Called after each slice."""
        state = ffi.new("struct rmq_dispatch_state *")
        lib.rmq_dispatcher_state(self.dispatcher, state)
        counters = self._plane.role(lib.RMQ_ROLE_DISPATCH).counters
        counters[lib.RMQ_DISPATCH_QUEUES_SYNCED_MS] = state.synced_store_time_ms
        counters[lib.RMQ_DISPATCH_INDEX_SYNCED_MS] = state.full_index_synced_time_ms
        if state.dispatch_fault != self._fault_told:
            self._fault_told = state.dispatch_fault
            self._log_fault(state)
        self._log_impossible()
        self._clean_a_little()

    def _log_fault(self, state: Any) -> None:
        if state.dispatch_fault == lib.RMQ_FAULT_QUEUE_SYNC:
            leave_failed_marker(Path(self.config.store_path_root_dir), state.dispatch_fault_errno)
        elif state.dispatch_fault:
            cause = os.strerror(state.dispatch_fault_errno)
            log.error("a consume queue or index cannot be written: %s", cause)

    def _impossible_field(self) -> int:
        return int(self._plane.role(lib.RMQ_ROLE_DISPATCH).counters[lib.RMQ_DISPATCH_IMPOSSIBLE_FIELD])

    def _log_impossible(self) -> None:
        """Log the first record that is not indexed, once in a run of the broker."""
        field = self._impossible_field()
        if not field or self._impossible_told:
            return
        self._impossible_told = field
        counters = self._plane.role(lib.RMQ_ROLE_DISPATCH).counters
        line = not_indexed_line(
            int(counters[lib.RMQ_DISPATCH_NOT_INDEXED]), int(counters[lib.RMQ_DISPATCH_IMPOSSIBLE_OFFSET]), field
        )
        log.warning("%s", line)

    def _clean_a_little(self) -> None:
        """Delete queue files below the log's beginning, some queues per slice, so that dispatch never stops for it."""
        if self._cleaning_to is None:
            low = int(self._plane.watermarks.min_offset)
            if low <= self._cleaned_min_offset:
                return
            self._cleaning_to, self._next_slot = low, 0
        end = min(self._next_slot + QUEUES_PER_SLICE, self._plane.header.tables.queue_count)
        for slot in range(self._next_slot, end):
            if not lib.rmq_dispatcher_may_clean(self.dispatcher):
                end = slot  # the rest follows when deleted files have been freed
                break
            self._log_line(lib.rmq_dispatcher_clean_queue(self.dispatcher, slot, self._cleaning_to))
        self._next_slot = end
        if end == self._plane.header.tables.queue_count:
            self._log_line(lib.rmq_dispatcher_clean_index(self.dispatcher, self._cleaning_to))
            self._cleaned_min_offset, self._cleaning_to = self._cleaning_to, None

    def _log_line(self, code: int) -> None:
        if code < 0:
            cause = os.strerror(-code)
            log.error("queue or index files below log offset %d cannot be deleted: %s", self._cleaning_to, cause)


def leave_failed_marker(root: Path, number: int) -> None:
    """Make the next start read queues and index from the disk. After a failed sync, cached pages may be clean but not
    on disk."""
    cause = f"fsync of a consume queue or index file failed: {os.strerror(number)}"
    log.critical("%s; writes are refused until the broker is restarted", cause)
    try:
        write_failed_marker(root, cause)
    except OSError as error:
        log.critical("cannot write %s/ringmq.failed, so the next start trusts cached pages: %s", root, error)
