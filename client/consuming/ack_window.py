"""Which offset of a queue may be committed: the highest one below which everything is acknowledged. No IO.

Messages are handed out in queue order, acknowledged in any order. A committed offset promises that everything below
it was processed, so one message that is never acknowledged holds the commit back; it is delivered again after a
restart or a rebalance. Offsets that the broker or the tag filter skipped need no acknowledgement: `deliver` is told
where the next read begins, and a window without anything open commits up to there.
"""

from collections import deque
from collections.abc import Iterable

CLOSED_KEPT = 1024  # acknowledged offsets behind an open one that are not worth a look at all of them


class AckWindow:
    """Acknowledgements of one queue. `next_offset` is where the first read begins, `committed_offset` what the
    broker has.

    Each message enters and leaves both collections once, so every call is constant time on average.
    """

    __slots__ = ("_delivered", "_open", "_read_offset", "committed_offset")

    def __init__(self, next_offset: int, committed_offset: int | None = None) -> None:
        self._delivered: deque[int] = deque()  # ascending; its first element is always open, the others may be
        self._open: set[int] = set()  # delivered and not acknowledged
        self._read_offset = next_offset  # where the next read begins: nothing above it was seen
        # None until known: a start position that was only computed is committed too, or a restart computes another
        self.committed_offset = committed_offset

    def deliver(self, offsets: Iterable[int], next_offset: int) -> None:
        """`offsets` (ascending) go to the application; the next read begins at `next_offset`, above all of them."""
        assert next_offset >= self._read_offset, (next_offset, self._read_offset)
        for offset in offsets:
            self._delivered.append(offset)
            self._open.add(offset)
        self._read_offset = next_offset

    def ack(self, offset: int) -> bool:
        """Acknowledge one message; False when it is not open (acknowledged before, or from before a seek)."""
        if offset not in self._open:
            return False
        self._open.remove(offset)
        delivered = self._delivered
        while delivered and delivered[0] not in self._open:
            delivered.popleft()
        if len(delivered) > 2 * len(self._open) + CLOSED_KEPT:  # one that stays open must not keep all behind it
            self._delivered = deque(offset for offset in delivered if offset in self._open)
        return True

    @property
    def open_count(self) -> int:
        """Messages delivered and not yet acknowledged."""
        return len(self._open)

    @property
    def committable_offset(self) -> int:
        """The offset to commit: the first open message, else where the next read begins."""
        return self._delivered[0] if self._delivered else self._read_offset

    def take_commit(self) -> int | None:
        """The offset to commit now, or None when it was given out before."""
        offset = self.committable_offset
        if offset == self.committed_offset:
            return None
        self.committed_offset = offset
        return offset

    def commit_failed(self) -> None:
        """What `take_commit` gave out did not reach the broker: give it out again."""
        self.committed_offset = None

    def seek(self, offset: int) -> None:
        """Forget what is open and go on at `offset`, which may lie below."""
        self._delivered.clear()
        self._open.clear()
        self._read_offset = offset
