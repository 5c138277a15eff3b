"""Bytes of an arena are never given out twice, and a flow in order pauses after refusals."""

import random

import pytest

from ringmq.services.kit.arena import Arena, ArenaRing, ArenaSlots, fit
from ringmq.services.kit.in_order_flow import PAUSE_MAX_MS, PAUSE_MS, InOrderFlow

HELD = "code 14, cause 74"
FIRST = 31
"""First byte of the part of the arena."""


@pytest.mark.parametrize("is_in_order", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_bytes_under_way_are_not_given_out_again(seed: int, is_in_order: bool) -> None:
    """Random batches are freed late. One of half the arena always fits when nothing is under way."""
    chance = random.Random(seed)
    size = chance.randrange(10, 200)
    ring, taken = ArenaRing(size, FIRST), 0
    under_way = dict[int, tuple[int, int]]()
    for _ in range(2000):
        wanted = chance.randrange(1, size // 2 + 1)
        pieces = list[int]()

        def make(start: int, end: int, wanted: int = wanted, pieces: list[int] = pieces) -> int:
            assert FIRST <= start <= end <= FIRST + size
            assert all(end <= first or start >= last for first, last in under_way.values())
            pieces.append(start)
            return end - start >= wanted

        if fit(ring, make):
            number = ring.take(pieces[-1] + wanted)
            assert number == taken
            under_way[number] = (pieces[-1], pieces[-1] + wanted)
            taken += 1
        else:
            assert under_way
        for number in [number for number in under_way if chance.random() < 0.3]:
            if is_in_order and number != min(under_way):
                break
            ring.free(number)
            del under_way[number]
    assert taken > 500


def test_a_slot_is_in_use_until_it_is_freed() -> None:
    slots: Arena = ArenaSlots(100, 3, FIRST)
    pieces = dict[int, tuple[int, int]]()
    for _ in range(3):
        piece = slots.piece
        pieces[slots.take(piece[0] + 50)] = piece
    assert sorted(pieces.values()) == [(FIRST + 100 * slot, FIRST + 100 * slot + 100) for slot in range(3)]
    assert fit(slots, lambda start, end: end > start) == 0
    slots.free(1)
    assert slots.piece == pieces[1]


def test_a_refusal_pauses_longer_each_time_and_is_told_once() -> None:
    flow, now, said, pauses = InOrderFlow(ArenaRing(100)), 0, [], []
    flow.settled()
    for _ in range(9):
        said.append(flow.tallied(0, HELD, now))
        assert flow.tallied(0, HELD, now + 5) == "" and flow.pause_ms(now) == 0, "the same refusal, not settled yet"
        flow.settled()
        began = now
        while not flow.may_submit(now):
            assert flow.pause_ms(now)
            now += 1
        pauses.append(now - began)
    assert pauses == [PAUSE_MS << number for number in range(7)] + [PAUSE_MAX_MS] * 2
    assert said == ["waits: write refuses its records (code 14, cause 74)"] + [""] * 8
    assert flow.tallied(1, "", now) == f"publishes again after {now / 1000:.1f} s"
    assert flow.tallied(0, HELD, now) == said[0], "the next outage is told, too"
    flow.settled()
    assert not flow.may_submit(now + PAUSE_MS - 1) and flow.may_submit(now + PAUSE_MS)
