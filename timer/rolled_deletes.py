"""Rolled deletes on their way: their copies lie in the timer topic, or will, and have no unit yet."""


class RolledDeletes:
    """The newest one counts. `log_offset`: those of earlier processes lie before it."""

    def __init__(self, log_offset: int) -> None:
        self.due_ms = -1
        """Messages up to this time need not wait."""
        self._ahead = 0
        """Number of the newest one among the copies in flight, from 1 on. 0 if it is stored."""
        self._end = log_offset
        """The newest one that is stored lies before this offset of the log."""

    def submitted(self, number: int, due_ms: int) -> None:
        """The newest one was due at `due_ms`, and has this number among the copies in flight."""
        self._ahead, self.due_ms = number, due_ms

    def stored(self, count: int, log_end: int) -> None:
        """The oldest `count` copies in flight are stored, before `log_end`."""
        if self._ahead:
            self._end = log_end  # older ones may be among them
        self._ahead = max(0, self._ahead - count)

    def refused(self) -> None:
        """No copy in flight will be stored."""
        self._ahead = 0

    def are_read(self, log_offset: int) -> bool:
        """True if all have units, as the records of the timer topic before this offset of the log have."""
        return not self._ahead and self._end <= log_offset
