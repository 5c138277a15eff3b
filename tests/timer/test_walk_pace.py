"""Slots are read in small pieces while there is time."""

import pytest

from ringmq.timer.walk_pace import LEAD_MAX_MS, PIECE_MAX, PIECE_MIN, PIECE_USUAL, lead_ms, piece_of

PRECISION_MS = 1000


@pytest.mark.parametrize(
    ("before_ms", "count", "units"),
    [
        (1000, 0, PIECE_MIN),
        (1000, -1, PIECE_MIN),
        (1000, 20_000, PIECE_MIN),
        (501, 100_001, 201),
        (1000, 5_000_000, PIECE_MAX),
        (20_000, 5_000_000, PIECE_USUAL + 1),
        (500, 1, PIECE_MAX),
        (0, 1, PIECE_MAX),
        (-60_000, 1, PIECE_MAX),
    ],
)
def test_pieces(before_ms: int, count: int, units: int) -> None:
    assert piece_of(10_000_000, 10_000_000 - before_ms, PRECISION_MS, count) == units


@pytest.mark.parametrize("precision_ms", [100, 200, 500, 1000])
@pytest.mark.parametrize("count", [1, 1000, 100_000, 1_000_000, 5_000_000])
def test_a_slot_is_read_in_half_its_lead_with_a_piece_a_millisecond(precision_ms: int, count: int) -> None:
    left, left_ms = count, lead_ms(precision_ms, count)
    half_ms = left_ms // 2
    while left > 0 and left_ms > half_ms:
        left -= piece_of(0, -left_ms, precision_ms, count)
        left_ms -= 1
    assert left <= 0


@pytest.mark.parametrize("count", [300_000, 1_000_000, 5_000_000])
def test_pieces_of_a_large_slot_stay_small(count: int) -> None:
    begin_ms = -lead_ms(PRECISION_MS, count)
    assert -LEAD_MAX_MS <= begin_ms < -PRECISION_MS
    assert piece_of(0, begin_ms, PRECISION_MS, count) <= PIECE_USUAL + 1
