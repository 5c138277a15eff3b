"""Check points that C makes of the windows, compared with their twin and with RocketMQ's form."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringmq.native import ffi, lib
from ringmq.pop import revive_records as records
from ringmq.pop.check_points import ALL, OPEN_MAX, CheckPoints, HandOverError
from ringmq.pop.check_points_twin import OpenEntry, Point, check_points
from ringmq.pop.memory import remove_lasting
from ringmq.pop.record_targets import Targets
from ringmq.pop.revive_records import Pop, read_record
from ringmq.pop.window_names import Key, Window
from tests.pop.memory_kit import entry, open_memory

REVIVE = [(5, 50 + number, number) for number in (0, 1, 2, 3, 4, 5, 6, 3)]
"""Queue 7 is missing."""
TIMER = 6, 60, 0
NOW, PRECISION = 1_700_000_000_000, 1000
BROKER = 'broker "ä" \\'
KEYS = {0: Key("G", "T", 3), 1: Key("CID-1", "%RETRY%CID-1+T", 0), 2: Key("g" * 100, "t" * 120, 65_535)}


class World:
    """Windows of three groups, and their check points."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.memory, self.chance = open_memory(root), chance
        self.windows = lib.rmq_pop_windows_open(self.memory.pages, self.memory.layout, 0, 0, ffi.new("uint64_t *"))
        for place, key in KEYS.items():
            made = ffi.new("uint32_t *")
            assert lib.rmq_pop_window_make(self.windows, place + 1, key.queue_id, 0, 0, made) == 0 and made[0] == place
        self.next = dict.fromkeys(KEYS, 0)
        self.ends: dict[int, list[int]] = {place: [0] for place in KEYS}
        """Next offsets behind each pop."""

    def close(self) -> None:
        lib.rmq_pop_windows_close(self.windows)
        self.memory.close(clean=False)

    def pop(self, place: int, gap: int) -> None:
        start = self.next[place]
        offsets = sorted(self.chance.sample(range(start, start + gap + 32), self.chance.choice((1, 5, 32))))
        self.next[place] = offsets[-1] + 1
        self.ends[place].append(self.next[place])
        give = ffi.new("struct rmq_pop_give *", {
            "pop_time_ms": NOW - self.chance.choice((0, 777, 59_000, 70_000)), "mono_ms": 0, "start_offset": start,
            "next_offset": offsets[-1] + 1, "invisible_ms": 60_000,
            "revive_queue": self.chance.choice((0, 3, 7, 9)),
        })  # fmt: skip
        assert lib.rmq_pop_window_give(self.windows, place, give, offsets, len(offsets)) == 0

    def ack_some(self) -> None:
        for one in list(self.entries()):
            place = next(place for place, key in KEYS.items() if key.topic == one.pop.topic)
            for offset in one.offsets:
                if self.chance.random() < 0.5:
                    done = ffi.new("uint32_t *")
                    pop = one.pop
                    lib.rmq_pop_ack(self.windows, place, pop.start_offset, pop.pop_time_ms, offset, 1, done)

    def entries(self) -> Iterator[OpenEntry]:
        for index in range(int(lib.rmq_pop_points_entries(self.windows))):
            slot = entry(self.memory, index)
            if not lib.rmq_pop_pages_has(self.memory.pages, slot) or not slot.state:
                continue
            key = KEYS[int(slot.window) - 1]
            start = int(slot.base_offset - slot.start_delta)
            pop = Pop(key.topic, key.group, key.queue_id, start, int(slot.pop_time_ms), BROKER)
            bits = int(slot.present & ~slot.acked & ~slot.copied)
            offsets = [int(slot.base_offset) + bit for bit in range(64) if bits >> bit & 1]
            yield OpenEntry(pop, int(slot.invisible_ms), int(slot.revive_queue) & 0x7FFF, offsets)

    def points(self, timer: tuple[int, int, int] | None = TIMER, arena: int = 1 << 20) -> CheckPoints:
        settings = SimpleNamespace(
            store_host=ffi.new("uint8_t[16]", [10, 0, 0, 9]), store_port=10911, store_host_bytes=4
        )
        plane = SimpleNamespace(header=SimpleNamespace(settings=settings), struct=ffi.NULL)
        port = SimpleNamespace(
            arena=ffi.buffer(ffi.new("uint8_t[]", arena)), room=lib.RMQ_POP_ENTRY_MESSAGES * 4, number=0
        )
        named = [(key, Window(place, place + 1, 0, 0)) for place, key in KEYS.items()]
        targets = Targets("rmq_sys_REVIVE_LOG_C", REVIVE, timer, PRECISION)
        return CheckPoints(plane, port, self.windows, named, BROKER, targets, NOW)  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_lasting(tmp_path)


def made(points: CheckPoints, look: int = ALL) -> Iterator[tuple[tuple[int, int, int], bytes, bytes]]:
    """Queue, body and properties of each request of a pass."""
    while not points.is_over:
        requests, count = points.fill(look)
        arena = points._kept[-1]
        for number in range(count):
            one = requests[number]
            assert (
                bytes(one.born_host)[:4] == b"\n\0\0\t" and one.born_port == 10911 and one.kind == lib.RMQ_APPEND_SINGLE
            )
            assert one.flags == lib.RMQ_APPEND_FLAG_COPY | lib.RMQ_APPEND_FLAG_NO_WAIT and one.born_time_ms == NOW
            body, pairs = one.body_at, one.properties_at
            yield (
                (one.topic_id, one.queue_slot, one.queue_id),
                bytes(ffi.buffer(arena + body, one.body_length)),
                bytes(ffi.buffer(arena + pairs, one.properties_length)),
            )  # fmt: skip


def written(point: Point, timer: tuple[int, int, int] | None) -> tuple[tuple[int, int, int], bytes, bytes]:
    deliver_ms, queue = point.point.due_ms - records.EARLIER_MS, REVIVE[point.revive_queue]
    body, key = records.check_point_body(point.point), records.check_point_key(point.point.pop)
    if timer is None or deliver_ms <= NOW:
        return queue, body, records.plain_properties(deliver_ms, key, "ck")
    out_ms = records.out_ms(deliver_ms, PRECISION)
    pairs = records.timed_properties(deliver_ms, key, "ck", "rmq_sys_REVIVE_LOG_C", queue[2], out_ms)
    return timer, body, pairs


@pytest.mark.parametrize("seed", range(20))
def test_both_make_the_same_check_points(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(root, chance)
    for _ in range(chance.choice((0, 1, 30, 400))):
        world.pop(chance.choice(list(KEYS)), chance.choice((0, 0, 10, 300)))
    if chance.random() < 0.7:
        world.ack_some()
    entries, timer = list(world.entries()), chance.choice((TIMER, None))
    points = world.points(timer)
    known = {one.pop for one in entries if chance.random() < 0.2}
    for pop in known:
        place = next(place for place, key in KEYS.items() if key.topic == pop.topic)
        opened = {offset for one in entries if one.pop == pop for offset in one.offsets}
        assert points.known(place, pop.start_offset, pop.pop_time_ms) == opened
    ends = chance.choice((None, {place: chance.choice(world.ends[place]) for place in (0, 2)}))
    points.begin_pass(ends)
    twin_ends = None if ends is None else {(KEYS[at].topic, KEYS[at].group, KEYS[at].queue_id): ends[at] for at in ends}
    expected = [written(point, timer) for point in check_points(entries, known, len(REVIVE), twin_ends)]
    found = list(made(points, chance.choice((1, 7, ALL))))
    assert found == expected
    assert points.records == len(found)
    assert points.messages == sum(json.loads(body)["n"] for _, body, _ in found)
    for _, body, _ in found:
        assert read_record("ck", body)
    world.close()


def test_the_next_pass_makes_what_has_moved_behind_the_last_one(root: Path) -> None:
    """A consumer changes the invisible time of a message. Its entry takes a place that the pass has gone by."""
    world = World(root, random.Random(1))
    for number in range(4):
        give_one_pop(world, [number], number)
    done, points = ffi.new("uint32_t *"), world.points()
    assert lib.rmq_pop_ack(world.windows, 0, 0, NOW, 0, 1, done) == lib.RMQ_POP_DONE
    assert points.fill(2)[1] == 1, "message 1"
    give = ffi.new("struct rmq_pop_give *", {"pop_time_ms": NOW + 1, "start_offset": 3, "invisible_ms": 90_000})
    assert lib.rmq_pop_change(world.windows, 0, 3, NOW, 3, give) == lib.RMQ_POP_DONE
    assert [json.loads(body)["so"] for _, body, _ in made(points)] == [2]
    points.begin_pass({0: 4})
    assert [json.loads(body)["so"] for _, body, _ in made(points)] == [3]
    points.begin_pass({0: 4})
    assert list(made(points)) == []
    world.close()


def test_messages_of_a_pop_behind_the_end_and_of_later_windows_are_left_out(root: Path) -> None:
    world = World(root, random.Random(1))
    points = world.points()
    for number in range(3):
        give_one_pop(world, [number], number)
    later, place = ffi.new("uint32_t *"), 1 + max(KEYS)
    assert lib.rmq_pop_window_make(world.windows, place + 1, 0, 0, 0, later) == 0 and later[0] == place
    give = ffi.new("struct rmq_pop_give *", {"pop_time_ms": NOW, "next_offset": 1, "invisible_ms": 60_000})
    assert lib.rmq_pop_window_give(world.windows, place, give, [0], 1) == 0
    assert len(list(made(points))) == 1, "the first entry: there was none when the pass began"
    points.begin_pass({0: 2})
    assert [json.loads(body)["so"] for _, body, _ in made(points)] == [1]
    points.begin_pass({0: 3})
    points.leave_out(0)
    assert list(made(points)) == []
    world.close()


def test_more_messages_than_a_check_point_has_bits_get_another_one(root: Path) -> None:
    world = World(root, random.Random(1))
    give = ffi.new("struct rmq_pop_give *", {
        "pop_time_ms": NOW, "start_offset": 0, "next_offset": 100, "invisible_ms": 60_000,
    })  # fmt: skip
    assert lib.rmq_pop_window_give(world.windows, 0, give, list(range(100)), 100) == 0
    bodies = [json.loads(body) for _, body, _ in made(world.points())]
    assert [(body["so"], body["n"], body["d"][0]) for body in bodies] == [
        (0, 32, 0),
        (32, 32, 0),
        (64, 32, 0),
        (96, 4, 0),
    ]
    world.close()


@pytest.mark.parametrize("entries", [lib.RMQ_POP_ENTRY_MESSAGES, lib.RMQ_POP_ENTRY_MESSAGES + 1])
def test_no_open_message_is_left_out(root: Path, entries: int) -> None:
    """A take-over may make a pop of more entries than its check points are made of."""
    world = World(root, random.Random(1))
    give_one_pop(world, [number * 100 for number in range(entries)])
    points = world.points()
    if entries == lib.RMQ_POP_ENTRY_MESSAGES:
        expected = [written(point, TIMER) for point in check_points(list(world.entries()), (), len(REVIVE))]
        assert list(made(points)) == expected and points.messages == entries
    else:
        for both in (lambda: check_points(list(world.entries()), (), len(REVIVE)), lambda: made(points)):
            with pytest.raises(HandOverError, match="more than 64 entries with open messages"):
                list(both())
    world.close()


def test_open_messages_beyond_the_limit_do_not_count_as_done(root: Path) -> None:
    world, opened = World(root, random.Random(1)), list(range(OPEN_MAX))
    give_one_pop(world, opened)
    assert world.points().known(0, 0, NOW) == set(opened)
    give_one_pop(world, [OPEN_MAX])
    with pytest.raises(HandOverError, match="4097 open messages"):
        world.points().known(0, 0, NOW)
    world.close()


def test_a_pop_without_room_in_the_arena_is_told(root: Path) -> None:
    world = World(root, random.Random(1))
    world.pop(0, 0)
    with pytest.raises(HandOverError, match="do not fit into the arena"):
        list(made(world.points(arena=1024)))
    world.close()


def give_one_pop(world: World, offsets: list[int], start: int = 0) -> None:
    """One pop of these messages."""
    give = ffi.new("struct rmq_pop_give *", {
        "pop_time_ms": NOW, "start_offset": start, "next_offset": offsets[-1] + 1, "invisible_ms": 60_000,
    })  # fmt: skip
    assert lib.rmq_pop_window_give(world.windows, 0, give, offsets, len(offsets)) == 0


def test_a_small_arena_takes_them_in_several_batches(root: Path) -> None:
    world = World(root, random.Random(1))
    for _ in range(40):
        world.pop(0, 0)
    assert list(made(world.points(arena=8192))) == list(made(world.points()))
    world.close()
