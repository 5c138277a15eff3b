"""The index files in which a delete finds the message that it names (native/src/timer/timer_search.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.native import ffi
from ringmq.store.index_file import IndexFile, IndexStore
from ringmq.store.mapped_file import StoreLoadError
from ringmq.timer.timer_files import TimerFiles

MARGIN_MS = 3_600_000
SEARCH_NS = 5_000_000
"""Time that the searches of one turn take, so that deliveries go on between them."""


class TargetIndex:
    """Fills `struct rmq_timer_index`. `all_below`: see there."""

    def __init__(
        self, struct: Any, store: IndexStore, files: TimerFiles, all_below: int, log_line: Callable[[str], None]
    ):
        self._struct, self._store, self._files, self._log_line = struct, store, files, log_line
        self._listed: list[IndexFile] = []
        self._table = ffi.NULL
        self._logged = 0
        struct.all_below = all_below

    def begin_turn(self, mono_ns: int) -> None:
        """Give the searches of a turn their time."""
        self._struct.until_ns = mono_ns + SEARCH_NS

    def log_passed_over(self, total: int) -> None:
        """Log how many deletes more were not searched for. `total`: since the start."""
        if total > self._logged:
            more = total - self._logged
            self._log_line(f"{more} deletes of timer messages came too fast: they work for their own time alone")
            self._logged = total

    def begin_batch(self) -> None:
        """Forget the list: what dispatch has published since may be in a new file."""
        self._struct.is_listed = 0

    def list_files(self, oldest_ms: int) -> None:
        """List the files again. Messages that were stored before `oldest_ms` less the roll window wait no more, because
        they would have been stored again."""
        of = self._files.struct
        begin_ms = oldest_ms - self._files.widest_slots * max(of.precision_ms, of.coarsest_ms) - MARGIN_MS
        self._listed = [file for file in self._open_files() if file.header.end_time_ms >= begin_ms]
        self._table = ffi.new("struct rmq_index[]", [file.native[0] for file in reversed(self._listed)])
        self._struct.files, self._struct.file_count = self._table, len(self._listed)
        self._struct.begin_ms, self._struct.is_listed = begin_ms, 1

    def _open_files(self) -> list[IndexFile]:
        for _ in range(2):
            try:
                return self._store.files()
            except (StoreLoadError, OSError) as error:  # retention may delete a file after it was listed
                fault = error
        self._log_line(f"deletes of timer messages find none of another time: {fault}")
        return []
