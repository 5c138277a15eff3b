"""Index files: from `topic#key` to commit log offsets (reader side, the writer is native/src/index/index.c).

Queries work as in RocketMQ's IndexService.queryOffset and DefaultMessageStore.queryMessage: newest file first, the
chain of one hash slot, times by the index's whole seconds, offsets ascending. Keys with equal hash are not told apart
here.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from ringmq.fastjson.files import read_head
from ringmq.native import ffi, lib
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.safe_files import open_to_write

_END_OFFSET = struct.Struct(">24xq")
INDEX_QUERY_MAX = 64  # maxMsgsNumBatch


class IndexHeader(Struct, frozen=True):
    """The 40-byte header. `next_number` is the number of the next entry (1 = empty)."""

    begin_time_ms: int
    end_time_ms: int
    begin_offset: int
    end_offset: int
    slots_used: int
    next_number: int


def index_file_bytes(slots: int, entries: int) -> int:
    """Return the length of an index file."""
    return 40 + 4 * slots + 20 * entries


def key_hash(topic: str, key: str) -> int:
    """Return the non-negative hash of `topic#key`."""
    topic_bytes, key_bytes = topic.encode(), key.encode()
    return int(lib.rmq_index_key_hash(topic_bytes, len(topic_bytes), key_bytes, len(key_bytes)))


class IndexFile:
    """One mapped index file. `writable` is for recovery, tests and the dispatch role's start."""

    def __init__(self, path: Path, slots: int, entries: int, *, writable: bool = False) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        if not path.is_file():
            raise StoreLoadError(f"{path} is no file")
        descriptor = open_to_write(path, os.O_RDWR) if writable else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "r+b" if writable else "rb") as file:
            size = os.fstat(file.fileno()).st_size
            wanted = index_file_bytes(slots, entries)
            if size != wanted:
                raise StoreLoadError(
                    f"{path} has {size} bytes, not the {wanted} of maxHashSlotNum = {slots} and maxIndexNum = {entries}"
                )
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(file.fileno(), 0, access=access)
        self._buffer = ffi.from_buffer(self._map)
        self.native: Any = ffi.new("struct rmq_index *")
        error = lib.rmq_index_attach(self.native, self._buffer, size, slots, entries, int(writable))
        if error:
            raise StoreLoadError(f"{path} cannot be used as an index file: {os.strerror(-error)}")

    @property
    def header(self) -> IndexHeader:
        """Read the header."""
        out = ffi.new("struct rmq_index_header *")
        lib.rmq_index_header_get(self.native, out)
        return IndexHeader(
            out.begin_time_ms, out.end_time_ms, out.begin_offset, out.end_offset, out.slots_used, out.next_number
        )

    @property
    def header_fault(self) -> str | None:
        """Return the reason why no broker writes such a header, None for a possible one."""
        header = self.header
        if not 0 <= header.next_number <= self.entries + 1 or not 0 <= header.slots_used <= self.slots:
            return f"its header has entry number {header.next_number} and {header.slots_used} used slots"
        if header.begin_offset > header.end_offset or header.begin_offset < 0:
            return f"its header has offsets {header.begin_offset} to {header.end_offset}"
        return None

    @property
    def is_full(self) -> bool:
        """True if no further entry fits."""
        return bool(lib.rmq_index_is_full(self.native))

    def query(self, hash_value: int, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """Return commit log offsets of the hash, newest first."""
        offsets = ffi.new("int64_t[]", max(1, count_max))
        count = lib.rmq_index_query(self.native, hash_value, begin_ms, end_ms, offsets, count_max)
        return [offsets[i] for i in range(count)]

    def entries_from(self, first_number: int = 1) -> Iterator[tuple[int, int, int, int]]:
        """Yield (key hash, commit log offset, seconds, previous number) of each committed entry."""
        key, offset = ffi.new("int32_t *"), ffi.new("int64_t *")
        seconds, previous = ffi.new("int32_t *"), ffi.new("int32_t *")
        number = first_number
        while lib.rmq_index_entry(self.native, number, key, offset, seconds, previous) == 0:
            yield key[0], offset[0], seconds[0], previous[0]
            number += 1

    def unreachable_entries(self) -> int:
        """Return the number of committed entries that no chain reaches (0 in a sound file)."""
        return int(lib.rmq_index_check(self.native))

    def put(self, hash_value: int, commit_log_offset: int, store_time_ms: int) -> int:
        """Put one entry and return 1, or 0 if it is there already. Raises OverflowError if the file is full."""
        result = int(lib.rmq_index_put(self.native, hash_value, commit_log_offset, store_time_ms))
        if result < 0:
            raise OverflowError(f"{self.path}: the index file is full")
        return result

    def truncate(self, commit_log_offset: int) -> int:
        """Remove the entries of records at or behind an offset and return their number."""
        return int(lib.rmq_index_truncate(self.native, commit_log_offset))

    def prefill(self, previous: "IndexFile") -> None:
        """Copy the end values of the full file before this one."""
        lib.rmq_index_prefill(self.native, previous.native)

    def sync(self) -> None:
        """Write the mapped pages to the disk."""
        self._map.flush()


def index_paths(directory: Path) -> list[Path]:
    """Return the index files, oldest first (names are local creation times, 17 digits)."""
    if not directory.is_dir():
        return []
    return sorted(
        (path for path in directory.iterdir() if len(path.name) == 17 and path.name.isdigit()), key=lambda p: p.name
    )


def header_end_offset(path: Path) -> int:
    """Return the commit log offset of the newest record in a file by its header, 0 in a file without a header."""
    data = read_head(path, _END_OFFSET.size)
    return int(_END_OFFSET.unpack(data)[0]) if len(data) == _END_OFFSET.size else 0


class IndexStore:
    """All index files of a store, for queries. Each query lists the folder again."""

    def __init__(self, directory: Path, slots: int, entries: int) -> None:
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._files: dict[Path, IndexFile] = {}

    def files(self) -> list[IndexFile]:
        """Return the mapped files, oldest first. Raises StoreLoadError for a file of another size."""
        paths = index_paths(self._directory)
        known = self._files
        self._files = {path: known.get(path) or IndexFile(path, self._slots, self._entries) for path in paths}
        return list(self._files.values())

    def forget_gone(self) -> None:
        """Drop the mappings of files that retention has unlinked."""
        self._files = {path: file for path, file in self._files.items() if path.exists()}

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return at most `count_max` commit log offsets, each once, ascending. The newest ones win."""
        wanted = min(count_max, INDEX_QUERY_MAX)
        hash_value = key_hash(topic, key)
        found: dict[int, None] = {}
        for file in reversed(self.files()):
            header = file.header
            if header.next_number > 1 and header.begin_time_ms <= end_ms and header.end_time_ms >= begin_ms:
                # A key that a record has twice has two entries. So the query takes more, and each offset is kept once.
                for offset in file.query(hash_value, begin_ms, end_ms, 4 * wanted):
                    if len(found) >= wanted:
                        break
                    found[offset] = None
            if header.begin_time_ms < begin_ms or len(found) >= wanted:
                break
        return sorted(found)

    def last_update(self) -> tuple[int, int]:
        """Return (end time ms, end offset) of the newest file, (0, 0) without files."""
        files = self.files()
        if not files:
            return 0, 0
        header = files[-1].header
        return header.end_time_ms, header.end_offset
