"""Older copies of open halves that a stock broker has copied for a check. Its copies do not name their first half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ringmq.services.transactions.half_table import HalfTable
from ringmq.services.transactions.records import origin_of
from ringmq.store.record import Record


class StockCopies:
    """The open half of a copy. `renamed`: older copy -> newer copy. `origins`: `origin_of` -> newest copy.

    The two are those of a start. Stock takes no part while this broker has the store.
    """

    def __init__(self, renamed: Mapping[int, int], origins: Mapping[int, int]) -> None:
        self._renamed, self._origins = renamed, origins

    def open_half(self, first: int, table: HalfTable, read: Callable[[], tuple[Any, Record] | None]) -> int:
        """First offset of the open half of which `first` is a copy, `first` itself if there is none.

        `read`: the record that the end has named. A start reads no copies from before `low`, so these are found by
        their origin.
        """
        while first in self._renamed:
            first = self._renamed[first]
        if not self._origins or table.find(first) is not None:
            return first
        found = read()
        newest = None if found is None else self._origins.get(origin_of(found[1]))
        half = None if newest is None else table.find(newest)
        return first if half is None else half.first
