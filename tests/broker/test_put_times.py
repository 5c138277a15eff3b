"""The times of sends under stock's classes, against times that are known one by one."""

import random

import pytest

from ringmq.broker.tables.put_times import PutTimes, SendTimes
from ringmq.native import ffi, lib
from ringmq.remoting.admin_bodies import decode_kv_table
from ringmq.remoting.codes import RequestCode
from tests.broker.fakes import START_MS, make_harness, with_readers

BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)


def times_of(times_us: list[int]) -> SendTimes:
    counts = [0] * lib.RMQ_LATENCY_BUCKETS
    for us in times_us:
        counts[lib.rmq_latency_bucket(us * 1000)] += 1
    return SendTimes(tuple(counts), max(times_us, default=0) * 1000)


def counts_of(text: str) -> list[int]:
    return [int(part.split("]:")[1]) for part in text.split()]


def test_the_format_is_stocks() -> None:
    assert SendTimes().distribution() == (
        "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 "
        "[3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
    )
    assert SendTimes().percentile_ms(0.99) == 0.0


def test_every_send_is_in_one_class_and_times_in_whole_buckets_are_exact() -> None:
    found = counts_of(times_of([0, 1, 500, 3000, 20_000, 1_500_000, 40_000_000]).distribution())
    assert sum(found) == 7
    assert found[0] == 3, "three are below 512 us"
    assert (found[1], found[2]) == (1, 1)
    assert found[-1] == 1


@pytest.mark.parametrize("seed", range(20))
def test_classes_and_percentiles_of_evenly_spread_times(seed: int) -> None:
    """Within a bucket the times are taken for evenly spread, so such times come out nearly right."""
    chance = random.Random(seed)
    longest_us = chance.choice((900, 7000, 90_000, 700_000))
    times_us = [chance.randrange(longest_us) for _ in range(20_000)]
    times = times_of(times_us)
    found = counts_of(times.distribution())
    assert sum(found) == len(times_us)
    below = 0
    for count, bound_ms in zip(found, BOUNDS_MS, strict=False):
        below += count
        truth = sum(us < bound_ms * 1000 for us in times_us)
        assert below == pytest.approx(truth, abs=len(times_us) * 0.25), (seed, bound_ms)
        if bound_ms * 1000 > 1 << longest_us.bit_length():
            assert below == truth
    for share in (0.5, 0.99, 0.999):
        truth_ms = sorted(times_us)[int(share * len(times_us)) - 1] / 1000
        assert truth_ms / 2 <= times.percentile_ms(share) <= truth_ms * 2
        assert times.percentile_ms(share) <= max(times_us) / 1000


def test_the_last_full_minute_is_shown() -> None:
    now = times_of([100] * 5)
    kept = PutTimes(lambda: now, START_MS)
    assert sum(kept.minute().counts) == 5, "before the first minute is over, all since the start"
    kept.sample(START_MS + 60_000)
    now = times_of([100] * 12)
    assert sum(kept.minute().counts) == 5
    kept.sample(START_MS + 119_999)
    assert sum(kept.minute().counts) == 5
    kept.sample(START_MS + 120_000)
    assert sum(kept.minute().counts) == 7
    now = times_of([100] * 3)
    kept.sample(START_MS + 180_000)
    assert sum(kept.minute().counts) == 3, "the counters have begun anew"


def test_runtime_info_shows_what_read_workers_have_counted() -> None:
    harness = make_harness()
    latency, counters = with_readers(harness.plane, 2)
    latency[0].counts[12], latency[0].max_ns = 70, 3_900_000  # 2 to 4 ms
    latency[1].counts[21], latency[1].max_ns = 30, 1_999_000_000  # 1 to 2 s
    counters[1][lib.RMQ_READ_PULL_NS_MAX] = 7_000_000
    table = decode_kv_table(harness.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)
    assert counts_of(table["putMessageDistributeTime"])[1] == 70
    assert sum(counts_of(table["putMessageDistributeTime"])) == 100
    assert 1000 <= float(table["putLatency99"]) <= float(table["putLatency999"]) <= 1999
    assert (table["putMessageEntireTimeMax"], table["getMessageEntireTimeMax"]) == ("1999", "7")


def test_the_longest_time_is_kept() -> None:
    latency = ffi.new("struct rmq_latency *")
    for ns, longest in ((-5, 0), (3000, 3000), (2000, 3000), (9_000_000_000, 9_000_000_000)):
        lib.rmq_latency_count(latency, ns, 2)
        assert latency.max_ns == longest
