"""Lines of a large family, written natively when they are sent. A page of 100,000 series is some 25 MB of text, which
is never held whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ringmq.broker.exporter.label_rows import LabelRows
from ringmq.broker.exporter.tables import Ints
from ringmq.native import ffi, lib

PIECE_BYTES = 256 << 10
"""Bytes that are formatted and sent at a time. With 64 KiB, a scrape of 27 MB spent more time waiting for its reader
than working (64 ms, 27 ms).
"""


class SeriesLines(Struct, frozen=True):
    """A line for each row of `values` and each column: head, labels of the row, tail, value."""

    columns: Sequence[tuple[str, str]]
    """Head and tail of each column."""
    rows: LabelRows
    """At least as many rows as `values` has."""
    values: Ints
    """An array of (rows, columns)."""

    def pieces(self) -> Iterator[memoryview]:
        """The text. A piece is valid until the next one."""
        count = len(self.values)
        assert self.values.shape == (count, len(self.columns))
        assert count <= len(self.rows)
        texts = [(ffi.from_buffer(head.encode()), ffi.from_buffer(tail.encode())) for head, tail in self.columns]
        columns: Any = ffi.new("struct rmq_series_column[]", len(texts))
        for column, (head, tail) in zip(columns, texts, strict=True):
            column.head, column.head_bytes, column.tail, column.tail_bytes = head, len(head), tail, len(tail)
        ends = np.ascontiguousarray(self.rows.ends, np.uint64)
        values = np.ascontiguousarray(self.values, np.int64)
        fixed = sum(len(head) + len(tail) + lib.RMQ_SERIES_VALUE_MAX for head, tail in texts)
        longest = int(np.diff(ends, prepend=np.uint64(0)).max(initial=0))
        out = bytearray(max(PIECE_BYTES, fixed + longest * len(texts)))
        given = (
            ffi.from_buffer("char[]", out), len(out), columns, len(texts), ffi.from_buffer("char[]", self.rows.text),
            ffi.from_buffer("uint64_t[]", ends), ffi.from_buffer("int64_t[]", values), count,
        )  # fmt: skip
        row = ffi.new("uint64_t *", 0)
        while row[0] < count:
            used = lib.rmq_series_text(*given, row)
            yield memoryview(out)[:used]
