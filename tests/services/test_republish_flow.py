"""The policy of republishing: bytes of the arena are never given out twice, and every offset is submitted in order."""

import random

import pytest

from ringmq.services.arena_ring import ArenaRing
from ringmq.services.republish_flow import PAUSE_MAX_MS, PAUSE_MS, Refusal, RepublishFlow, State

HELD = Refusal(14, 74)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_under_way_are_not_given_out_again(seed: int) -> None:
    """Random batches of two lanes, given back late: spans keep out of them, and a batch of half the arena always fits
    when nothing is under way."""
    chance = random.Random(seed)
    size = chance.randrange(10, 200)
    ring, under_way, ends, stored, taken = ArenaRing(size), [], [0, 0], [0, 0], 0
    for _ in range(2000):
        wanted = chance.randrange(1, size // 2 + 1)
        start, end = ring.span
        if end - start < wanted and ring.wrap():
            start, end = ring.span
        assert 0 <= start <= end <= size
        assert under_way or end - start >= wanted
        assert all(end <= first or start >= last for first, last, _, _ in under_way)
        if end - start >= wanted:
            lane = chance.randrange(2)
            ends[lane] += 1
            ring.take(lane, ends[lane], start + wanted)
            under_way.append((start, start + wanted, lane, ends[lane]))
            taken += 1
        if chance.random() < 0.4:
            count = chance.randrange(len(under_way) + 1)
            for _, _, lane, reached in under_way[:count]:
                stored[lane] = reached
            del under_way[:count]
            ring.give_back(stored)
    assert taken > 500


def test_a_refusal_pauses_longer_each_time_and_is_told_once() -> None:
    flow, now, said, pauses = RepublishFlow(1, 100), 0, [], []
    flow.settled([5])
    for _ in range(9):
        said.append(flow.tallied([5], HELD, now))
        flow.settled([5])
        began = now
        while not flow.may_submit(now):
            now += 1
        pauses.append(now - began)
    assert pauses == [PAUSE_MS << number for number in range(7)] + [PAUSE_MAX_MS] * 2
    assert said == ["waits: write refuses its records (code 14, cause 74)"] + [""] * 8
    assert flow.tallied([6], None, now) == f"publishes again after {now / 1000:.1f} s"
    assert flow.tallied([6], HELD, now) == said[0], "the next outage is told, too"
    flow.settled([6])
    assert not flow.may_submit(now + PAUSE_MS - 1) and flow.may_submit(now + PAUSE_MS)


@pytest.mark.parametrize("seed", range(30))
def test_a_simulated_port_gets_each_offset_once_and_in_order(seed: int) -> None:
    """Refusals, late completions and deaths at random: what is stored is 0, 1, 2, .. whatever comes."""
    chance = random.Random(seed)
    stored: list[int] = []
    ring: list[int] = []
    answers: list[tuple[int, bool]] = []
    written_down, refused_behind = 0, False
    flow = RepublishFlow(1, 64)
    for now in range(3000):
        match chance.randrange(6):
            case 0 | 1 if ring:  # write takes some; behind a refusal it refuses all
                for offset in ring[: chance.randrange(1, 9)]:
                    refused_behind |= chance.random() < 0.02
                    if not refused_behind:
                        stored.append(offset)
                    answers.append((offset, not refused_behind))
                    ring.pop(0)
            case 2 | 3:
                count = chance.randrange(len(answers) + 1)
                written_down = max([written_down, *(offset + 1 for offset, kept in answers[:count] if kept)])
                refusal = HELD if any(not kept for _, kept in answers[:count]) else None
                del answers[:count]
                if count:
                    flow.tallied([written_down], refusal, now)
            case 4 if flow.state is State.SETTLING and not ring and not answers:
                refused_behind = False
                flow.settled([written_down])
            case 5 if flow.may_submit(now):
                start, end = flow.arena.span
                if made := min(end - start, chance.randrange(1, 20)):
                    ring += range(flow.next[0], flow.next[0] + made)
                    flow.submitted(0, flow.next[0] + made, flow.next[0] + made, start + made)
        if chance.random() < 0.01:  # the owner dies: write drops what is left in the ring
            ring.clear()
            flow = RepublishFlow(1, 64)
    assert stored == list(range(len(stored))) and len(stored) > 200
