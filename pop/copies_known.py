"""The offset of the log below which the entries of POP know every copy. A start reads marks from there on. No IO.

An entry knows a copy once its completion was taken and it is flushed. Copies that a start has found have one end
together, the end of what it has read.
"""

from __future__ import annotations

from collections.abc import Callable


class CopiesKnown:
    """`tell`: tells the windows how far the log is flushed (rmq_pop_flushed)."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        self._tell = tell
        self._flushed = 0
        """Flushed offset of which the windows know."""
        self._found_end = 0

    def found(self, end: int) -> None:
        """A start has told the windows of all copies below `end`."""
        self._found_end = end

    def flushed(self, offset: int, *, has_new: bool) -> None:
        """The log is flushed up to an offset. `has_new`: the windows have learned of copies since the last call.

        New copies may lie below an offset that the windows know already.
        """
        if offset != self._flushed or has_new:
            self._flushed = offset
            self._tell(offset)

    def place(self, in_flight: int | None) -> int:
        """The offset below which the entries know every copy. 0 while it is not known.

        `in_flight`: the first offset at which a copy without a completion may lie. None: there is no such copy.
        """
        if self._flushed < self._found_end:
            return 0
        return self._flushed if in_flight is None else min(self._flushed, in_flight)
