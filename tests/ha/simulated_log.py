"""Logs of simulated brokers, and the book of what really happened to every record.

A record is a number (its tag) and takes 8 KiB, so that a window of checksums holds eight of them and a file thirty-two.
An index counts records; offsets as the cores see them are indexes times RECORD_BYTES.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from ringmq.store.tail_checksums import Window, window_places

RECORD_BYTES = 8192
FILE_RECORDS = 32
FILE_BYTES = FILE_RECORDS * RECORD_BYTES


@dataclass(slots=True)
class Ledger:
    """What each broker ever had (as a mask of brokers by tag), and what a fault took from it."""

    cached: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    flushed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    lost: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    salvaged: set[int] = field(default_factory=set)
    index_of: dict[int, int] = field(default_factory=dict)
    promised: dict[int, str] = field(default_factory=dict)
    """Tag -> why it must not go: "acknowledged", "readable"."""
    problems: list[str] = field(default_factory=list)

    def new_tag(self, index: int) -> int:
        """A record that no broker had before."""
        tag = len(self.index_of) + 1
        self.index_of[tag] = index
        return tag

    def problem(self, text: str) -> None:
        """A promise is broken."""
        self.problems.append(text)


@dataclass(slots=True)
class SimulatedLog:
    """Records [first, end) of one broker, in the page cache; [first, flushed) survive a crash of the host."""

    ledger: Ledger
    bit: int
    first: int = 0
    flushed: int = 0
    tags: list[int] = field(default_factory=list)
    """By index; below `first` they mean nothing."""

    @property
    def end(self) -> int:
        """Index after the last record."""
        return len(self.tags)

    def append(self, tags: list[int]) -> None:
        """Into the page cache."""
        for tag in tags:
            self.ledger.cached[tag] |= self.bit
        self.tags += tags

    def flush(self) -> None:
        """To the disk, all of it."""
        for tag in self.tags[max(self.flushed, self.first) :]:
            self.ledger.flushed[tag] |= self.bit
        self.flushed = self.end

    def retire(self, count: int) -> None:
        """Retention deletes the oldest records."""
        for tag in self.tags[self.first : self.first + count]:
            self.ledger.lost[tag] |= self.bit
        self.first += count

    def crash_host(self, random: Random) -> None:
        """Lose a part of what was not flushed."""
        self._lose(random.randint(min(self.flushed, self.end), self.end))

    def wipe(self) -> None:
        """Lose the disk."""
        self._lose(self.first)
        self.first = self.flushed = 0
        self.tags = []

    def _lose(self, end: int) -> None:
        for tag in self.tags[max(end, self.first) :]:
            self.ledger.lost[tag] |= self.bit
        del self.tags[end:]
        self.flushed = min(self.flushed, self.end)

    def cut(self, end: int) -> None:
        """To the salvage folder with [end, ...)."""
        self.ledger.salvaged.update(self.tags[max(end, self.first) :])
        del self.tags[end:]
        self.flushed = min(self.flushed, self.end)

    def rebase(self, first: int) -> None:
        """All of it to the salvage folder; the log begins again at `first`."""
        self.cut(self.first)
        self.tags, self.first, self.flushed = [0] * first, first, first

    def checksum(self, offset: int, length: int) -> int | None:
        """Of any range of bytes that is there whole."""
        low, high = offset // RECORD_BYTES, -(-(offset + length) // RECORD_BYTES)
        if low < self.first or high > self.end:
            return None
        return hash((offset, length, *self.tags[low:high])) & 0xFFFFFFFF

    def windows(self, end: int) -> tuple[Window, ...]:
        """What a slave sends of its log below an offset."""
        places = window_places(self.first * RECORD_BYTES, end)
        found = ((offset, length, self.checksum(offset, length)) for offset, length in places)
        return tuple((offset, length, crc) for offset, length, crc in found if crc is not None)
