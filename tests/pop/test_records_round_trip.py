"""What another broker reads from the log is what consumers hold, however often the store was stopped before."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.pop import revive_records
from ringmq.pop.check_points import CheckPoints
from ringmq.pop.endings import endings_of
from ringmq.pop.memory import remove_lasting
from ringmq.pop.open_pops import OpenPops, plan_window
from ringmq.pop.revive_records import Acks, CheckPoint, Pop
from ringmq.pop.window_names import Window
from tests.pop.test_check_points import KEYS, NOW, World, made

PLACES = {key: place for place, key in KEYS.items()}
Held = dict[Pop, list[int]]
Records = list[tuple[str, bytes, int]]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_lasting(tmp_path)


def held(world: World) -> Held:
    """Open messages by receipt."""
    found: Held = {}
    for one in world.entries():
        if one.offsets:
            found.setdefault(one.pop, []).extend(one.offsets)
    return {pop: sorted(offsets) for pop, offsets in found.items()}


def read(records: Records) -> OpenPops:
    found = OpenPops()
    for record in records:
        found.add(*record)
    assert not found.damaged
    return found


def stop(world: World, log: Records) -> None:
    """A stop that hands over. Check points whose time is near are in the revive queues by then, which it passes."""
    points = world.points()
    windows = {key: Window(place, place + 1, 0, 0) for place, key in KEYS.items()}
    endings = endings_of(points, windows, lambda key: world.next[PLACES[key]], read(log), NOW)
    log[:] = [record for record in log if not is_near(record)]
    log += [("bAck", revive_records.batch_ack_body(one.acks), one.revive_queue) for one in endings]
    log += [("ck", body, queue[2]) for queue, body, _ in made(points)]


def is_near(record: tuple[str, bytes, int]) -> bool:
    found = revive_records.read_record(*record[:2])
    return isinstance(found, revive_records.CheckPoint) and found.due_ms - revive_records.EARLIER_MS <= NOW + 5000


@pytest.mark.parametrize("seed", range(40))
def test_another_broker_finds_what_consumers_hold(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    world, log = World(root, chance), list[tuple[str, bytes, int]]()
    for _ in range(chance.choice((1, 2, 5))):
        for _ in range(chance.choice((0, 3, 60))):
            world.pop(chance.choice(list(KEYS)), chance.choice((0, 10, 300)))
        if chance.random() < 0.8:
            world.ack_some()
        stop(world, log)
        chance.shuffle(log)
        found = {one.pop: sorted(one.offsets) for one in read(log).all() if one.offsets}
        assert found == held(world)
    points = Counter(revive_records.read_record(tag, body).pop for tag, body, _ in log if tag == "ck")
    assert all(count == 1 for count in points.values()), "no pop has two that wait"
    check_plans(world, log)
    world.close()


def check_plans(world: World, log: Records) -> None:
    """The windows that a take-over makes hold the same, and go on behind it."""
    by_queue: dict[tuple[str, int], OpenPops] = {}
    for record in log:
        pop = revive_records.read_record(*record[:2]).pop
        by_queue.setdefault((pop.topic, pop.queue_id), OpenPops()).add(*record)
    expected = held(world)
    for place, key in KEYS.items():
        found = by_queue.get((key.topic, key.queue_id), OpenPops())
        plan = plan_window(world.next[place], (0, world.next[place]), list(found.all()))
        opened = {pop: offsets for pop, offsets in expected.items() if pop.topic == key.topic}
        if plan is None:
            assert not opened
            continue
        following, pops, missing = plan
        assert (following, missing) == (world.next[place], [])
        assert {one.pop: sorted(one.offsets) for one in pops} == opened


def test_a_change_that_the_windows_do_not_know_ends_no_check_point(root: Path) -> None:
    """The worker has died between its records and its entry. Only the new check point has the message."""
    world, log = World(root, random.Random(3)), list[tuple[str, bytes, int]]()
    world.pop(0, 0)
    stop(world, log)
    [one] = read(log).all()
    offset = min(one.offsets)
    changed = CheckPoint(one.pop._replace(start_offset=offset, pop_time_ms=NOW + 1), 60_000, (0,))
    log.append(("bAck", revive_records.batch_ack_body(Acks(one.pop, (offset,))), one.revive_queue))
    log.append(("ck", revive_records.check_point_body(changed), one.revive_queue))
    stop(world, log)
    assert {left for found in read(log).all() for left in found.offsets} == one.offsets
    world.close()


def test_a_window_that_has_ended_leaves_nothing_open_below_the_offset(root: Path) -> None:
    """Its messages begin anew at the consumer offset."""
    world, log = World(root, random.Random(3)), list[tuple[str, bytes, int]]()
    world.pop(0, 0)
    stop(world, log)
    points: CheckPoints = world.points()
    opened = {offset for one in read(log).all() for offset in one.offsets}
    following = max(opened)
    endings = endings_of(points, {}, lambda key: following, read(log), NOW)
    log += [("bAck", revive_records.batch_ack_body(one.acks), one.revive_queue) for one in endings]
    left = {offset for one in read(log).all() for offset in one.offsets}
    assert left == {following}, "the group goes on there: a start behind a death may not pass it over"
    world.close()
