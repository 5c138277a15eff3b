"""Open messages of POP as rows: those that consumers of a group hold, from the last snapshot in a store's files.

The guest that keeps open messages gives a private copy of its memory (`ringmq.ipc.guests`): no reader maps what the
broker changes.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ringmq.ipc.guests import parts
from ringmq.spark_bridge.attempts import Attempts
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.open_structs import (
    ENTRY,
    OpenRows,
    counts_of,
    held_entries,
    held_orders,
    rows_of_entries,
    rows_of_orders,
)
from ringmq.spark_bridge.schema import OPEN_COLUMNS, arrow_schema
from ringmq.spark_bridge.slices import StoreLocation
from ringmq.spark_bridge.store_access import check_folder, readable
from ringmq.spark_bridge.store_catalog import store_place

ROWS_A_BATCH = 32_768
ORDERS_A_BATCH = 1024
"""Each has at most 32 rows."""
GROUPS_SHOWN = 10


def place_of(root: Path) -> StoreLocation:
    """The store, as a task has to find it. Raises `ReadError`."""
    with readable(root):
        check_folder(root)
        return store_place(root)


class OpenMessages:
    """The open messages of groups at the moment of the last snapshot. They can be read repeatedly."""

    table = OPEN_COLUMNS

    def __init__(self, root: Path, groups: Sequence[str], columns: Sequence[str] = ()) -> None:
        """Read the snapshot. Empty `columns`: all. Raises `ReadError`."""
        self.columns = tuple(columns) or tuple(OPEN_COLUMNS)
        self._now_ms = time.time_ns() // 1_000_000
        self._place = place_of(root)
        with readable(root):
            try:
                self._take(root, groups)
            except ValueError as error:
                raise ReadError(f"store {root}: {error}") from error

    @property
    def rows_max(self) -> int:
        """The number of rows."""
        of_entries = int(self._ends[-1]) if len(self._ends) else 0
        return of_entries + sum(len(rows.offsets) for rows in self._rows_of_orders())

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `DataLossError` and `ReadError`."""
        if "attempts" not in columns:
            yield from (self._batch(columns, rows) for rows in self._rows())
            return
        with Attempts(self._place, self._names) as attempts:
            yield from (self._batch(columns, attempts.told(rows)) for rows in self._rows())

    # ---- the snapshot ----

    def _take(self, root: Path, groups: Sequence[str]) -> None:
        open_memory = next(parts("open_messages"), None)
        if open_memory is None:
            raise ValueError("this build has no POP, so it cannot read open messages")
        with open_memory(root) as memory:
            if memory is None:
                raise ValueError("POP was never used there, so no message is open")
            _refuse_unknown(groups, {name.group for name in memory.windows.values()})
            self._names = {number: name for number, name in sorted(memory.windows.items()) if name.group in groups}
            windows = np.array(list(self._names), np.uint32)
            found = [np.empty(0, ENTRY), *(held_entries(chunk, windows) for chunk in memory.entries())]
            self._entries = np.concatenate(found)
            self._ends = np.cumsum(counts_of(self._entries))
            batches, begins = memory.orders()
            self._orders, self._begins = held_orders(batches, begins, windows)

    # ---- rows ----

    def _rows(self) -> Iterator[OpenRows]:
        begin = rows = 0
        while begin < len(self._entries):
            end = max(begin + 1, int(np.searchsorted(self._ends, rows + ROWS_A_BATCH, side="right")))
            yield rows_of_entries(self._entries[begin:end])
            begin, rows = end, int(self._ends[end - 1])
        yield from self._rows_of_orders()

    def _rows_of_orders(self) -> Iterator[OpenRows]:
        for at in range(0, len(self._orders), ORDERS_A_BATCH):
            end = at + ORDERS_A_BATCH
            yield rows_of_orders(self._orders[at:end], self._begins[at:end])

    def _batch(self, columns: Sequence[str], rows: OpenRows) -> pa.RecordBatch:
        arrays = [self._array(name, rows) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns, OPEN_COLUMNS))

    def _array(self, name: str, rows: OpenRows) -> pa.Array:
        kind = OPEN_COLUMNS[name][1]
        match name:
            case "group" | "topic":
                return self._of_windows([getattr(window, name) for window in self._names.values()], kind, rows)
            case "partition":
                return self._of_windows([window.queue_id for window in self._names.values()], kind, rows)
            case "offset":
                return pa.array(rows.offsets, kind)
            case "popped_at":
                return pa.array(rows.popped_ms * 1000).cast(kind)
            case "invisible_until":
                return pa.array(rows.until_ms * 1000).cast(kind)
            case "age_ms":
                return pa.array(self._now_ms - rows.popped_ms, kind)
            case "attempts":
                return pa.array(rows.attempts.astype(np.int32), kind, mask=rows.attempts < 0)
            case "client":
                clients, places = np.unique(rows.clients, return_inverse=True)
                texts = [f"{number:08x}" if number else None for number in clients.tolist()]
                return pa.array(texts, kind).take(pa.array(places))
        raise AssertionError(name)

    def _of_windows(self, values: Sequence[Any], kind: pa.DataType, rows: OpenRows) -> pa.Array:
        """A value of each row's window."""
        numbers = np.searchsorted(np.array(list(self._names), np.int64), rows.windows)
        return pa.array(values, kind).take(pa.array(numbers))


def _refuse_unknown(groups: Sequence[str], known: set[str]) -> None:
    if unknown := [group for group in groups if group not in known]:
        shown = ", ".join(sorted(known)[:GROUPS_SHOWN]) + (", ..." if len(known) > GROUPS_SHOWN else "")
        text = f"option openMessages: {', '.join(unknown)} has popped no message there"
        raise ValueError(f"{text}; groups that have: {shown or 'none'}")
