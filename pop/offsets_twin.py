"""Consumer offsets of windows, in Python: the same rule as `native/src/pop/pop_offsets.c`. Tests run both."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Offset(Struct):
    """A window as the reports see it."""

    first_open: int
    committed: int
    is_told: bool = False
    """This plane's table has had `committed`, or gets it by a report."""


def look(
    window: Offset, table: int | None, *, may_compare: bool, report: Callable[[int], bool],
    skip_to: Callable[[int], None],
) -> bool:  # fmt: skip
    """Look at one window. `table`: None if it has never had an offset of the pair, -1 if that is deleted. `report`:
    False if the ring is full. False: somebody has set the offset back."""
    found = -1 if table is None else table
    if may_compare and not _compare(window, found, skip_to, is_known=table is not None):
        return False
    is_lost = may_compare and found < window.committed
    if window.first_open <= window.committed and not is_lost:
        return True
    offset = max(window.first_open, window.committed)
    if report(offset):
        window.committed, window.is_told = offset, True
    return True


def _compare(window: Offset, table: int, skip_to: Callable[[int], None], *, is_known: bool) -> bool:
    if table >= window.committed:
        skip_to(table)
        window.committed, window.is_told = table, True
        return True
    return not (window.is_told and is_known)
