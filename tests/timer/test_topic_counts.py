"""Waiting messages by topic: C counts as Python does, and the file is stock's."""

import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.native import ffi, lib
from ringmq.timer.statistics import LatenessMinute
from ringmq.timer.timer_log import UNIT_BYTES
from ringmq.timer.topic_counts import TopicCounts, TopicCountsFile
from tests.timer.kit import MemoryFiles

START_MS = 1_800_000_000_000
UNITS = 11
FILE_BYTES = UNITS * UNIT_BYTES + 20
MAGICS = (lib.RMQ_TIMER_DEFAULT, lib.RMQ_TIMER_DEFAULT | lib.RMQ_TIMER_ROLL, lib.RMQ_TIMER_DELETE)


class Log:
    """A log with random units over several files, and what a plain list knows of them."""

    def __init__(self, seed: int, count: int) -> None:
        dice = random.Random(seed)
        self.memory = MemoryFiles(8, FILE_BYTES)
        self.units: list[tuple[int, int, int, int]] = []
        """Position, topic hash, time of the slot, magic."""
        for number in range(count):
            unit = ffi.new("struct rmq_timer_unit *")
            unit.enqueue_ms, unit.slot_ms = START_MS, START_MS + 1000 * dice.randrange(1, 9)
            unit.topic_hash, unit.magic = dice.choice((-5, 0, 7, 1 << 30)), dice.choice(MAGICS)
            unit.size, unit.commit_log_offset = 100, number * 100
            if lib.rmq_timer_is_full(self.memory.struct):
                pass  # the blank is written, and the log ends behind it
            assert lib.rmq_timer_append(self.memory.struct, unit)
            self.units.append((unit.position, unit.topic_hash, unit.slot_ms, unit.magic))

    @property
    def files(self) -> Any:
        struct = self.memory.struct
        return SimpleNamespace(struct=struct, log_begin=int(struct.log_begin), log_end=int(struct.log_end))

    def waiting(self, from_ms: int, begin: int = 0) -> Counter[int]:
        """The numbers by topic, of units from a position on."""
        return Counter(
            topic_hash
            for position, topic_hash, slot_ms, magic in self.units
            if position >= begin and slot_ms >= from_ms and not magic & lib.RMQ_TIMER_DELETE
        )


def by_hash(counts: TopicCounts) -> Counter[int]:
    rows = counts.rows()
    return Counter(
        {int(topic): int(count) for topic, count in zip(rows["hash"], rows["messages"], strict=True) if count}
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_units_of_a_log_are_counted_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.timer.topic_counts.PIECE_UNITS", 1 + seed * 3)
    log, from_ms = Log(seed, 70), START_MS + 3000
    counts = TopicCounts(log.files, from_ms)
    pieces = 0
    while not counts.is_complete:
        counts.count_piece()
        pieces += 1
    assert pieces >= 70 // (1 + seed * 3)
    assert by_hash(counts) == log.waiting(from_ms)
    assert counts.messages == log.waiting(from_ms).total()


@pytest.mark.parametrize("pieces", [0, 1, 2, 50])
def test_a_deleted_file_takes_its_messages_off(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.timer.topic_counts.PIECE_UNITS", 7)
    log, from_ms = Log(1, 70), START_MS + 3000
    counts = TopicCounts(log.files, from_ms)
    for _ in range(pieces):
        counts.count_piece()
    before = counts.messages
    lost = counts.drop_before(2 * FILE_BYTES, START_MS + 5000)
    assert counts.messages == before - lost
    while not counts.is_complete:
        counts.count_piece()
    counted = log.waiting(from_ms) if pieces == 50 else None
    if counted is not None:
        gone = log.waiting(START_MS + 5000) - log.waiting(START_MS + 5000, 2 * FILE_BYTES)
        assert by_hash(counts) == counted - gone and lost == gone.total()
    if pieces == 0:
        assert lost == 0 and by_hash(counts) == log.waiting(from_ms, 2 * FILE_BYTES)


def test_topics_beyond_the_table_share_a_row() -> None:
    counts = TopicCounts(Log(0, 1).files, START_MS + 99_000)
    unit = ffi.new("struct rmq_timer_unit *", {"size": 100, "magic": lib.RMQ_TIMER_DEFAULT})
    for topic_hash in range(lib.RMQ_TIMER_TOPICS):
        unit.topic_hash = topic_hash
        lib.rmq_timer_topic_add(counts.struct, lib.rmq_timer_topic_row(counts.struct, unit), 1)
    assert counts.struct.used < lib.RMQ_TIMER_TOPICS and len(counts.rows()) == counts.struct.used
    assert counts.struct.rows[lib.RMQ_TIMER_TOPICS].messages == lib.RMQ_TIMER_TOPICS - counts.struct.used
    assert counts.messages == lib.RMQ_TIMER_TOPICS


def test_the_file_is_that_of_stock(tmp_path: Path) -> None:
    counts = TopicCounts(Log(0, 40).files, START_MS)
    while not counts.is_complete:
        counts.count_piece()
    wanted, names = by_hash(counts), {-5: "A", 0: "", 7: "B", 1 << 30: "C"}
    asked: list[int] = []

    def record_at(offset: int, size: int) -> Any:
        asked.append(offset)
        rows = counts.rows()
        topic = next(names[int(row["hash"])] for row in rows if row["log_offset"] == offset)
        return SimpleNamespace(properties={"REAL_TOPIC": topic} if topic else {})

    clock = [5000]
    file = TopicCountsFile(tmp_path, record_at, lambda: clock[0])
    file.write(counts.rows(), 0)
    value = json.loads((tmp_path / "config" / "timermetrics").read_text())
    assert value["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 5000}
    expected = {name: {"count": wanted[topic], "timeStamp": 5000} for topic, name in names.items() if name}
    assert value["timingCount"] == expected
    assert not file.is_due(999) and file.is_due(1000)
    clock[0] = 6000
    file.write(counts.rows(), 1000)
    assert json.loads((tmp_path / "config" / "timermetrics").read_text()) == value, "nothing has changed"
    rows = counts.rows()
    rows["messages"][rows["hash"] == 7] -= 1000
    file.write(rows, 2000)
    changed = json.loads((tmp_path / "config" / "timermetrics").read_text())["timingCount"]
    assert changed == expected | {"B": {"count": 0, "timeStamp": 6000}}
    assert len(asked) == 4, "each name is read once"
    assert json.loads((tmp_path / "config" / "ringmqTimerTopics.json").read_text()) == {}, "the log has counted nothing"


def test_what_comes_and_goes_is_counted_by_topic(tmp_path: Path) -> None:
    counts = TopicCounts(Log(0, 1).files, START_MS + 99_000)
    names, expected = {7: "A", 9: "B"}, {}
    for topic_hash, name in names.items():
        for magic in MAGICS:
            unit = ffi.new("struct rmq_timer_unit *", {"size": 100, "magic": magic, "topic_hash": topic_hash})
            unit.commit_log_offset = topic_hash
            row = lib.rmq_timer_topic_of(counts.struct, unit)
            lib.rmq_timer_topic_enqueued(counts.struct, row, magic % 3, 50 * topic_hash)
            lib.rmq_timer_topic_dequeued(counts.struct, lib.rmq_timer_topic_row(counts.struct, unit))
        delays = [sum(magic % 3 == bucket for magic in MAGICS) for bucket in range(lib.RMQ_TIMER_DELAY_BUCKETS)]
        expected[name] = [3, 2, 150 * topic_hash, *delays]
    lib.rmq_timer_topic_enqueued(counts.struct, lib.RMQ_NONE, 0, 1)
    lib.rmq_timer_topic_dequeued(counts.struct, lib.RMQ_NONE)

    def record_at(offset: int, size: int) -> Any:
        return SimpleNamespace(properties={"REAL_TOPIC": names[offset]})

    TopicCountsFile(tmp_path, record_at, lambda: 5000).write(counts.rows(), 0)
    assert json.loads((tmp_path / "config" / "ringmqTimerTopics.json").read_text()) == expected


def test_the_last_minute_is_a_difference_of_histograms() -> None:
    counts = [0] * lib.RMQ_LATENCY_BUCKETS
    minute = LatenessMinute(lambda: counts)
    assert minute.quantiles_us((0.5, 1), 0) == (0, [0, 0])
    counts[10] += 99
    counts[20] += 1
    assert minute.quantiles_us((0.5, 0.99, 1), 1000) == (100, [1 << 10, 1 << 10, 1 << 20])
    for now_ms in range(5000, 61_000, 5000):
        assert minute.quantiles_us((1,), now_ms)[0] == 100
    counts[3] += 1
    assert minute.quantiles_us((1,), 65_000) == (1, [1 << 3])
