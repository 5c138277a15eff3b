"""The label texts of many series, kept from scrape to scrape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct, field

from ringmq.broker.exporter.tables import Ints


class LabelRows(Struct, frozen=True):
    """One text per row, joined. `ends`: the end of each."""

    text: bytes = b""
    ends: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.ends)


class LabelCache:
    """Texts by id. Ids are never reused, so a text stays valid. A call with other ids joins the texts again."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        self._ids: Ints = np.zeros(0, np.int64)
        self._rows = LabelRows()

    def rows(self, ids: Ints, text_of: Callable[[int], str]) -> LabelRows:
        """The texts in the order of `ids`."""
        if not np.array_equal(ids, self._ids):
            texts = self._texts
            wanted = ids.tolist()
            for number in wanted:
                if number not in texts:
                    texts[number] = text_of(number).encode()
            chosen = [texts[number] for number in wanted]
            self._ids = ids.copy()
            self._rows = LabelRows(b"".join(chosen), np.cumsum([len(text) for text in chosen], dtype=np.int64))
        return self._rows
