"""The offset of a queue that may be committed: the highest one below which everything is acknowledged. No IO.

Messages are delivered in queue order and acknowledged in any order. A committed offset promises that everything below
it was processed. So one message without an acknowledgement holds the commit back, and it is delivered again after a
restart or a rebalance. Offsets that the broker or the tag filter skipped need no acknowledgement: `deliver` has the
begin of the next read, and a window without open messages commits up to that offset.
"""

from collections import deque
from collections.abc import Iterable

CLOSED_KEPT = 1024  # acknowledged offsets behind an open one that are not worth a look at all of them


class AckWindow:
    """Acknowledgements of one queue. `next_offset` is the first offset to read, `committed_offset` the broker's.

    Each message enters and leaves both collections once, so every call is constant time on average.
    """

    __slots__ = ("_delivered", "_open", "_read_offset", "committed_offset")

    def __init__(self, next_offset: int, committed_offset: int | None = None) -> None:
        self._delivered: deque[int] = deque()  # ascending; its first element is always open, the others may be
        self._open: set[int] = set()  # delivered and not acknowledged
        self._read_offset = next_offset  # start of the next read: no message from there on was seen
        # None until known: a start position that was only computed is committed too, or a restart computes another
        self.committed_offset = committed_offset

    def deliver(self, offsets: Iterable[int], next_offset: int) -> None:
        """Add `offsets` (ascending), which go to the application.

        The next read begins at `next_offset`, above all of them.
        """
        assert next_offset >= self._read_offset, (next_offset, self._read_offset)
        for offset in offsets:
            self._delivered.append(offset)
            self._open.add(offset)
        self._read_offset = next_offset

    def ack(self, offset: int) -> bool:
        """Acknowledge one message. False if it is not open (acknowledged before, or from before a seek)."""
        if offset not in self._open:
            return False
        self._open.remove(offset)
        delivered = self._delivered
        while delivered and delivered[0] not in self._open:
            delivered.popleft()
        if len(delivered) > 2 * len(self._open) + CLOSED_KEPT:  # an offset that stays open must not keep all behind it
            self._delivered = deque(offset for offset in delivered if offset in self._open)
        return True

    def is_open(self, offset: int) -> bool:
        """True if the message at `offset` is delivered and not acknowledged."""
        return offset in self._open

    @property
    def open_count(self) -> int:
        """The number of messages that are delivered and not yet acknowledged."""
        return len(self._open)

    @property
    def committable_offset(self) -> int:
        """The offset to commit: that of the first open message, else the begin of the next read."""
        return self._delivered[0] if self._delivered else self._read_offset

    def take_commit(self) -> int | None:
        """Return the offset to commit now, None if it was returned before."""
        offset = self.committable_offset
        if offset == self.committed_offset:
            return None
        self.committed_offset = offset
        return offset

    def commit_failed(self) -> None:
        """Let `take_commit` return its last offset again: the commit has failed."""
        self.committed_offset = None

    def seek(self, offset: int) -> None:
        """Forget the open messages and continue at `offset`, which may be lower."""
        self._delivered.clear()
        self._open.clear()
        self._read_offset = offset
