"""The range of a log, and the first offset of a slave without one."""

from msgspec import Struct


class LogRange(Struct, frozen=True):
    """[min_offset, append_offset) of a CommitLog."""

    min_offset: int
    append_offset: int

    def first_offset(self, file_bytes: int, from_newest_file: bool) -> int:
        """First offset of an empty slave's log. Stock gives it the newest file alone (haStartFromNewestFile)."""
        newest = self.append_offset - self.append_offset % file_bytes
        return max(newest, self.min_offset) if from_newest_file else self.min_offset
