"""Open messages of a RocketMQ broker, found from its records: of a recorded store, and of made ones."""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.pop import open_pops, revive_records
from ringmq.pop.open_pops import OpenPop, OpenPops, plan_window
from ringmq.pop.record_scan import RecordScan, revive_topics, tagged_units, timer_read_ms
from ringmq.pop.revive_records import Acks, CheckPoint, Pop
from ringmq.store import layout
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import load_config
from ringmq.store.consume_queue import ConsumeQueue
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import survey
from tests.store.golden_stores import basic_config, pop_config

TOPIC = "rmq_sys_REVIVE_LOG_GoldCluster"
DAYS_MS = 3 * 86_400_000
Opened = dict[tuple[str, int], list[int]]


def opened(root: Path, handled: dict[int, int] | None = None, read_ms: int | None = None) -> Opened:
    """(topic, pop time) -> open messages. `handled`, `read_ms`: instead of the offsets and the time of the store."""
    config = pop_config(root)
    offsets = load_config(root, "consumerOffset.json")["offsetTable"][f"{TOPIC}@{revive_records.REVIVE_GROUP}"]
    known = {int(queue): offset for queue, offset in offsets.items()} | (handled or {})
    if read_ms is not None:
        with (root / "config/timercheck").open("r+b") as file:
            file.write(struct.pack(">q", read_ms))
    store, found = MessageStore(config), OpenPops()
    end = survey(config).append_offset
    scan = RecordScan(store, lambda topic, queue_id: known.get(queue_id, -1))
    for record in scan.records(end, end, DAYS_MS):
        found.add(*record)
    assert not found.damaged
    return {(one.pop.topic, one.pop.pop_time_ms): sorted(one.offsets) for one in found.all() if one.offsets}


def test_acks_behind_the_last_check_point_open_nothing(pop_copy: Path) -> None:
    """Stock leaves them there for ever."""
    assert opened(pop_copy) == {}


def test_records_behind_the_last_handled_one_count(pop_copy: Path) -> None:
    """In queue 0 behind 4: two pops of one message without an ack, and one of six of which a batch names three."""
    assert opened(pop_copy, {0: 4}) == {
        ("GPV", 1795209148571): [1], ("GPV", 1795209402160): [2], ("GPB", 1795209409941): [3, 4, 5],
    }  # fmt: skip
    assert opened(pop_copy, {1: -1}) == {}, "four pops, all acknowledged, one by one and in a batch"


def test_an_offset_beyond_the_queue_hides_no_message(pop_copy: Path) -> None:
    assert opened(pop_copy, {0: 1 << 40}) == opened(pop_copy, {0: -1}) != {}


def test_records_in_the_timer_count_with_their_acks_wherever_they_are(pop_copy: Path) -> None:
    found = opened(pop_copy, read_ms=1795209427000)
    assert {key[0]: len(offsets) for key, offsets in found.items()} == {"GPB": 3, "GPM": 2, "GP1": 3, "GPW": 1}


def test_the_tail_of_a_killed_broker_is_read_from_the_log(pop_copy: Path) -> None:
    """Its last records are in no queue."""
    expected = opened(pop_copy, read_ms=1795209427000)
    shutil.rmtree(pop_copy / "consumequeue" / layout.TIMER_TOPIC)
    config, found = pop_config(pop_copy), OpenPops()
    end = survey(config).append_offset
    scan = RecordScan(MessageStore(config), lambda topic, queue_id: 1 << 20 if queue_id < 0 else 1000)
    for record in scan.records(0, end, DAYS_MS):
        found.add(*record)
    offsets = {(one.pop.topic, one.pop.pop_time_ms): sorted(one.offsets) for one in found.all() if one.offsets}
    assert expected.items() <= offsets.items()


def test_a_look_ends_a_scan_of_the_timer(pop_copy: Path) -> None:
    """It comes before each record, also before those that wait no more."""

    class TimeIsOverError(Exception):
        pass

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == limit:
            raise TimeIsOverError

    scan = RecordScan(MessageStore(pop_config(pop_copy)), lambda topic, queue_id: -1)
    looks, limit = list[int](), 0
    assert not list(scan.timed(1 << 60, 1 << 61, 0, look)) and len(looks) > 3
    looks, limit = [], 3
    with pytest.raises(TimeIsOverError):
        list(scan.timed(1 << 60, 1 << 61, 0, look))


def test_timer_messages_of_clients_are_not_decoded(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    monkeypatch.setattr(CommitLog, "record_at", lambda log, offset, *rest: decoded.append(offset))
    config: StoreConfig = basic_config(golden)
    store = MessageStore(config)
    scan = RecordScan(store, lambda topic, queue_id: -1)
    queue = store.queue(layout.TIMER_TOPIC, 0)
    assert isinstance(queue, ConsumeQueue) and not list(scan.records(0, 0, DAYS_MS))
    assert list(scan.timed_steps(0, 0, 0)) == [None] * len(queue.files.starts), "each file is a step"
    assert not decoded and not revive_topics(golden)
    assert timer_read_ms(golden) > 0


def test_units_are_found_by_their_tags() -> None:
    code = layout.CONSUME_QUEUE_UNIT
    units = [(0, 50, 3176), (50, 50, 77), (100, 50, 96393), (3176 << 32, 50, 1), (200, 3176, 3176), (-1, 0, 3176)]
    data = memoryview(b"".join(code.pack(*unit) for unit in units))
    assert sorted(unit[:3] for unit in tagged_units(data, 7)) == [(7, 0, 50), (9, 100, 50), (11, 200, 3176)]


# ---- made records ----

POP = Pop("T", "G", 0, 100, 1000, "b")


def point(start: int, *distances: int, time_ms: int = 1000) -> CheckPoint:
    return CheckPoint(POP._replace(start_offset=start, pop_time_ms=time_ms), 500, distances)


def pops_of(*read: CheckPoint | Acks) -> Iterator[OpenPop]:
    found = OpenPops()
    for one in read:
        if isinstance(one, CheckPoint):
            found.add("ck", revive_records.check_point_body(one), 3)
        else:
            found.add("bAck", revive_records.batch_ack_body(one), 3)
    return found.all()


def test_an_ack_may_come_first_and_lack_its_broker() -> None:
    (one,) = pops_of(Acks(POP._replace(broker=""), (101, 999)), point(100, 0, 1, 5))
    assert (one.offsets, one.end, one.revive_queue, one.invisible_ms) == ({100, 105}, 106, 3, 500)


def test_a_repeated_check_point_counts_once() -> None:
    (one,) = pops_of(point(100, 0, 1), point(100, 0, 1), Acks(POP, (100,)))
    assert one.offsets == {101}


def test_damaged_records_are_counted_and_the_first_is_named() -> None:
    found = OpenPops()
    for body in (b"{}", b""):
        found.add("ck", body, 0)
    assert (found.damaged, list(found.all())) == (2, []) and found.damage.startswith("t is no name")


def plan(
    committed: int, end: int, *read: CheckPoint | Acks, low: int = 0, was_killed: bool = True
) -> tuple[int, dict[int, list[int]], list[int]] | None:
    found = plan_window(committed, (low, end), list(pops_of(*read)), was_killed=was_killed)
    if found is None:
        return None
    following, pops, missing = found
    return following, {one.pop.start_offset: sorted(one.offsets) for one in pops}, missing


def test_the_group_goes_on_behind_all_that_it_has_had() -> None:
    assert plan(120, 200, point(100, 0, 1), point(110, 0)) == (120, {100: [100, 101], 110: [110]}, [])
    assert plan(-1, 200, point(100, 0, 1), was_killed=False) == (102, {100: [100, 101]}, [])
    assert plan(120, 200, point(100, 0), Acks(POP, (100,))) is None


def test_what_a_killed_broker_has_given_without_a_record_comes_again() -> None:
    """Its consumer offset is older than its records. 103 to 107 have none; 109 was filtered out; 108 is done."""
    read = point(100, 0, 1, 2), point(108, 0, 2), Acks(POP._replace(start_offset=108), (108,))
    assert plan(102, 200, *read) == (111, {100: [100, 101, 102], 108: [110]}, [103, 104, 105, 106, 107])


def test_messages_behind_the_end_of_the_log_are_gone() -> None:
    assert plan(90, 101, point(100, 0, 1, 2)) == (101, {100: [100]}, list(range(90, 100)))
    assert plan(100, 100, point(100, 0, 1, 2)) is None
    assert plan(120, 101, point(90, 0)) == (101, {90: [90]}, []), "a group does not go on behind the end"


def test_far_behind_its_records_a_group_goes_on_at_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_pops, "GAP_MAX", 9)
    assert plan(91, 200, point(100, 0), point(90, 0)) == (91, {90: [90]}, [])
    assert plan(91, 200, point(100, 0)) is None, "it is not in front of the offset, so it comes again by itself"


def test_a_new_group_of_a_killed_broker_has_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pops before the first record may have been kept in memory alone, from any message of the queue on."""
    read = point(100, 0, 1), Acks(POP, (100,))
    assert plan(-1, 200, *read, low=97) == (102, {100: [101]}, [97, 98, 99])
    assert plan(-1, 200, *read, low=101) == (102, {100: [101]}, [])
    monkeypatch.setattr(open_pops, "GAP_MAX", 4)
    assert plan(-1, 200, *read, low=97) == (102, {100: [101]}, [])


def test_a_reset_before_a_clean_stop_counts() -> None:
    """Messages from there on come again as the group goes on, also those that records name."""
    read = point(100, 0, 1), point(110, 0), Acks(POP, (100,))
    assert plan(101, 200, *read) == (111, {100: [101], 110: [110]}, list(range(102, 110)))
    assert plan(101, 200, *read, was_killed=False) is None
    assert plan(105, 200, *read, was_killed=False) == (105, {100: [101]}, [])
    assert plan(90, 200, *read, was_killed=False) is None


def test_pops_below_the_consumer_offset_cover_nothing_above_it() -> None:
    """A killed broker has kept the pop of the messages 3 and 4 in memory alone."""
    below, above = (OpenPop(POP._replace(start_offset=start), 60_000, 0, {start}, start + 1) for start in (0, 5))
    assert plan_window(2, (0, 9), [below, above]) == (6, [below, above], [2, 3, 4])
