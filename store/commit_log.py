"""The message log as a reader sees it: whole records that end at or below a `readable_offset`."""

from collections.abc import Generator, Iterator

from msgspec import Struct

from ringmq.native import ffi, lib
from ringmq.store import record as records
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import FileQueue, MappedFileCache, data_end
from ringmq.store.record import Record
from ringmq.store.record_values import POSSIBLE, impossible_value

SCAN_ROWS = 4096
PROPERTIES_LENGTH_BYTES = 2
"""Bytes of zero at the end of a record without properties. They may lie in a hole."""


class ScanStop(Struct, frozen=True):
    """Position and reason of the end of a scan."""

    offset: int
    reason: int


class CommitLog:
    """Read access by commit log offset. Nothing here writes."""

    def __init__(self, config: StoreConfig, cache: MappedFileCache) -> None:
        self.files = FileQueue(config.commit_log_directories, config.commit_log_file_bytes, cache)

    @property
    def min_offset(self) -> int:
        """Return the start of the first available file."""
        return self.files.min_offset

    def raw_at(self, offset: int, readable_offset: int, size: int | None = None) -> memoryview | None:
        """Return the bytes of the record at `offset` without a copy, None if it is missing or not readable.

        `size` (from a ConsumeQueue unit) is checked against the record's own.
        """
        rest = self.files.rest(offset, readable_offset) if 0 <= offset < readable_offset else None
        if rest is None or len(rest) < 8:
            return None
        total = int.from_bytes(rest[:4], "big", signed=True)
        if total <= 0 or total > len(rest) or (size is not None and total != size):
            return None
        return rest[:total]

    def record_at(
        self, offset: int, readable_offset: int, size: int | None = None, *, check_crc: bool = False
    ) -> Record | None:
        """Decode the record at `offset`.

        None if there is no valid one, it is not readable or it names another position.
        """
        raw = self.raw_at(offset, readable_offset, size)
        if raw is None:
            return None
        result, record = records.parse_record(raw, offset, check_crc=check_crc)
        if result != records.OK or record is None or record.physical_offset != offset:
            return None
        return record

    def store_time_at(self, offset: int, readable_offset: int) -> int | None:
        """Return the store time of the record at `offset` in ms, None without a record."""
        raw = self.raw_at(offset, readable_offset)
        if raw is None or len(raw) < 91:
            return None
        at = 56 if not raw[39] & 0x10 else 68
        return int.from_bytes(raw[at : at + 8], "big", signed=True)

    def next_record(self, offset: int) -> int | None:
        """Return the offset of the next record of the same file that names its own place, None without one.

        Scans go on there behind damage. The CRC of the body may be wrong. The unwritten rest of the file is not read:
        its pages take memory, and the next reader takes them for data.
        """
        found = self.files.find(offset)
        if found is None:
            return None
        start, mapped = found
        try:
            end = data_end(self.files.path_text(start), offset - start) + PROPERTIES_LENGTH_BYTES
        except FileNotFoundError:  # unlinked by retention
            return None
        at = int(lib.rmq_log_next_record(ffi.from_buffer(mapped), offset - start, min(end, len(mapped)), start))
        return None if at < 0 else start + at

    def border_behind(self, offset: int) -> int | None:
        """Return the next record behind `offset`, in its file or at the start of a later one, None without one."""
        border = self.next_record(offset)
        later = (start for start in self.files.starts if start > offset)
        starts = (start for start in later if self.record_at(start, self.files.end_offset) is not None)
        return next(starts, None) if border is None else border

    def walk(self, from_offset: int, *, check_crc: bool) -> tuple[int, int]:
        """Return the end of the last of the valid records from a record border on, and where the walk has stopped."""
        end, places = from_offset, self.places(from_offset, self.files.end_offset, check_crc=check_crc)
        while True:
            try:
                offset, size = next(places)
            except StopIteration as stop:
                return end, stop.value.offset
            end = offset + size

    def scan(self, from_offset: int, end_offset: int, *, check_crc: bool = True) -> Iterator[tuple[memoryview, Record]]:
        """Yield (raw bytes, record) up to `end_offset`. Python decodes them, so this is no hot path.

        Records with impossible values are left out: no queue has them.
        """
        for offset, size in self.places(from_offset, end_offset, check_crc=check_crc):
            raw = self.raw_at(offset, end_offset, size)
            record = None if raw is None else records.parse_record(raw, offset, check_crc=False)[1]
            if raw is None or record is None:
                return
            if not impossible_value(record, offset):
                yield raw, record

    def impossible(self, from_offset: int, end_offset: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, field) of each valid record with an impossible value. The first offset is a record border."""
        for offset, size in self.places(from_offset, end_offset, check_crc=False):
            field = self.impossible_field(offset, size)
            if field:
                yield offset, field

    def impossible_field(self, offset: int, size: int) -> int:
        """Return the first impossible field of the valid record at `offset`, 0 without one or if the record is gone."""
        raw = self.raw_at(offset, offset + size, size)
        if raw is None:
            return POSSIBLE
        data, view = ffi.from_buffer(raw), ffi.new("struct rmq_record_view *")
        if lib.rmq_record_parse(data, size, 0, view) != records.OK:
            return POSSIBLE
        return int(lib.rmq_record_value(data, view, offset))

    def places(
        self, from_offset: int, end_offset: int, *, check_crc: bool = True
    ) -> Generator[tuple[int, int], None, ScanStop]:
        """Yield (offset, size) of each valid record from a record border on, up to the first invalid one.

        Records with impossible values are included. The generator's return value is a `ScanStop`.
        """
        rows = ffi.new("struct rmq_record_view[]", SCAN_ROWS)
        at, reason = ffi.new("uint64_t *"), ffi.new("int *")
        offset = from_offset
        while offset < end_offset:
            found = self.files.find(offset)
            if found is None:
                return ScanStop(offset, records.END)
            start, mapped = found
            end = min(end_offset - start, len(mapped))
            data = ffi.from_buffer(mapped)
            count = lib.rmq_log_scan(data, offset - start, end, start, int(check_crc), rows, SCAN_ROWS, at, reason)
            for i in range(count):
                yield rows[i].position, rows[i].total_size
            offset = start + at[0]
            if reason[0] == records.BLANK:
                offset = start + self.files.file_bytes
            elif reason[0] not in (records.FULL, records.END):
                return ScanStop(offset, reason[0])
        return ScanStop(offset, records.END)
