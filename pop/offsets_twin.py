"""Consumer offsets of windows, in Python: the same rule as `native/src/pop/pop_offsets.c`. Tests run both."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Offset(Struct):
    """A window as the reports see it."""

    open: list[int]
    """Queue offsets of messages that are not done, ascending."""
    next_offset: int
    committed: int
    is_told: bool = False
    """This plane's table has had `committed`, or gets it by a report."""


def look(
    window: Offset, table: int | None, end: int, *, may_compare: bool, report: Callable[[int], bool],
    skip_to: Callable[[int], None], leave_returned: Callable[[int], None],
) -> bool:  # fmt: skip
    """Look at one window. `table`: None if it has never had an offset of the pair, -1 if that is deleted. `end`: of the
    queue. `report`: False if the ring is full. `leave_returned`: messages that were returned before this offset get
    copies. False: somebody has set the offset back."""
    found = -1 if table is None else table
    if may_compare and not _compare(window, found, end, skip_to, is_known=table is not None):
        return False
    leave_returned(window.committed)
    is_lost = may_compare and found < window.committed
    is_beyond = may_compare and window.committed > window.next_offset
    first_open = next((offset for offset in window.open if offset >= window.committed), window.next_offset)
    if first_open <= window.committed and not is_lost and not is_beyond:
        return True
    offset = max(first_open, window.next_offset if is_beyond else window.committed)
    if report(offset):
        window.committed, window.is_told = offset, True
    return True


def _compare(window: Offset, table: int, end: int, skip_to: Callable[[int], None], *, is_known: bool) -> bool:
    if table >= window.committed:
        skip_to(min(table, end))
        window.committed, window.is_told = table, True
        return True
    return not (window.is_told and is_known)
