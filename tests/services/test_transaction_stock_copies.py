"""The open half of an older copy that a stock broker has made."""

import pytest

from ringmq.services.transactions.half_table import Half, HalfTable
from ringmq.services.transactions.records import origin_of
from ringmq.services.transactions.stock_copies import StockCopies
from ringmq.store.record import Record
from tests.store.copy_kit import parsed, stored

BORN_MS = parsed(stored()).born_time_ms


def copy(key: str, body: bytes = b"body") -> Record:
    return parsed(stored(properties=f"UNIQ_KEY\x01{key}\x02".encode(), body=body))


def test_an_older_copy_of_a_stock_broker_ends_the_newest() -> None:
    table = HalfTable()
    for half in (Half(30, 30, BORN_MS, -1, 2), Half(31, 31, BORN_MS + 1, -1, 2), Half(32, 32, BORN_MS, -1, 0)):
        table.add(half)
    copies = StockCopies({20: 25, 25: 30}, {origin_of(copy("K")): 30, origin_of(copy("gone")): 29})

    def open_half(first: int, key: str = "none", body: bytes = b"body") -> int:
        return copies.open_half(first, table, lambda: (b"", copy(key, body)))

    assert [open_half(first) for first in (20, 25, 30, 32)] == [30, 30, 30, 32]
    assert open_half(7, "K") == 30, "a copy from before the start's scan"
    assert open_half(7, "none") == 7
    assert open_half(7, "gone") == 7, "it has ended"
    assert open_half(7, "K", b"other") == 7, "another message with this key"
    assert open_half(32, "K") == 32, "an open half of its own"
    assert copies.open_half(7, table, lambda: None) == 7, "its record cannot be read"
    assert StockCopies({}, {}).open_half(7, table, lambda: pytest.fail("nothing is looked up")) == 7
