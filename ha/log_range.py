"""What a log holds, and where a slave without one begins."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRange:
    """[min_offset, append_offset) of a CommitLog."""

    min_offset: int
    append_offset: int

    def first_offset(self, file_bytes: int, from_newest_file: bool) -> int:
        """Where an empty slave's log begins: stock gives it the newest file alone (haStartFromNewestFile)."""
        newest = self.append_offset - self.append_offset % file_bytes
        return max(newest, self.min_offset) if from_newest_file else self.min_offset
