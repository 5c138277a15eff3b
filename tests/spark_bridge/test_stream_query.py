"""A stream's planning on a catalog that is told what to answer: waiting for brokers, frozen ends, losses."""

import logging
from dataclasses import dataclass, field, replace

import pytest

from ringmq.spark_bridge import stream_query
from ringmq.spark_bridge.errors import BrokerStartingError, DataLossError, ReadError
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey, StoreLocation
from ringmq.spark_bridge.stream_core import Limits, StreamOffset, stream_offset_from_json, stream_offset_to_json
from ringmq.spark_bridge.stream_query import StreamQuery
from tests.spark_bridge.fake_catalog import FakeCatalog

A, B = QueueKey("T", "b", 0), QueueKey("T", "b", 1)
OPTIONS = parse_options({"store": "/s", "startingOffsets": "earliest"}, streaming=True)
GOING_ON = replace(OPTIONS, fail_on_data_loss=False)
NO_LIMITS = Limits()
OTHERS_MS = 60_000


@dataclass
class Brokers(FakeCatalog):
    """`away` of the looks from now on fail; `short` of them show queues as empty; while `starting` questions wait.
    Rows of A from `others_from` on are stored much later than the rest."""

    away: int = 0
    short: int = 0
    starting: int = 0
    inode: int = 1
    others_from: int = 1000

    def brokers(self) -> tuple[BrokerLocation, ...]:
        names = sorted({broker for _, broker, _ in self.known})
        store = StoreLocation("/nowhere", "boot", 1, self.inode)
        return tuple(BrokerLocation(name, f"{name}:10911", store) for name in names)

    def ends(self) -> dict[QueueKey, int]:
        self.away -= 1
        if self.away >= 0:
            raise ReadError("name server n:9876 cannot be asked")
        self.short -= 1
        return {key: 0 if self.short >= 0 else super(Brokers, self).bounds(key)[1] for key in self.queues()}

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        self.starting -= 1
        if self.starting >= 0:
            raise BrokerStartingError("store /s: its broker is starting")
        return super().bounds(key)

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        found = super().offset_at(key, timestamp_ms)
        if key != A or timestamp_ms > OTHERS_MS or self.others_from >= self.known[A][1]:
            return found
        return self.others_from if found is None else min(found, self.others_from)


@pytest.fixture
def catalog() -> Brokers:
    return Brokers({A: (0, 10), B: (0, 20)})


def query(catalog: Brokers, options: ReadOptions = OPTIONS) -> StreamQuery:
    return StreamQuery(options, catalog)


def test_a_new_query_begins_where_its_options_say(catalog: Brokers) -> None:
    assert query(catalog).initial_offsets() == {A: 0, B: 0}
    latest = parse_options({"store": "/s"}, streaming=True)
    assert query(catalog, latest).initial_offsets() == {A: 10, B: 20}


def test_only_assigned_queues_are_followed(catalog: Brokers) -> None:
    assigned = parse_options({"store": "/s", "assign": '{"T": ["b:1"]}', "startingOffsets": "earliest"}, streaming=True)
    stream = query(catalog, assigned)
    assert stream.initial_offsets() == {B: 0}
    assert stream.next_end(StreamOffset({B: 0}), NO_LIMITS).offsets == {B: 20}


def test_a_broker_that_cannot_be_asked_is_waited_for(catalog: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    stream = query(catalog)
    place = stream.next_end(StreamOffset({A: 0, B: 0}), NO_LIMITS)
    catalog.away = 2
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        assert stream.next_end(place, NO_LIMITS) is place
        assert stream.next_end(place, NO_LIMITS) is place
    assert [record.message for record in caplog.records if "waits" in record.message] == [
        "name server n:9876 cannot be asked. The stream waits up to 120 s for it"
    ]
    catalog.known[A] = (0, 15)
    assert stream.next_end(place, NO_LIMITS).offsets == {A: 15, B: 20}


def test_but_not_for_ever(catalog: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_query, "OUTAGE_MAX_S", -1.0)
    catalog.away = 1
    with pytest.raises(ReadError, match="cannot be asked"):
        query(catalog).next_end(StreamOffset({A: 0, B: 0}), NO_LIMITS)


def test_queues_that_look_short_for_a_moment_lose_nothing(catalog: Brokers) -> None:
    catalog.short = 3
    place = StreamOffset({A: 10, B: 20})
    assert query(catalog).next_end(place, NO_LIMITS) is place


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("given_at_ms", "begin"), [(1105, 10), (999, 0), (0, 10)])
def test_queues_that_stay_short(
    catalog: Brokers, frozen: bool, given_at_ms: int, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows as old as the place: the newest were lost. All younger (from 1000 ms on): the topic was made again."""
    monkeypatch.setattr(stream_query, "SETTLE_S", 0.05)
    catalog.known[B] = (0, 220)
    stream = query(catalog)
    if frozen:
        stream.freeze()
    start = StreamOffset({A: 50, B: 220}, given_at_ms=given_at_ms)
    end = stream.next_end(start, NO_LIMITS)
    assert end.offsets == {A: 10, B: 220}
    with pytest.raises(DataLossError, match=r"queue b:0 of topic T .*the query was at .*50.*failOnData"):
        stream.slices(start, end)
    spans = spans_of(query(catalog, GOING_ON), start, stream_offset_from_json(stream_offset_to_json(end)))
    assert spans == ([(A, begin, 10)] if begin < 10 else [])


C = QueueKey("T", "c", 0)
LATER_MS = 10_000  # than all rows of the fake catalog


@pytest.fixture
def refilled(catalog: Brokers, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """A slave took its log from its master again: so far it has half of the rows that it had."""
    monkeypatch.setattr(stream_query, "SETTLE_S", 0.01)
    monkeypatch.setattr(stream_query, "SETTLE_STEP_S", 0.0)
    monkeypatch.setattr(stream_query, "OUTAGE_STEP_S", 0.0)
    catalog.known |= {A: (0, 5), B: (0, 0)}
    return catalog


def test_queues_that_are_filled_again_keep_their_place(refilled: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    stream = query(refilled)
    place = StreamOffset({A: 10, B: 20}, given_at_ms=LATER_MS)
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        assert stream.next_end(place, NO_LIMITS) is place
        refilled.known |= {A: (0, 8), B: (0, 3)}
        assert stream.next_end(place, NO_LIMITS) is place
    assert caplog.text.count("queues end before the query's place") == 1
    refilled.known |= {A: (0, 10), B: (0, 24)}
    end = stream.next_end(place, NO_LIMITS)
    assert spans_of(stream, place, end) == [(B, 20, 24)]


def test_queues_of_other_brokers_are_read_meanwhile(refilled: Brokers) -> None:
    refilled.known[C] = (0, 7)
    stream = query(refilled)
    place = StreamOffset({A: 10, B: 20, C: 4}, given_at_ms=LATER_MS)
    end = stream.next_end(place, NO_LIMITS)
    assert end.offsets == {A: 10, B: 20, C: 7}
    assert spans_of(stream, place, end) == [(C, 4, 7)]


def test_what_does_not_come_again_is_a_loss(refilled: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the log goes on with rows that are younger than the place, or does not go on at all."""
    place = StreamOffset({A: 10, B: 20}, given_at_ms=1000 + 10 * 30)
    stream = query(refilled)
    assert stream.next_end(place, NO_LIMITS) is place
    refilled.known |= {QueueKey("T", "b", 2): (0, 132)}
    assert stream.next_end(place, NO_LIMITS).offsets == {A: 5, B: 0, QueueKey("T", "b", 2): 132}
    monkeypatch.setattr(stream_query, "OUTAGE_MAX_S", -1.0)
    stream = query(refilled)
    place = StreamOffset({A: 10, B: 20, QueueKey("T", "b", 2): 132}, given_at_ms=LATER_MS)
    assert stream.next_end(place, NO_LIMITS) is place
    assert stream.next_end(place, NO_LIMITS).offsets == {A: 5, B: 0, QueueKey("T", "b", 2): 132}


def test_a_refill_is_none_the_less_one_when_the_brokers_clock_is_ahead(refilled: Brokers) -> None:
    """The place's last rows seem to be stored after it was given, at 1150 ms."""
    stream = query(refilled)
    place = StreamOffset({A: 10, B: 20}, given_at_ms=1150)
    assert stream.next_end(place, NO_LIMITS) is place
    refilled.known |= {A: (0, 10), B: (0, 18)}
    assert stream.next_end(place, NO_LIMITS) is place
    refilled.known |= {B: (0, 20)}
    assert stream.next_end(place, NO_LIMITS) is place


@dataclass
class Refilling(Brokers):
    """Each look finds what `later` says next."""

    later: list[dict[QueueKey, tuple[int, int]]] = field(default_factory=list)

    def ends(self) -> dict[QueueKey, int]:
        if self.later:
            self.known |= self.later.pop(0)
        return super().ends()


LOST = r"newest rows of queue b:0 of topic T were lost, it has others from offset 5 on; the query was at 10\."


@pytest.mark.parametrize("length", [8, 10, 14])
@pytest.mark.parametrize("how", ["waited for", "for a moment", "others go on"])
def test_rows_in_the_place_of_lost_ones_are_told_and_read(refilled: Brokers, how: str, length: int) -> None:
    """Also when there are as many as were lost, so that the queue is as long as before."""
    catalog = Refilling({A: (0, 5), B: (0, 20), C: (0, 4)})
    stream = StreamQuery(OPTIONS, catalog, now_ms=lambda: 2 * OTHERS_MS)
    start = StreamOffset({A: 10, B: 20, C: 4}, given_at_ms=1100)
    if how == "for a moment":
        catalog.later = [{}, {A: (0, length)}]
        length = min(length, 10)  # the rest is for the next batch
    else:
        if how == "others go on":
            catalog.known[C] = (0, 6)
            start = stream.next_end(start, NO_LIMITS)
            assert start.given_at_ms > OTHERS_MS, "later than the rows that come now"
        assert stream.next_end(start, NO_LIMITS) is start
        catalog.known[A] = (0, length)
    catalog.others_from = 5
    end = stream.next_end(start, NO_LIMITS)
    assert end.offsets == {**start.offsets, A: length}
    later = stream.next_end(end, NO_LIMITS)
    assert later is end or not later.recreated, "told once"
    with pytest.raises(DataLossError, match=LOST):
        query(catalog).slices(start, end)
    assert spans_of(query(catalog, GOING_ON), start, stream_offset_from_json(stream_offset_to_json(end))) == [
        (A, 5, length)
    ]


def test_a_frozen_query_tells_of_lost_rows(refilled: Brokers) -> None:
    catalog = Refilling({A: (0, 5), B: (0, 20)}, later=[{}, {}, {A: (0, 14)}])
    stream = query(catalog)
    stream.freeze()
    catalog.others_from = 5
    end = stream.next_end(StreamOffset({A: 10, B: 20}, given_at_ms=1100), NO_LIMITS)
    assert (end.offsets, end.recreated) == ({A: 10, B: 20}, {A: 5})


def test_a_repeated_batch_tells_of_lost_rows(refilled: Brokers) -> None:
    start, end = StreamOffset({A: 0, B: 20}), StreamOffset({A: 10, B: 20}, given_at_ms=1100)
    for options in (OPTIONS, GOING_ON):
        catalog = Refilling({A: (0, 5), B: (0, 20)}, later=[{}, {A: (0, 14)}], others_from=5)
        if options is OPTIONS:
            with pytest.raises(DataLossError, match=LOST):
                query(catalog, options).slices(start, end)
        else:
            assert spans_of(query(catalog, options), start, end) == [(A, 0, 10)]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_batch_waits_for_its_rows_to_come_again(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_query, "OUTAGE_STEP_S", 0.0)
    catalog = Refilling({A: (0, 10), B: (0, 20)})
    stream = query(catalog)
    if frozen:
        stream.freeze()
    place = StreamOffset({A: 0, B: 0}, given_at_ms=1)
    end = replace(stream.next_end(place, NO_LIMITS), given_at_ms=LATER_MS)
    catalog.known |= {A: (0, 0), B: (0, 0)}
    catalog.later = [{}, {A: (0, 9)}, {A: (0, 10), B: (0, 2)}, {B: (0, 20)}]
    assert spans_of(stream, place, end) == [(A, 0, 10), (B, 0, 20)]


def test_a_frozen_query_waits_for_rows_to_come_again(refilled: Brokers) -> None:
    """To have no batch would be its end."""
    catalog = Refilling(refilled.known, later=[{}, {}, {A: (0, 8)}, {A: (0, 10)}, {B: (0, 20)}])
    stream = query(catalog)
    stream.freeze()
    place = StreamOffset({A: 10, B: 20}, given_at_ms=LATER_MS)
    assert stream.next_end(place, NO_LIMITS) is place
    assert not catalog.later


def spans_of(stream: StreamQuery, start: StreamOffset, end: StreamOffset) -> list[tuple[QueueKey, int, int]]:
    return [(span.key, span.begin, span.end) for part in stream.slices(start, end) for span in part.spans]


def test_a_first_batch_that_is_repeated_begins_where_it_began(catalog: Brokers) -> None:
    """Spark keeps no start: it asks for the initial offsets again, which are later ones by then."""
    options = parse_options({"store": "/s"}, streaming=True)
    first = query(catalog, options)
    start = StreamOffset(first.initial_offsets())
    empty = first.next_end(start, NO_LIMITS)
    assert empty.offsets == {A: 10, B: 20}
    catalog.known[A] = (0, 15)
    end = first.next_end(start, NO_LIMITS)
    catalog.known |= {A: (0, 40), QueueKey("Late", "b", 0): (0, 7)}
    again = query(catalog, options)
    restart = StreamOffset(again.initial_offsets())
    assert spans_of(again, restart, stream_offset_from_json(stream_offset_to_json(empty))) == []
    assert spans_of(again, restart, stream_offset_from_json(stream_offset_to_json(end))) == [(A, 10, 15)]
    after = again.next_end(end, NO_LIMITS)
    assert after.began is None
    assert spans_of(again, end, after) == [(QueueKey("Late", "b", 0), 0, 7), (A, 15, 40)]


def test_a_store_created_again_under_the_query_is_a_loss(catalog: Brokers) -> None:
    """Also where it has more rows than the old one had."""
    stream = query(catalog, GOING_ON)
    place = stream.next_end(StreamOffset({A: 0, B: 0}), NO_LIMITS)
    catalog.inode, catalog.known[A] = 2, (0, 15)
    end = stream.next_end(place, NO_LIMITS)
    assert spans_of(stream, place, end) == [(A, 0, 15), (B, 0, 20)]
    assert stream.next_end(end, NO_LIMITS) is end, "and told once"
    with pytest.raises(DataLossError, match="b:0 of topic T was deleted and created, the query was at offset 10"):
        query(catalog).slices(place, end)


def test_a_broker_that_starts_is_waited_for(refilled: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever a query cannot look again at its next trigger."""
    refilled.starting = 3
    stream = query(refilled)
    place = StreamOffset(stream.initial_offsets())
    assert place.offsets == {A: 0, B: 0}
    end = stream.next_end(place, NO_LIMITS)
    refilled.starting = 3
    assert spans_of(stream, place, end) == [(A, 0, 5)]
    assert caplog.text.count("its broker is starting. The stream waits up to 120 s for it") == 2


def test_a_broker_that_does_not_start_is_not_waited_for_for_ever(
    refilled: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_query, "OUTAGE_MAX_S", -1.0)
    refilled.starting = 1
    with pytest.raises(ReadError, match="is starting"):
        query(refilled).initial_offsets()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_batch_waits_for_brokers_that_are_away(
    catalog: Brokers, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_query, "OUTAGE_STEP_S", 0.01)
    stream = query(catalog)
    if frozen:
        stream.freeze()
    catalog.away = 3
    assert spans_of(stream, StreamOffset({A: 0, B: 20}), StreamOffset({A: 10, B: 20})) == [(A, 0, 10)]
    assert catalog.away < 0
    monkeypatch.setattr(stream_query, "OUTAGE_MAX_S", 0.0)
    with pytest.raises(ReadError, match="gone did not answer"):
        stream.slices(StreamOffset({}), StreamOffset({QueueKey("T", "gone", 0): 5}))


def test_a_frozen_log_does_not_grow(catalog: Brokers) -> None:
    stream = query(catalog)
    stream.freeze()
    catalog.known |= {A: (0, 99), QueueKey("New", "b", 0): (0, 5)}
    end = stream.next_end(StreamOffset({A: 0, B: 0}), Limits(rows_min=1000))
    assert end.offsets == {A: 10, B: 20}, "and is not waited for"
    assert stream.log_end().offsets[A] == 99, "what is told of the log's end is its end now"


def test_losses_are_passed_over_with_a_warning(catalog: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    catalog.known[A] = (6, 10)
    stream = query(catalog, replace(OPTIONS, fail_on_data_loss=False))
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        slices = stream.slices(StreamOffset({A: 0, B: 20}), StreamOffset({A: 10, B: 20}))
    assert [(span.begin, span.end) for part in slices for span in part.spans] == [(6, 10)]
    assert "offsets 0 to 5 of queue b:0 of topic T were deleted" in caplog.text


def test_many_losses_are_told_in_a_line(catalog: Brokers) -> None:
    start = {QueueKey("Gone", "b", number): 5 for number in range(30)}
    with pytest.raises(DataLossError, match="and 20 queues more") as told:
        query(catalog).slices(StreamOffset(start), StreamOffset({}))
    assert str(told.value).count("of topic Gone") == stream_query.LOSSES_SHOWN


def test_queues_are_merged_into_tasks(catalog: Brokers) -> None:
    slices = query(catalog).slices(StreamOffset({A: 0, B: 0}), StreamOffset({A: 10, B: 20}))
    assert len(slices) == 1
    assert slices[0].rows_max == 30
    four = query(catalog, replace(OPTIONS, min_partitions=4)).slices(
        StreamOffset({A: 0, B: 0}), StreamOffset({A: 10, B: 20})
    )
    assert sorted(part.rows_max for part in four) == [6, 8, 8, 8]
