"""The table of open halves beside a plain dict."""

import random
from array import array

import pytest

from ringmq.services.transactions.half_table import (
    CHECKS_MAX,
    COMPACT_MIN,
    ENDED,
    HELD,
    IMMUNITY_S_MAX,
    OPEN,
    SENT,
    Half,
    HalfTable,
)


@pytest.mark.parametrize("seed", range(4))
def test_table_beside_a_dict(seed: int) -> None:
    dice = random.Random(seed)
    table, model, offset = HalfTable(), dict[int, Half](), 0
    for _ in range(6 * COMPACT_MIN):
        offset += dice.randrange(1, 3)
        if model and dice.random() < 0.6:
            first = dice.choice(sorted(model)[:50])
            if dice.random() < 0.7:
                table.end(first)
                del model[first]
            else:
                is_check = dice.random() < 0.5
                table.move(first, offset, is_check=is_check)
                half = model[first]
                model[first] = half._replace(newest=offset, checks=half.checks + is_check)
        else:
            model[offset] = Half(offset, offset, dice.randrange(1 << 40), dice.randrange(-1, 100), dice.randrange(16))
            table.add(model[offset])
        assert len(table) == len(model)
    assert list(table.following(0, 10 * COMPACT_MIN)) == sorted(model.values())
    assert table.lowest_newest() == min((half.newest for half in model.values()), default=None)
    for first in range(offset + 2):
        assert table.find(first) == model.get(first)


def test_unknown_halves() -> None:
    table = HalfTable()
    table.add(Half(5, 5, 0, -1, 0))
    table.end(5)
    for call in (table.end, lambda first: table.move(first, 6, is_check=True)):
        with pytest.raises(KeyError):
            call(5)
    with pytest.raises(ValueError, match="half 5 comes behind 5"):
        table.add(Half(5, 5, 0, -1, 0))
    assert table.lowest_newest() is None


def test_numbers_at_their_bounds() -> None:
    table = HalfTable()
    table.add(Half(0, 0, (1 << 63) - 1, 1 << 40, 1 << 20))
    assert table.find(0) == Half(0, 0, (1 << 63) - 1, IMMUNITY_S_MAX, CHECKS_MAX)
    table.move(0, 1, is_check=True)
    assert table.find(0) == Half(0, 1, (1 << 63) - 1, IMMUNITY_S_MAX, CHECKS_MAX)


def test_sent_halves_in_columns() -> None:
    table = HalfTable()
    table.add(Half(3, 3, 9, 5, 1))
    table.add_sent(*(memoryview(array("q", column)).cast("B") for column in ([4, 6], [70, 80])))
    assert list(table.following(0, 9)) == [Half(3, 3, 9, 5, 1), Half(4, 4, 70, -1, 0), Half(6, 6, 80, -1, 0)]
    with pytest.raises(ValueError, match="half 6 comes behind 6"):
        table.add_sent(*(memoryview(array("q", column)).cast("B") for column in ([6, 7], [1, 2])))
    table.add_sent(memoryview(b""), memoryview(b""))
    assert len(table) == 3


def test_c_takes_open_halves_alone() -> None:
    """States: C sends OPEN ones, the core holds those that it works on."""
    table = HalfTable()
    for first in range(4):
        table.add(Half(first, first + 10, 0, -1, 0))
    table.hold(1)
    table.end(2)
    with table.columns() as columns:
        assert [columns.first[at] for at in range(columns.count)] == [0, 1, 2, 3]
        assert [columns.newest[at] for at in range(columns.count)] == [10, 11, 12, 13]
        assert bytes(columns.state[0:4]) == bytes([OPEN, HELD, ENDED, OPEN])
        columns.state[3] = SENT
    assert [table.is_sent(first) for first in range(5)] == [False, False, False, True, False]
    assert [half.first for half in table.following(0, 9)] == [0, 1], "a round leaves out what C has sent"
    assert table.lowest_newest() == 10
    table.release(1)
    table.release(2)
    with table.columns() as columns:
        assert bytes(columns.state[0:4]) == bytes([OPEN, OPEN, ENDED, SENT])
        columns.state[3] = ENDED
    table.ended(1)
    assert (len(table), table.find(3)) == (2, None)
    table.add(Half(9, 9, 0, -1, 0))


def test_load_sorts_by_the_first_half() -> None:
    table = HalfTable()
    halves = [Half(9, 9, 0, -1, 0), Half(3, 12, 0, -1, 2), Half(5, 11, 0, -1, 1)]
    table.load(halves)
    assert list(table.following(4, 10)) == [Half(5, 11, 0, -1, 1), Half(9, 9, 0, -1, 0)]
    assert (table.following_first(0, 2), table.following_first(0, 3), table.lowest_newest()) == (9, None, 9)
