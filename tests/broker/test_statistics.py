"""Growth of topics, groups and the broker (315), the progress of all groups (317): windows, keys, bounds, slices."""

import gc
import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.tables.statistics import EXPIRY_MS, IDLE_MS, Statistics
from ringmq.broker.tables.stats import Totals
from ringmq.broker.tables.windows import PERIODS_MS, Figures, Windows
from ringmq.ipc.plane import Capacity, Plane, topic_config_word
from ringmq.ipc.plane_counts import PlaneCounts
from ringmq.ipc.segment import remove_segments
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.json_body import read_object
from tests.broker.fakes import START_MS, FakePlane, Harness, make_harness

LIVE = lib.RMQ_TOPIC_LIVE << 40
TICK_MS = 250
SLICE_MS = 20


class World:
    """Statistics over a plane in memory. `put` and `get` change its counters."""

    def __init__(self, *topics: str, items_max: int = 100, before: dict[str, int] | None = None) -> None:
        self.plane = FakePlane()
        self.counts = self.plane.counts
        self.slots: dict[str, int] = {}
        self.totals = Totals()
        for topic in topics:
            self.make(topic)
        for topic, messages in (before or {}).items():
            self.put(topic, messages)
        self.statistics = Statistics(self.plane, self.counts, items_max)
        self.statistics.prepare(START_MS)
        self.now_ms = START_MS

    def make(self, topic: str) -> None:
        self.slots[topic] = self.plane.queue_add(self.plane.topic_add(topic, LIVE), 0)

    def put(self, topic: str, messages: int, size: int = 100) -> None:
        queue = self.plane.queues[self.slots[topic]]
        queue.max_offset += messages
        queue.put_bytes += messages * size

    def get(self, group: str, topic: str, messages: int) -> None:
        found = self.plane.group_find(group)
        pair = self.plane.group_add(group, 1) if found is None else found, self.slots[topic]
        done, size = self.counts.pulled.get(pair, (0, 0))
        self.counts.pulled[pair] = done + messages, size + messages * 50

    def tick(self, by_ms: int = TICK_MS) -> None:
        self.now_ms += by_ms
        self.statistics.tick(self.now_ms, self.totals)

    def to(self, ms: int) -> None:
        """Tick until so many ms after the start."""
        while self.now_ms < START_MS + ms:
            self.tick(min(TICK_MS, START_MS + ms - self.now_ms))
        self.tick(0)

    def topic(self, topic: str, *, of_bytes: bool = False) -> tuple[Figures, ...]:
        found = self.statistics.topic(topic, of_bytes=of_bytes)
        assert found is not None, topic
        return found


@pytest.mark.parametrize("seed", range(5))
def test_a_steady_load_shows_its_rate_within_two_percent(seed: int) -> None:
    """Control's turns come at uneven times, as on a busy machine. The load does not wait for them."""
    chance, world = random.Random(seed), World("T")
    rate, sent, looks = chance.choice((7, 150, 20_000)), 0, 0
    while world.now_ms < START_MS + 4_000_000:
        step_ms = chance.choice((1, 40, TICK_MS, 900))
        due = rate * (world.now_ms + step_ms - START_MS) // 1000
        world.put("T", due - sent)
        world.get("G", "T", due - sent)
        sent = due
        world.tick(step_ms)
        passed_ms = world.now_ms - START_MS
        if passed_ms > 61_000 and looks < passed_ms // 10_000:
            looks += 1
            minute, hour, _ = world.topic("T")
            assert minute.tps == pytest.approx(rate, rel=0.02), passed_ms
            got = world.statistics.gets("T", "G", of_bytes=False)
            assert got is not None and got[0].tps == pytest.approx(rate, rel=0.02)
            if passed_ms > PERIODS_MS[1] + 5000:
                assert hour.tps == pytest.approx(rate, rel=0.02), passed_ms
    assert looks > 300
    assert world.topic("T")[2].tps == pytest.approx(rate, rel=0.02)
    assert world.topic("T", of_bytes=True)[0].tps == pytest.approx(rate * 100, rel=0.02)


def test_windows_have_stocks_points() -> None:
    world = World("T")
    world.put("T", 30)
    world.to(9_999)
    assert world.statistics.topic("T", of_bytes=False) is None, "no point yet"
    world.to(10_000)
    assert world.topic("T") == (Figures(30, 3.0, 1.0), Figures(), Figures())
    assert world.topic("T", of_bytes=True)[0] == Figures(3000, 300.0, 100.0)
    for second in range(20, 70, 10):
        world.to(second * 1000)
        assert world.topic("T")[0].sum == 30, "a minute has seven points"
    world.to(70_000)
    assert world.topic("T")[0] == Figures(0, 0.0, 0.0)
    world.to(600_000)
    assert world.topic("T")[1] == Figures(30, 0.05, 1.0)
    world.to(3_600_000)
    assert world.topic("T")[2].sum == 30


def test_an_hour_and_a_day_end() -> None:
    windows = Windows()
    windows.add(5, 50, 1)
    for number, points in ((1, 7), (2, 25)):
        for point in range(points - 1):
            now_ms = (point + 1) * PERIODS_MS[number]
            windows.sample(number, now_ms, now_ms - PERIODS_MS[number])
            assert windows.figures(number, of_bytes=False).sum == 5
        windows.sample(number, points * PERIODS_MS[number], 0)
        assert windows.figures(number, of_bytes=False).sum == 0
        assert len(windows.points[number]) == points * 3


def test_messages_of_before_the_start_do_not_count() -> None:
    world = World("Old", before={"Old": 1_000_000})
    world.make("New")
    world.put("New", 3)
    world.to(10_000)
    assert world.statistics.topic("Old", of_bytes=False) is None
    assert world.topic("New")[0].sum == 3
    world.put("Old", 2)
    world.to(20_000)
    assert world.topic("Old")[0] == Figures(2, 0.2, 1.0)


def test_counters_that_begin_anew_lose_nothing_else() -> None:
    world = World("T")
    world.put("T", 10)
    world.to(10_000)
    world.plane.queues[0].max_offset, world.plane.queues[0].put_bytes = 4, 400  # the topic was made again
    world.to(20_000)
    assert world.topic("T")[0].sum == 14


def test_what_groups_get_is_summed_over_queues_and_workers() -> None:
    world = World("T", "U")
    slot = world.plane.queue_add(1, 1)
    world.get("G", "T", 4)
    world.counts.pulled[1, slot] = 6, 300
    world.get("G", "U", 1)
    world.to(10_000)
    for topic, number in (("T", 10), ("U", 1)):
        figures = world.statistics.gets(topic, "G", of_bytes=False)
        assert figures is not None and figures[0].sum == number
    size = world.statistics.gets("T", "G", of_bytes=True)
    assert size is not None and size[0] == Figures(500, 50.0, 50.0)
    assert world.statistics.gets("T", "Nobody", of_bytes=False) is None
    assert world.statistics.gets("Nope", "G", of_bytes=False) is None


def test_the_broker_counts_from_the_first_look_on() -> None:
    """An earlier process of control has left counters. They are no growth."""
    world = World("T", "SCHEDULE_TOPIC_XXXX")
    world.totals = Totals(put_messages=5000, got_messages=4000)
    world.tick()
    world.totals = Totals(put_messages=5020, got_messages=4004)
    world.put("T", 15)
    world.put("SCHEDULE_TOPIC_XXXX", 5)
    world.get("G", "T", 4)
    world.to(10_000)

    def shown(**kind: bool) -> Figures:
        found = world.statistics.broker(**kind)
        assert found is not None
        return found[0]

    assert shown(is_put=True, with_system=True) == Figures(20, 2.0)
    assert shown(is_put=True, with_system=False) == Figures(15, 1.5)
    assert shown(is_put=False, with_system=True) == shown(is_put=False, with_system=False) == Figures(4, 0.4)


def test_items_are_bounded_and_expire() -> None:
    world = World("A", "B", "C", "D", items_max=2)
    world.put("A", 1)
    world.to(10_000)
    world.put("B", 1)
    world.to(20_000)
    world.put("C", 1)
    world.to(30_000)
    assert len(world.statistics) == 2
    assert world.statistics.topic("C", of_bytes=False) is None, "A and B have grown lately"
    world.put("A", 1)
    world.to(40_000)
    world.now_ms += IDLE_MS
    world.put("A", 1)
    world.put("D", 1)
    world.tick()
    assert world.topic("A")[0].sum and world.topic("D")[0].sum
    assert world.statistics.topic("B", of_bytes=False) is None, "it had not grown for the longest time"
    world.now_ms += EXPIRY_MS + 1
    for _ in range(3):
        world.tick(10_000)
    assert len(world.statistics) == 0
    world.put("A", 7)
    world.tick(10_000)
    assert world.topic("A")[0].sum == 7


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield Plane.create(name, Capacity(), tmp_path.stat(), 1)
    remove_segments(name)


def test_a_thousand_topics_take_short_slices(plane: Plane) -> None:
    """8,000 queues and as many pairs, all of which grow between two passes."""
    topics, queues = 1000, 8
    word = topic_config_word(6, queues, queues, lib.RMQ_TOPIC_LIVE)
    ids = [plane.topic_add(f"T{n}", word) for n in range(topics)]
    slots = [plane.queue_add(topic_id, number) for topic_id in ids for number in range(queues)]
    group = plane.group_add("G", lib.RMQ_GROUP_LIVE)
    port = PlaneCounts(plane).pull_tables()[0][0]
    statistics, took_ms, totals = Statistics(plane, PlaneCounts(plane)), [], Totals()
    now_ms = START_MS
    statistics.prepare(now_ms)
    gc.collect()
    gc.freeze()  # as a worker does: a collection takes no time of other tests' objects
    for _ in range(4):
        for slot in slots:
            plane.queue(slot).max_offset += 2
            plane.queue(slot).put_bytes += 300
            lib.rmq_pull_stats_add(plane.struct, port, group, slot, 1, 150, 1, now_ms)
        for _ in range(40):
            now_ms += TICK_MS
            began_ns = time.thread_time_ns()
            statistics.tick(now_ms, totals)
            took_ms.append((time.thread_time_ns() - began_ns) / 1e6)
    gc.unfreeze()
    assert max(took_ms) < SLICE_MS, sorted(took_ms)[-5:]
    assert len(statistics) == 2 * topics
    put, got = statistics.topic("T500", of_bytes=False), statistics.gets("T7", "G", of_bytes=True)
    assert put is not None and got is not None
    assert put[0].sum >= 3 * 2 * queues and got[0].sum >= 3 * 150 * queues


def test_messages_that_a_start_has_yet_to_dispatch_are_no_growth(plane: Plane) -> None:
    topic = plane.topic_add("T", topic_config_word(6, 1, 1, lib.RMQ_TOPIC_LIVE))
    queue = plane.queue(plane.queue_add(topic, 0, 0, 10))
    queue.log_end = 50
    assert list(PlaneCounts(plane).queues(0, 1)) == [(topic, 50, 0)]
    queue.max_offset, queue.log_end = 51, 0
    assert list(PlaneCounts(plane).queues(0, 1)) == [(topic, 51, 0)]


def ask(harness: Harness, name: str, key: str) -> Any:
    return harness.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})


def minute_of(harness: Harness, name: str, key: str) -> dict[str, Any]:
    answer = ask(harness, name, key)
    assert answer.code == 0, answer.remark
    beans = read_object(answer.body, "BrokerStatsData")
    assert sorted(beans) == ["statsDay", "statsHour", "statsMinute"]
    assert all(sorted(bean) == ["avgpt", "sum", "tps"] for bean in beans.values())
    minute: dict[str, Any] = beans["statsMinute"]
    return minute


def busy_harness() -> Harness:
    """A group that has got 4 of 10 messages of a topic, and has sent two back."""
    harness = make_harness()
    for topic in ("T", "Idle"):
        harness.make_topic(topic, 1)
    harness.broker.offsets.put("G", "T", 0, 3, START_MS)
    harness.join("G", {"T": "*"})
    slots = {topic: harness.broker.tables.slot(topic, 0) for topic in ("T", "%RETRY%G")}
    group_id = harness.plane.group_find("G")
    assert group_id is not None and slots["T"] is not None and slots["%RETRY%G"] is not None
    harness.tick(START_MS)
    harness.plane.queues[slots["T"]].max_offset = 10
    harness.plane.queues[slots["T"]].put_bytes = 1200
    harness.plane.queues[slots["%RETRY%G"]].max_offset = 2
    harness.plane.counts.pulled[group_id, slots["T"]] = 4, 480
    harness.broker.stats.observe(Totals(put_messages=12, got_messages=4))
    harness.tick(START_MS + 10_000)
    return harness


def test_stocks_names_and_keys() -> None:
    harness = busy_harness()
    assert minute_of(harness, "TOPIC_PUT_NUMS", "T") == {"avgpt": 1.0, "sum": 10, "tps": 1.0}
    assert minute_of(harness, "TOPIC_PUT_SIZE", "T") == {"avgpt": 120.0, "sum": 1200, "tps": 120.0}
    assert minute_of(harness, "GROUP_GET_NUMS", "T@G")["sum"] == 4
    assert minute_of(harness, "GROUP_GET_SIZE", "T@G") == {"avgpt": 120.0, "sum": 480, "tps": 48.0}
    assert minute_of(harness, "SNDBCK_PUT_NUMS", "T@G")["sum"] == 2
    assert minute_of(harness, "BROKER_PUT_NUMS", "GoldCluster") == {"avgpt": 0.0, "sum": 12, "tps": 1.2}
    assert minute_of(harness, "BROKER_GET_NUMS", "GoldCluster")["sum"] == 4
    assert minute_of(harness, "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "GoldCluster")["sum"] == 4


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "Idle"), ("TOPIC_PUT_NUMS", "Nope"), ("GROUP_GET_NUMS", "T"), ("GROUP_GET_NUMS", "Idle@G"),
        ("SNDBCK_PUT_NUMS", "Idle@G"), ("BROKER_PUT_NUMS", "Other"), ("NO_SUCH_NAME", "T"), ("", ""),
    ],
)  # fmt: skip
def test_statistics_that_do_not_exist(name: str, key: str) -> None:
    answer = ask(busy_harness(), name, key)
    assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")


def test_a_group_of_several_topics_has_no_count_of_messages_sent_back() -> None:
    harness = busy_harness()
    harness.broker.offsets.put("G", "Idle", 0, 0, START_MS)
    assert ask(harness, "SNDBCK_PUT_NUMS", "T@G").code == 1


def test_a_missing_field_is_named() -> None:
    answer = make_harness().ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS"})
    assert answer.code == 1 and "statsKey" in answer.remark


def test_the_progress_of_all_groups() -> None:
    harness = busy_harness()
    harness.broker.offsets.put("H", "Idle", 0, 0, START_MS)
    harness.join("H", {"Other": "*"})
    body = read_object(harness.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}).body, "ConsumeStatsList")
    assert body["brokerAddr"] == "127.0.0.2:30911"
    groups = {group: found for entry in body["consumeStatsList"] for group, found in entry.items()}
    (one,) = groups["G"]
    (offsets,) = one["offsetTable"].values()
    assert (offsets["brokerOffset"], offsets["consumerOffset"], one["consumeTps"]) == (10, 3, 0.4)
    assert groups["H"] == [], "its members do not subscribe to the topic any more"
    assert body["totalDiff"] == 7
    ordered = harness.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})
    assert read_object(ordered.body, "x")["totalDiff"] == 0
    assert harness.ask(RequestCode.GET_BROKER_CONSUME_STATS, {}).code == 1
