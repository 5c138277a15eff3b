"""Which offsets are pulled next: against a broker that is only rules, every offset is handed on once and in order."""

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.spark_bridge import pull_schedule
from ringmq.spark_bridge.pull_schedule import Piece, Pull, PullSchedule
from ringmq.spark_bridge.slices import QueueKey, QueueSpan


def span(queue_id: int, begin: int, end: int) -> QueueSpan:
    return QueueSpan(QueueKey("T", "b", queue_id), begin, end)


def body_of(begin: int, end: int) -> memoryview:
    """What a broker would send: here the offsets themselves."""
    return memoryview(b"".join(offset.to_bytes(8, "big") for offset in range(begin, end)))


def offsets_in(piece: Piece) -> list[int]:
    data = bytes(piece.body)
    return [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8)]


def in_flight_of(schedule: PullSchedule) -> list[Pull]:
    pulls = []
    while (pull := schedule.next_pull()) is not None:
        pulls.append(pull)
    return pulls


@given(
    counts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=6),
    cap=st.integers(1, 100),
    pulls_max=st.integers(1, 40),
    seed=st.integers(0, 1 << 30),
)
def test_every_offset_once_and_in_order(counts: list[tuple[int, int]], cap: int, pulls_max: int, seed: int) -> None:
    """Answers in any order, of any size up to `cap`, connections that break and pulls that come back unanswered."""
    chance = random.Random(seed)
    spans = [span(number, begin, begin + count) for number, (begin, count) in enumerate(counts)]
    schedule = PullSchedule(spans, pulls_max=pulls_max)
    found: dict[QueueKey, list[int]] = defaultdict(list)
    waiting: list[Pull] = []
    for _ in range(100_000):
        waiting += in_flight_of(schedule)
        assert len(waiting) <= pulls_max
        if schedule.is_done:
            break
        assert waiting, "not done, and nothing in flight"
        deed = chance.random()
        if deed < 0.02:
            schedule.give_all_back()
            waiting.clear()
            continue
        pull = waiting.pop(chance.randrange(len(waiting)))
        if deed < 0.05:
            schedule.give_back(pull)
            continue
        end = min(pull.end, pull.begin + chance.randint(1, cap))
        for piece in schedule.take(pull, end, body_of(pull.begin, end)):
            found[piece.key] += offsets_in(piece)
    assert schedule.is_done
    assert not waiting
    assert found == {s.key: list(range(s.begin, s.end)) for s in spans if s.count}


@given(cuts=st.lists(st.integers(1, 90), min_size=1, max_size=40), begin=st.integers(0, 60))
def test_inner_batches_come_one_after_the_other(cuts: list[int], begin: int) -> None:
    """A broker gives whole inner batches: from before what was asked for up to behind it."""
    borders = [0]
    for cut in cuts:
        borders.append(borders[-1] + cut)
    end = borders[-1]
    if begin >= end:
        begin = 0
    schedule = PullSchedule([span(0, begin, end)])
    pieces: list[Piece] = []
    while not schedule.is_done:
        pull = schedule.next_pull()
        assert pull is not None
        assert schedule.next_pull() is None, "one at a time"
        to = next(border for border in borders if border > pull.begin)
        pieces += schedule.take(pull, to, b"x", is_batch=True)
    assert [piece.begin for piece in pieces] == [begin, *(border for border in borders if begin < border < end)]
    assert pieces[-1].end == end


def test_pulls_grow_and_shrink_to_what_the_broker_gives() -> None:
    schedule = PullSchedule([span(0, 0, 1_000_000)])
    asked: list[int] = []
    for _ in range(3000):
        for pull in in_flight_of(schedule):
            asked.append(pull.end - pull.begin)
            to = min(pull.end, pull.begin + 100)
            schedule.take(pull, to, b"x")
    assert asked[0] == pull_schedule.COUNT_FIRST
    steady = asked[-1000:]
    assert steady.count(100) > 0.9 * len(steady), "100 is what comes"


def test_a_lost_front_is_skipped_at_once() -> None:
    schedule = PullSchedule([span(0, 0, 1_000_000)])
    pull = schedule.next_pull()
    assert pull is not None
    loss = schedule.lose(pull, 999_990)
    assert loss.end == 999_990
    rest = in_flight_of(schedule)
    assert [(r.begin, r.end) for r in rest] == [(999_990, 1_000_000)]
    assert [p.begin for p in schedule.take(rest[0], 1_000_000, b"x")] == [999_990]
    assert schedule.is_done


def test_pulls_in_flight_are_lost_one_by_one() -> None:
    schedule = PullSchedule([span(0, 0, 1000)])
    first = schedule.next_pull()
    assert first is not None
    schedule.take(first, first.end, b"x")
    pulls = in_flight_of(schedule)
    lost = [pull for pull in pulls if pull.begin < 900]
    pieces = [piece for pull in lost for piece in schedule.lose(pull, 900).pieces]
    assert (pieces[0].begin, pieces[-1].end) == (first.end, 900)
    assert not any(piece.body for piece in pieces)
    (rest,) = in_flight_of(schedule)
    assert (rest.begin, rest.end) == (900, lost[-1].end)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_schedule, "HELD_BYTES_MAX", 1000)
    schedule = PullSchedule([span(0, 0, 100_000)])
    first = schedule.next_pull()
    assert first is not None
    schedule.take(first, first.end, b"x")
    late, *others = in_flight_of(schedule)
    for pull in others[:5]:
        assert schedule.take(pull, pull.end, b"y" * 400) == []
    assert schedule.next_pull() is None, "2000 bytes wait for one late answer"
    pieces = schedule.take(late, late.end, b"x")
    assert [len(piece.body) for piece in pieces] == [1, 400, 400, 400, 400, 400]
    assert schedule.next_pull() is not None
