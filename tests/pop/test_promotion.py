"""A slave's start as the master: the copy of the former master's POP memory becomes its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.pop import open_work
from ringmq.pop.copy_mark import mark_copy, run_of_copy
from ringmq.pop.memory import remove_lasting
from ringmq.pop.names import RESERVED, Names
from ringmq.pop.record_notice import NONE, read_notice
from ringmq.pop.record_scan import Found, RecordScan
from ringmq.pop.revive_records import CHECK_POINT, CheckPoint, Pop, check_point_body
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.store.layout import TIMER_TOPIC
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import survey
from tests.pop.memory_kit import cut_power
from tests.pop.test_start import Broker, Worker
from tests.store.golden_stores import pop_config
from tests.waiting import wait_until


class Slave(Broker):
    """A slave with a copy of a master's memory, and its start as the master."""

    dispatched_offset = property(lambda self: len(self.log))

    def take_copy(self, *, clean: bool = False) -> None:
        """The worker of a master gives messages, and this broker has a copy of its memory."""
        worker = Worker(self)
        worker.pop("T", [880, 881, 899])
        worker.ack("T", 880, 881)
        if clean:
            assert worker.snapshots.finish(20_000)
        wait_until(lambda: self._is_written(worker), "a snapshot is written")
        worker.die()
        cut_power(self.root)
        mark_copy(self.root / "pop", 7)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.offsets: dict[tuple[str, tuple[str, int]], int] = {}
        self.plane.group_find = lambda group: group
        self.plane.offset_get = lambda group, slot: self.offsets.get((group, slot), -1)
        self.plane.offset_put = lambda group, slot, offset: self.offsets.update({(group, slot): offset})

    def look(self, config: BrokerConfig, root: Path) -> Any:
        found = super().look(config, root)
        found.topics.queue = lambda topic, queue_id: (
            (topic, (topic, queue_id)) if (topic, queue_id) in self.queues else None
        )
        return found

    def _is_written(self, worker: Worker) -> int:
        worker.snapshots.turn(monotonic_ms())
        return worker.snapshots.written

    def starts(self) -> bool:
        self.start += 1
        config = BrokerConfig(store_path_root_dir=str(self.root))
        return open_work.has_open_work(config, self.root)

    def first_free_id(self) -> int:
        names = Names(self.root / "pop")
        number = names.add("G", "T", 1, 0)
        names.close()
        return number


@pytest.fixture
def slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slave]:
    made = Slave(tmp_path, queues={("T", 0): (1000, 0)})
    monkeypatch.setattr(open_work, "StoreLook", made.look)
    yield made
    remove_lasting(tmp_path)


def test_the_copy_becomes_the_memory(slave: Slave, caplog: pytest.LogCaptureFixture) -> None:
    slave.take_copy()
    with caplog.at_level("INFO"):
        assert slave.starts()
    assert "open messages are those of the former master" in caplog.text
    assert "the machine went down" not in caplog.text
    assert not run_of_copy(slave.root / "pop")
    worker = Worker(slave)
    assert worker.state() == (900, 880, 2)
    worker.die()


def test_a_stop_looks_for_check_points_that_the_former_master_may_have_left(slave: Slave) -> None:
    """Its notice of them is not copied."""
    slave.take_copy()
    slave.queues["rmq_sys_REVIVE_LOG_DefaultCluster", 0] = (0, 0)
    assert slave.starts()
    notice = read_notice(slave.root)
    assert notice.since == 0 and wall_ms() + 29 * 86_400_000 < notice.until_ms < wall_ms() + 31 * 86_400_000


def test_a_store_without_a_revive_topic_has_no_check_points(slave: Slave) -> None:
    slave.take_copy()
    assert slave.starts() and read_notice(slave.root) == NONE


@pytest.mark.parametrize("clean", [False, True])
def test_ids_that_the_former_master_may_have_given_are_passed_over(slave: Slave, clean: bool) -> None:
    """It may have reserved another block of ids behind the copy. Behind a clean stop it may have started again."""
    slave.take_copy(clean=clean)
    assert slave.starts()
    assert slave.first_free_id() == 1 + 2 * RESERVED


def check_point(*offsets: int, topic: str = "T") -> Found:
    pop = Pop(topic, "G", 0, offsets[0], 5, "broker-a")
    body = check_point_body(CheckPoint(pop, 60_000, tuple(offset - offsets[0] for offset in offsets)))
    return Found(CHECK_POINT, body, 0)


@pytest.mark.parametrize(
    ("points", "committed", "wanted"),
    [
        ([check_point(880, 899)], 950, 950),
        ([check_point(880, 905), check_point(902, 903), check_point(930)], 950, 902),
        ([check_point(905)], 904, 904),
        ([check_point(905), Found(CHECK_POINT, b"{", 0)], -1, -1),
        ([check_point(905, topic="U")], 950, 950),
        ([check_point(3, topic="N"), check_point(7, topic="N")], 950, 950),
    ],
    ids=["known", "unknown", "low offset", "no offset", "no queue", "another queue"],
)  # fmt: skip
def test_check_points_that_the_copy_does_not_know_hold_back_offsets(
    slave: Slave, monkeypatch: pytest.MonkeyPatch, points: list[Found], committed: int, wanted: int
) -> None:
    """A master that stops writes what is open into the log, and consumer offsets behind it. Messages from the first one
    on that the copy does not know come again."""
    asked: list[tuple[int, ...]] = []

    def written_check_points(scan: RecordScan, *offsets: int) -> list[Found]:
        asked.append(offsets)
        return points

    slave.take_copy()
    slave.log += bytes(500)
    slave.queues["N", 0] = (950, 0)
    slave.offsets |= {("G", ("T", 0)): committed, ("G", ("N", 0)): 950}
    monkeypatch.setattr(RecordScan, "written_check_points", written_check_points)
    assert slave.starts()
    assert asked == [(10_000, 10_500, 10_500)], "behind the moment of the copy"
    assert slave.offsets["G", ("T", 0)] == wanted
    assert slave.offsets["G", ("N", 0)] == (3 if "N" in str(points[0].body) else 950), "no window of the copy has it"
    assert not run_of_copy(slave.root / "pop")


def test_own_memory_is_not_compared_with_records(slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is true of the whole log."""
    slave.take_copy()
    (slave.root / "pop" / "copy").unlink()
    slave.offsets["G", ("T", 0)] = 950
    monkeypatch.setattr(RecordScan, "written_check_points", lambda scan, *offsets: [check_point(905)])
    assert slave.starts()
    assert slave.offsets["G", ("T", 0)] == 950


def test_a_log_that_lacks_what_the_copy_tells_of_is_another(slave: Slave, caplog: pytest.LogCaptureFixture) -> None:
    slave.take_copy()
    del slave.log[7_000:]
    assert not slave.starts()
    assert "the log is not the one of this memory" in caplog.text and not run_of_copy(slave.root / "pop")


def test_check_points_are_found_by_their_place(pop_copy: Path, tmp_path: Path) -> None:
    """In revive queues, in the timer topic, and in the log where no queue has them yet. The timer delivers older ones
    to revive queues."""
    config = pop_config(pop_copy)
    store, end = MessageStore(config), survey(config).append_offset
    scan = RecordScan(store, lambda topic, queue_id: -1)
    direct, waiting, ends = 0, 0, dict[int, int]()
    for raw, record in store.commit_log.scan(0, end):
        ends[record.commit_log_offset] = record.commit_log_offset + len(raw)
        is_check_point = record.properties.get("TAGS") == "ck"
        if is_check_point and record.topic == TIMER_TOPIC:
            waiting = record.commit_log_offset
        if is_check_point and record.topic != TIMER_TOPIC and "TIMER_OUT_MS" not in record.properties:
            direct = record.commit_log_offset
    assert 0 < direct < waiting

    def count(since: int, dispatched: int = end) -> int:
        return sum(1 for _ in scan.written_check_points(since, dispatched, end))

    assert (count(waiting), count(ends[waiting])) == (1, 0)
    timer = pop_copy / "consumequeue" / TIMER_TOPIC
    timer.rename(tmp_path / "timer")
    assert count(direct) == 1
    assert count(ends[direct]) == 0, "what the timer has delivered is older"
    assert count(0, waiting) == count(0) + 1, "no queue has it yet"
    assert count(ends[waiting], 0) == 0
