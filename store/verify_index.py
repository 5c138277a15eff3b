"""Index part of the whole-store check: entries against the keys of the records, and the chains of each file."""

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from ringmq.native import ffi
from ringmq.store.index_file import IndexFile
from ringmq.store.message_store import MessageStore

ENTRY = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
PAIR = np.dtype([("position", "i8"), ("hash", "i4")])
SHOWN_MAX = 20
assert ENTRY.itemsize == 20


class Report(Protocol):
    """The part of VerifyReport that this module fills."""

    index_files: int
    index_entries: int

    def add(self, severity: str, place: str, text: str) -> None:
        """Add a finding."""


class IndexChecker:
    """Walks entries and records side by side, log file by log file."""

    def __init__(self, store: MessageStore, report: Report) -> None:
        """Map the index files. Raises StoreLoadError if their size is not the configured one."""
        self._report = report
        self._files = store.index.files()
        self._log_min = store.commit_log.min_offset
        self._keys_without_file = 0
        report.index_files = len(self._files)
        parts = [self._entries(file) for file in self._files]
        self._pairs = np.concatenate(parts) if parts else np.empty(0, PAIR)
        report.index_entries = len(self._pairs)
        if len(self._pairs) and np.any(np.diff(self._pairs["position"]) < 0):
            report.add("error", "index", "entries do not ascend with the log")
            self._pairs = np.sort(self._pairs, order="position")
        self._cursor = int(np.searchsorted(self._pairs["position"], self._log_min))

    def _entries(self, file: IndexFile) -> Any:
        header = file.header
        raw = ffi.buffer(file.native.base, file.path.stat().st_size)
        first = 40 + 4 * file.slots + 20
        count = min(header.next_number, file.entries) - 1
        entries = np.frombuffer(raw, ENTRY, count, first)
        out = np.empty(count, PAIR)
        out["position"], out["hash"] = entries["position"], entries["hash"]
        if unreachable := file.unreachable_entries():
            self._report.add("error", f"index {file.path.name}", f"{unreachable} entries are in no chain")
        if count and (int(out["position"][0]), int(out["position"][-1])) != (header.begin_offset, header.end_offset):
            self._report.add("error", f"index {file.path.name}", "the header's offsets are not those of its entries")
        return out

    def check_file(self, start: int, end: int, rows: Any, hashes: Any, damaged: Collection[int]) -> None:
        """Compare the entries of one log file's records [start, end). Those of `damaged` places are left out."""
        wanted = np.empty(len(hashes), PAIR)
        wanted["position"], wanted["hash"] = np.repeat(rows["position"], rows["keys"]), hashes
        stop = int(np.searchsorted(self._pairs["position"], end))
        got = self._pairs[self._cursor : stop]
        if damaged:
            got = got[~np.isin(got["position"], list(damaged))]
        self._cursor = stop
        if np.array_equal(wanted, got) or not self._files:
            self._keys_without_file += 0 if self._files else len(wanted)
            return
        missing = np.setdiff1d(wanted, got)
        extra = np.setdiff1d(got, wanted)
        for pair in missing[:SHOWN_MAX]:
            self._report.add("error", f"commit log {pair['position']}", "a key of the record is not in the index")
        for pair in extra[:SHOWN_MAX]:
            self._report.add(
                "error", f"commit log {pair['position']}", "the index names a key that no record there has"
            )
        for kind, pairs in (("missing", missing), ("superfluous", extra)):
            if len(pairs) > SHOWN_MAX:
                text = f"{len(pairs) - SHOWN_MAX} more {kind} entries"
                self._report.add("error", f"index of log file {start}", text)

    def finish(self) -> None:
        """Ignore entries behind the readable offset: they belong to records that the caller may not see yet."""
        if self._keys_without_file:
            text = f"there is no index file, but the records have {self._keys_without_file} keys (messageIndexEnable?)"
            self._report.add("error", "index", text)
