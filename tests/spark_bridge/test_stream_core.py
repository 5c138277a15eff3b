"""Decisions of a streaming query: limits, turns, appearing and vanishing queues, places as JSON."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.spark_bridge.slices import QueueKey, QueueSpan
from ringmq.spark_bridge.stream_core import (
    Bounds,
    Limits,
    LogEnd,
    OffsetsError,
    StreamOffset,
    TriggerState,
    apportion,
    batch_between,
    next_end,
    offsets_from_json,
    offsets_to_json,
    stream_offset_from_json,
    stream_offset_to_json,
)

A, B, C = (QueueKey("T", "b", number) for number in range(3))
NOW_MS = 1_700_000_000_000
NO_LIMITS = Limits()

keys = st.builds(QueueKey, st.sampled_from(["T", "U"]), st.sampled_from(["b", "c:1"]), st.integers(0, 11))
offsets = st.dictionaries(keys, st.integers(0, 1 << 40), max_size=12)
lags = st.dictionaries(keys, st.integers(1, 1 << 40), min_size=1, max_size=12)


def bounds_of(ends: Mapping[QueueKey, int], firsts: Mapping[QueueKey, int] | None = None) -> Bounds:
    return lambda key: ((firsts or {}).get(key, 0), ends.get(key, 0))


def seen(ends: Mapping[QueueKey, int]) -> LogEnd:
    return LogEnd(ends, {"b", "c:1"})


# ---- JSON ----


@given(offsets)
def test_places_survive_json_and_equal_ones_are_equal_text(place: dict[QueueKey, int]) -> None:
    text = json.dumps(offsets_to_json(place))
    assert offsets_from_json(json.loads(text)) == place
    assert json.dumps(offsets_to_json(dict(reversed(place.items())))) == text


def test_notes_of_another_form_are_refused() -> None:
    with pytest.raises(OffsetsError, match="another source"):
        stream_offset_from_json({"(began)": {"T": 5}})


@given(st.builds(StreamOffset, offsets, st.none() | offsets, offsets, st.integers(0, 1 << 53)))
def test_what_is_noted_with_a_place_survives_json_and_is_no_offset(place: StreamOffset) -> None:
    text = json.dumps(stream_offset_to_json(place))
    assert stream_offset_from_json(json.loads(text)) == place
    assert offsets_from_json(json.loads(text)) == place.offsets


def test_a_place_of_before_notes_has_none() -> None:
    assert stream_offset_from_json({"T": {"b:0": 5}}) == StreamOffset({A: 5})
    assert stream_offset_to_json(StreamOffset({A: 5}, began={A: 2}, given_at_ms=7)) == {
        "(began)": {"T/b:0": 2},
        "(given)": {"ms": 7},
        "T": {"b:0": 5},
    }


def test_json_is_ordered_by_number_within_a_broker() -> None:
    place = {QueueKey("T", "b", number): number for number in (10, 9, 0)}
    assert json.dumps(offsets_to_json(place)) == '{"T": {"b:0": 0, "b:9": 9, "b:10": 10}}'


@pytest.mark.parametrize("text", ['{"T": {"0": 5}}', '{"logOffset": 7}', "[]", '{"T": {"b:x": 5}}'])
def test_another_source_s_checkpoint_is_refused(text: str) -> None:
    for read in (offsets_from_json, stream_offset_from_json):
        with pytest.raises(OffsetsError, match="another source"):
            read(json.loads(text))


# ---- shares ----


@given(lags, st.integers(1, 1 << 41))
def test_shares_are_exact_and_never_more_than_a_queue_has(lag: dict[QueueKey, int], rows_max: int) -> None:
    rows, _ = apportion(lag, rows_max)
    assert sum(rows.values()) == min(rows_max, sum(lag.values()))
    assert all(0 < count <= lag[key] for key, count in rows.items())
    if rows_max >= len(lag):
        assert rows.keys() == lag.keys(), "every queue gets a row"


@given(lags, st.integers(1, 1 << 41))
def test_shares_are_in_proportion(lag: dict[QueueKey, int], rows_max: int) -> None:
    rows, _ = apportion(lag, rows_max)
    total = sum(lag.values())
    if len(lag) <= rows_max < total:
        for key, count in rows.items():
            fair = rows_max * lag[key] / total
            assert fair - len(lag) - 1 <= count <= fair + 2


@given(st.integers(1, 6), st.sets(keys, min_size=1, max_size=12))
def test_where_rows_are_fewer_than_queues_all_are_served_in_turn(rows_max: int, queues: set[QueueKey]) -> None:
    lag = dict.fromkeys(queues, 1000)
    served: set[QueueKey] = set()
    last: QueueKey | None = None
    for _ in range(-(-len(queues) // rows_max)):
        rows, last = apportion(lag, rows_max, last)
        served |= rows.keys()
    assert served == queues


# ---- the end of a batch ----


@given(offsets, offsets, st.integers(1, 100), st.integers(0, 3))
def test_a_query_reaches_the_end_in_batches_without_gap_or_overlap(
    start: dict[QueueKey, int], more: dict[QueueKey, int], rows_max: int, steps: int
) -> None:
    """From any place to a frozen end: every offset once, in as many batches as the limit says."""
    ends = {key: start.get(key, 0) + more.get(key, 0) % 97 for key in start.keys() | more.keys()}
    bounds = bounds_of(ends)
    expected = {key: (start.get(key, 0), end) for key, end in ends.items() if end > start.get(key, 0)}
    read: dict[QueueKey, tuple[int, int]] = {}
    place, trigger, total = dict(start), TriggerState(), 0
    while True:
        step = next_end(place, seen(ends), bounds, Limits(rows_max=rows_max), trigger, NOW_MS)
        if step.end == place:
            break
        batch = batch_between(place, step.end, bounds)
        assert not batch.losses
        assert 0 < batch.rows <= rows_max
        for span in batch.spans:
            begin, end = read.get(span.key, (span.begin, span.begin))
            assert end == span.begin
            read[span.key] = (begin, span.end)
        place, trigger, total = dict(step.end), step.trigger, total + 1
    assert read == expected
    assert total == -(-sum(end - begin for begin, end in expected.values()) // rows_max)


def test_without_limits_a_batch_ends_at_the_log_s_end() -> None:
    step = next_end({A: 5, B: 7}, seen({A: 9, B: 7}), bounds_of({}), NO_LIMITS, TriggerState(), NOW_MS)
    assert step.end == {A: 9, B: 7}


def test_few_rows_are_waited_for_until_the_delay_is_over() -> None:
    limits = Limits(rows_min=10, delay_max_ms=1000)
    ends = seen({A: 5})
    first = next_end({A: 0}, ends, bounds_of({}), limits, TriggerState(), NOW_MS)
    assert first.end == {A: 5}, "the first batch waits for nothing, as in Kafka's source"
    waiting = next_end({A: 5}, seen({A: 14}), bounds_of({}), limits, first.trigger, NOW_MS + 999)
    assert (waiting.end, waiting.trigger) == ({A: 5}, first.trigger)
    assert next_end({A: 5}, seen({A: 15}), bounds_of({}), limits, first.trigger, NOW_MS + 999).end == {A: 15}
    late = next_end({A: 5}, seen({A: 14}), bounds_of({}), limits, first.trigger, NOW_MS + 1000)
    assert (late.end, late.trigger.batch_at_ms) == ({A: 14}, NOW_MS + 1000)


def test_both_limits_hold_at_once() -> None:
    limits = Limits(rows_min=10, rows_max=12, delay_max_ms=1000)
    trigger = TriggerState(batch_at_ms=NOW_MS)
    assert next_end({A: 0}, seen({A: 9}), bounds_of({}), limits, trigger, NOW_MS).end == {A: 0}
    assert next_end({A: 0}, seen({A: 90}), bounds_of({}), limits, trigger, NOW_MS).end == {A: 12}


def test_a_queue_that_appears_is_read_from_its_first_offset() -> None:
    ends = {A: 5, B: 3}
    step = next_end({A: 5}, seen(ends), bounds_of(ends), NO_LIMITS, TriggerState(), NOW_MS)
    assert step.end == ends
    batch = batch_between({A: 5}, step.end, bounds_of(ends))
    assert batch.spans == (QueueSpan(B, 0, 3),)
    assert not batch.losses


def test_a_queue_that_appears_without_rows_makes_no_batch() -> None:
    step = next_end({A: 5}, seen({A: 5, B: 0}), bounds_of({A: 5}), NO_LIMITS, TriggerState(), NOW_MS)
    assert step.end == {A: 5}


def test_a_queue_that_appears_with_its_first_rows_gone_is_a_loss() -> None:
    ends = {B: 30}
    step = next_end({}, seen(ends), bounds_of(ends, {B: 20}), Limits(rows_max=4), TriggerState(), NOW_MS)
    batch = batch_between({}, step.end, bounds_of(ends, {B: 20}))
    assert batch.spans == (QueueSpan(B, 20, 24),)
    assert batch.losses == ("offsets 0 to 19 of queue b:1 of topic T were deleted, it begins at 20",)


def test_a_deleted_queue_leaves_the_place_and_is_told() -> None:
    ends = {A: 5}
    step = next_end({A: 5, B: 7}, seen(ends), bounds_of(ends), NO_LIMITS, TriggerState(), NOW_MS)
    assert step.end == {A: 5}
    batch = batch_between({A: 5, B: 7}, step.end, bounds_of(ends))
    assert not batch.spans
    assert batch.losses == (
        "queue b:1 of topic T does not exist, the query was at its offset 7: check whether it was deleted",
    )
    assert not batch_between({A: 5, B: 0}, step.end, bounds_of(ends)).losses, "it never had a message"


def test_a_broker_that_cannot_be_seen_keeps_its_queues() -> None:
    away = QueueKey("T", "away", 0)
    step = next_end({A: 5, away: 7}, seen({A: 6}), bounds_of({A: 6}), NO_LIMITS, TriggerState(), NOW_MS)
    assert step.end == {A: 6, away: 7}
    assert not batch_between({A: 5, away: 7}, step.end, bounds_of({A: 6})).losses


@pytest.mark.parametrize("rows_max", [None, 4])
@pytest.mark.parametrize("how", ["topic", "store", "store that is longer"])
def test_a_queue_created_again_is_read_from_its_first_offset_and_told(how: str, rows_max: int | None) -> None:
    """The rows of a store that is longer than the old one are not taken for its next ones."""
    ends = {A: 10, B: 0}
    place, read = {A: 5 if how == "store that is longer" else 50, B: 0}, []
    losses: list[str] = []
    log = LogEnd(ends, {"b"}, replaced={A: 0}) if how == "topic" else LogEnd(ends, {"b"}, renewed={"b"})
    for _ in range(20):
        step = next_end(place, log, bounds_of(ends), Limits(3, rows_max), TriggerState(NOW_MS), NOW_MS)
        if step.end == place:
            break
        batch = batch_between(place, step.end, bounds_of(ends), step.recreated)
        read += [(span.begin, span.end) for span in batch.spans]
        losses += batch.losses
        place, log = dict(step.end), seen(ends)
    rows = [(0, 10)] if rows_max is None else [(0, 4), (4, 8)]
    assert read == rows, "the last two rows are waited for"
    assert len(losses) == 1
    assert "queue b:0 of topic T was deleted and created" in losses[0]


def test_a_queue_that_is_not_served_yet_keeps_that_it_was_created_again() -> None:
    ends = {A: 70, B: 70}
    log = LogEnd(ends, {"b"}, renewed={"b"})
    step = next_end({A: 50, B: 60}, log, bounds_of(ends), Limits(rows_max=1), TriggerState(), NOW_MS)
    assert (step.end, step.recreated) == ({A: 1, B: 0}, {A: 0, B: 0})


def test_a_queue_created_again_without_rows_is_noticed_before_it_outgrows_the_place() -> None:
    step = next_end({A: 50, B: 7}, seen({A: 0, B: 7}), bounds_of({B: 7}), NO_LIMITS, TriggerState(), NOW_MS)
    assert step.end == {A: 0, B: 7}
    batch = batch_between({A: 50, B: 7}, step.end, bounds_of({B: 7}))
    assert not batch.spans
    assert "was at 50" in batch.losses[0]


def test_a_queue_that_lost_its_newest_rows_goes_on_at_its_end() -> None:
    """A power failure: what is left of it was read before."""
    ends = {A: 999}
    step = next_end({A: 1000}, seen(ends), bounds_of(ends), NO_LIMITS, TriggerState(), NOW_MS)
    assert (step.end, step.recreated) == (ends, {})
    batch = batch_between({A: 1000}, step.end, bounds_of(ends))
    assert not batch.spans
    assert batch.losses == (
        "queue b:0 of topic T ends at offset 999, the query was at 1000: its newest rows were lost",
    )
    later = next_end(step.end, seen({A: 1003}), bounds_of({A: 1003}), NO_LIMITS, step.trigger, NOW_MS)
    assert batch_between(step.end, later.end, bounds_of({A: 1003})).spans == (QueueSpan(A, 999, 1003),)


def test_rows_gone_at_either_end_are_told_with_their_offsets() -> None:
    batch = batch_between({A: 10, B: 10, C: 10}, {A: 40, B: 15, C: 10}, bounds_of({A: 30, B: 50}, {A: 20, B: 20, C: 9}))
    assert batch.spans == (QueueSpan(A, 20, 30),)
    assert batch.losses == (
        "offsets 10 to 19 of queue b:0 of topic T were deleted, it begins at 20",
        "offsets 30 to 39 of queue b:0 of topic T do not exist, it ends at 30",
        "offsets 10 to 14 of queue b:1 of topic T were deleted, it begins at 20",
    )
