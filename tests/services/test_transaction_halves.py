"""The table of open halves beside a plain dict."""

import random
from collections.abc import Sequence

import pytest

from ringmq.native import lib
from ringmq.services.transactions.half_table import (
    CHECKS_MAX,
    COMPACT_MIN,
    ENDED,
    HELD,
    IMMUNITY_S_MAX,
    OPEN,
    SENT,
    DoneHalves,
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
    assert table.low(offset + 1) == min((half.newest for half in model.values()), default=offset + 1)
    for first in range(offset + 2):
        assert table.find(first) == model.get(first)


def test_unknown_halves() -> None:
    table = HalfTable()
    table.add(Half(5, 5, 0, -1, 0))
    table.end(5)
    for call in (table.end, lambda first: table.move(first, 6, is_check=True)):
        with pytest.raises(KeyError):
            call(5)
    with pytest.raises(ValueError, match="comes behind 5"):
        table.add(Half(5, 5, 0, -1, 0))
    assert table.low(6) == 6


def test_numbers_at_their_bounds() -> None:
    table = HalfTable()
    table.add(Half(0, 0, (1 << 63) - 1, 1 << 40, 1 << 20))
    assert table.find(0) == Half(0, 0, (1 << 63) - 1, IMMUNITY_S_MAX, CHECKS_MAX)
    table.move(0, 1, is_check=True)
    assert table.find(0) == Half(0, 1, (1 << 63) - 1, IMMUNITY_S_MAX, CHECKS_MAX)


def test_c_takes_open_halves_alone() -> None:
    """States: C sends OPEN ones, the core holds those that it works on."""
    table = HalfTable()
    for first in range(4):
        table.add(Half(first, first + 10, 0, -1, 0))
    table.hold(1)
    table.end(2)
    rows = table.native.rows
    assert [(rows[at].first, rows[at].newest, rows[at].state) for at in range(4)] == [
        (0, 10, OPEN), (1, 11, HELD), (2, 12, ENDED), (3, 13, OPEN),
    ]  # fmt: skip
    rows[3].state = SENT
    assert [table.is_sent(first) for first in range(5)] == [False, False, False, True, False]
    assert [half.first for half in table.following(0, 9)] == [0, 1], "a round leaves out what C has sent"
    assert (table.low(99), table.low(4)) == (10, 4), "copies are ahead of halves that have not arrived"
    table.release(1)
    table.release(2)
    assert [rows[at].state for at in range(4)] == [OPEN, OPEN, ENDED, SENT]
    lib.rmq_half_table_end(table.native, 3)
    assert (len(table), table.find(3)) == (2, None)
    table.add(Half(9, 9, 0, -1, 0))


def settled(halves: list[tuple[Half, bool]], low: int, listed: Sequence[int]) -> tuple[list[Half], list[int]]:
    """The open halves of these staged ones, and the older copies that no op record lists."""
    table, done = HalfTable(), DoneHalves(low, low + 100)
    done.add(listed)
    for half, is_stock_copy in halves:
        table.stage_half(half, done, is_stock_copy=is_stock_copy)
    replaced = list(table.settle())
    return list(table.following(0, 1 << 20)), replaced


@pytest.mark.parametrize("seed", range(20))
def test_staged_halves_beside_a_dict(seed: int) -> None:
    """Copies lie out of order, and may be of halves that lie before the first record."""
    dice = random.Random(seed)
    low, model, replaced, staged = 50, dict[int, Half](), [], []
    listed = [offset for offset in range(low, low + 60) if dice.random() < 0.4]
    for offset in range(low, low + 60):
        first = dice.choice((offset, offset, dice.randrange(max(0, offset - 20), offset)))
        half = Half(first, offset, dice.randrange(1 << 40), dice.randrange(-1, 9), dice.randrange(9))
        staged.append((half, False))
        if older := model.pop(first, None):
            replaced.append(older.newest)
        if offset not in listed:
            model[first] = half
    found, older_copies = settled(staged, low, [3, *listed, 1 << 40])
    assert found == sorted(model.values())
    assert sorted(older_copies) == sorted(replaced)


def test_halves_in_order_and_none() -> None:
    halves = [Half(first, first, 0, -1, 0) for first in (3, 5, 9)]
    assert settled([(half, False) for half in halves], 0, ()) == (halves, [])
    assert settled([], 0, ()) == ([], [])
    table = HalfTable()
    table.add(halves[2])
    table.clear()
    table.add(halves[0])
    assert (len(table), table.has_stock_copies, table.find(9)) == (1, False, None)
