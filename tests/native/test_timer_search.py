"""Deletes that name a message of another time: C and Python find the same slot, with hashes that clash."""

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plane_kit import Kit

from ringmq.native import ffi, lib
from ringmq.remoting.subscription import java_string_hash
from ringmq.store.index_file import IndexStore, key_hash
from ringmq.store.queue_reader import QueueReader, RecordBatch
from ringmq.timer.enqueuer import Enqueuer
from ringmq.timer.placement import Placement, Target, place, place_delete
from ringmq.timer.target_index import TargetIndex
from ringmq.timer.timer_log import Magic
from tests.timer.kit import SECRET, MemoryFiles

TOPIC = "rmq_sys_wheel_timer"
NOW_MS = time.time_ns() // 1_000_000_000 * 1000
WINDOW, STEP_MS = 20, 1000
KEYS = ("AaAa", "AaBB", "BBAa", "BBBB", "k1", "k2", "k3", "k4")
"""The first four have one hash."""


class World:
    """The timer topic of a kit, with what the twin expects of it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kit = Kit(root / "store", segment_bytes=1 << 20)
        self.topic = self.kit.topic(TOPIC.encode())
        self.files = MemoryFiles(4, 52 * 100 + 16 + 30, window_slots=WINDOW)
        self.work = ffi.new("struct rmq_timer_enqueue *", {"write_ms": NOW_MS, "open_ms": NOW_MS, "rolls_by_write": 1})
        self.work.index.secret = SECRET
        self.lines: list[str] = []
        index = IndexStore(self.kit.root / "index", 64, 400)
        self.index = TargetIndex(self.work.index, index, self.files, 0, self.lines.append)  # type: ignore[arg-type]
        self.sent: list[dict[str, str]] = []
        self.placed: list[Placement] = []

    def send(self, count: int, deletes: float) -> None:
        with self.kit.writer() as write, self.kit.dispatcher() as dispatch:
            for _ in range(count):
                pairs = self.pairs(deletes)
                self.sent.append(pairs)
                text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
                self.kit.request(self.topic, 0, b"x", properties=text.encode())
            write()
            self.kit.completions()
            while self.kit.marks.dispatched_offset < self.kit.marks.append_offset:
                dispatch()

    def pairs(self, deletes: float) -> dict[str, str]:
        dice = self.dice
        topic, key = dice.choice(("Aa", "BB")), dice.choice(KEYS)
        pairs = {"TIMER_OUT_MS": str(NOW_MS + STEP_MS * dice.randrange(-3, 45)), "REAL_TOPIC": topic, "UNIQ_KEY": key}
        if dice.random() < deletes:
            pairs["TIMER_DEL_UNIQKEY"] = f"{dice.choice((topic, topic, 'Aa', 'BB'))}+{key}"
        return pairs

    def place(self, number: int) -> Placement:
        """The twin."""
        pairs, open_ms = self.sent[number], int(self.work.open_ms)
        named = pairs.get("TIMER_DEL_UNIQKEY")
        own = place(
            int(pairs["TIMER_OUT_MS"]), write_ms=int(self.work.write_ms), open_ms=open_ms, is_delete=named is not None,
            window_slots=WINDOW, precision_ms=STEP_MS,
        )  # fmt: skip
        if named is None or not named.startswith(pairs["REAL_TOPIC"] + "+"):
            return own
        return place_delete(own, self.targets(number, named), open_ms=open_ms, open_end_ms=open_ms + STEP_MS)

    def targets(self, number: int, named: str) -> list[Target]:
        wanted = key_hash(TOPIC, named.partition("+")[2])
        of_hash = [at for at in range(len(self.sent)) if key_hash(TOPIC, self.sent[at]["UNIQ_KEY"]) == wanted]
        found = []
        for at in of_hash[: -lib.RMQ_TIMER_SEARCH_RECORDS - 1 : -1]:
            if at < number and java_string_hash(self.sent[at]["REAL_TOPIC"]) == java_string_hash(named[:2]):
                pairs = self.sent[at]
                is_named = f"{pairs['REAL_TOPIC']}+{pairs['UNIQ_KEY']}" == named
                found.append(Target(self.placed[at].slot_ms, self.placed[at].magic, is_named))
        return found

    def enqueue(self, reader: QueueReader, room: int = 512) -> int:
        """As delivery does. Returns how many were taken until none is."""
        first, batch, self.work.index.reader = len(self.placed), RecordBatch(room), reader.native
        self.index.begin_batch()
        reader.hold(batch, self.kit.queue_slot(self.topic, 0), first)
        done = 0
        while done < batch.count:
            lib.rmq_timer_is_full(self.files.struct)
            self.files.struct.log_room = 4 * self.files.struct.file_bytes
            done += lib.rmq_timer_enqueue(
                self.files.struct, batch.records + done, batch.units + done, batch.count - done, self.work
            )
            if self.work.stop == lib.RMQ_TIMER_STOP_TIME:
                break
            if self.work.stop == lib.RMQ_TIMER_STOP_INDEX:
                self.index.list_files(NOW_MS)
        batch.release()
        return done

    def units(self) -> list[Any]:
        found = []
        for number in range(int(lib.rmq_timer_number(self.files.struct, self.files.struct.log_end))):
            unit = ffi.new("struct rmq_timer_unit *")
            assert lib.rmq_timer_unit_at(self.files.struct, lib.rmq_timer_position(self.files.struct, number), unit)
            found.append(unit)
        return found


class WorldSlots:
    """The part of Slots that an Enqueuer uses."""

    def __init__(self, world: World) -> None:
        self.work, self._files = world.work, world.files.struct
        self.files = SimpleNamespace(make_room=self._make_room)
        self.tally = world.work.tally

    def _make_room(self, count: int) -> None:
        self._files.log_room = 4 * self._files.file_bytes

    def enqueue(self, batch: RecordBatch, first: int, count: int) -> int:
        return int(lib.rmq_timer_enqueue(self._files, batch.records + first, batch.units + first, count, self.work))


def test_a_batch_that_holds_all_maps_leaves_one_for_the_targets_of_deletes(tmp_path: Path) -> None:
    """Each record is in a log file of its own, and the target of the delete in none of those that the batch holds."""
    world, maps = World(tmp_path, 1), 8
    target = {"TIMER_OUT_MS": str(NOW_MS + 5000), "REAL_TOPIC": "Aa", "UNIQ_KEY": "k1"}
    delete = target | {"TIMER_OUT_MS": str(NOW_MS + 9000), "TIMER_DEL_UNIQKEY": "Aa+k1"}
    others = [target | {"UNIQ_KEY": f"other-{number}"} for number in range(maps + 4)]
    filler = world.kit.topic(b"Filler")
    with world.kit.writer() as write, world.kit.dispatcher() as dispatch:
        for number, pairs in enumerate([target, delete, *others]):
            world.kit.create_segment((number + 1) << 20)
            text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
            world.kit.request(world.topic, 0, b"x", properties=text.encode())
            for _ in range(36):
                world.kit.request(filler, 0, bytes(30_000), properties=b"")
                write()
                world.kit.completions()
            while world.kit.marks.dispatched_offset < world.kit.marks.append_offset:
                dispatch()
    assert world.kit.marks.append_offset > (maps + 5) << 20
    queue = SimpleNamespace(queue_slot=world.kit.queue_slot(world.topic, 0))
    plane = SimpleNamespace(struct=world.kit.plane)
    store = SimpleNamespace(
        slots=WorldSlots(world), targets=world.index, queue=queue, log_line=world.lines.append, plane=plane
    )
    with QueueReader(world.kit.plane, maps, 4) as reader:
        enqueuer = Enqueuer(store, reader)  # type: ignore[arg-type]
        taken = enqueuer.enqueue(0, 1)
        for _ in range(3):
            taken = enqueuer.enqueue(taken, 4096)
        enqueuer.close()
    assert taken == len(others) + 2 and not world.lines
    assert world.units()[1].slot_ms == world.units()[0].slot_ms, "the delete is in the slot of its message"


@pytest.mark.parametrize("seed", range(6))
def test_deletes_are_where_the_rule_has_them(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    world.work.index.until_ns = 1 << 62
    for _ in range(8):
        world.send(40, deletes=0.4)
        with QueueReader(world.kit.plane, 8, 8) as reader:
            assert world.enqueue(reader) == 40
        for number in range(len(world.placed), len(world.sent)):
            world.placed.append(world.place(number))
        assert [(unit.slot_ms, unit.magic) for unit in world.units()] == [(p.slot_ms, p.magic) for p in world.placed]
        world.work.write_ms += STEP_MS * world.dice.randrange(4)
        world.work.open_ms = world.work.write_ms - STEP_MS * world.dice.randrange(2)
    own = [int(pairs["TIMER_OUT_MS"]) for pairs in world.sent]
    moved = [p.slot_ms < out_ms for p, out_ms in zip(world.placed, own, strict=True) if p.magic & Magic.DELETE]
    assert moved.count(True) > 20 and moved.count(False) > 20 and not world.lines
    for unit in world.units():
        found = ffi.new("struct rmq_timer_unit *")
        assert lib.rmq_timer_unit_of(world.files.struct, unit.commit_log_offset, found)
        assert found.position == unit.position
        assert not lib.rmq_timer_unit_of(world.files.struct, unit.commit_log_offset + 1, found)


def test_searches_end_with_their_time(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.send(40, deletes=1)
    is_searched = [pairs["TIMER_DEL_UNIQKEY"].startswith(pairs["REAL_TOPIC"]) for pairs in world.sent]
    first = is_searched.index(True)
    with QueueReader(world.kit.plane, 8, 8) as reader:
        world.work.index.until_ns = 0
        assert world.enqueue(reader) == first and world.work.stop == lib.RMQ_TIMER_STOP_TIME
    world.files.struct.log_end = 0
    with QueueReader(world.kit.plane, 8, 8) as reader:
        world.work.write_ms = time.time_ns() // 1_000_000 + 60_000
        world.work.index.all_below = first + 1
        assert world.enqueue(reader) == first, "a delete of before the start is searched for, however old"
        world.files.struct.log_end = world.work.index.all_below = 0
        assert world.enqueue(reader) == 40 and world.work.tally.not_searched == is_searched.count(True)


def test_files_that_cannot_be_opened_are_none(tmp_path: Path) -> None:
    world = World(tmp_path, 2)
    world.work.index.until_ns = 1 << 62
    world.send(40, deletes=0.5)
    (path,) = (world.kit.root / "index").iterdir()
    path.write_bytes(b"short")
    with QueueReader(world.kit.plane, 8, 8) as reader:
        assert world.enqueue(reader) == 40
    assert world.work.index.file_count == 0 and str(path) in world.lines[0]


@pytest.mark.parametrize("is_large", (False, True))
@pytest.mark.parametrize("seed", range(4))
def test_overdue_slots_join_the_open_one(tmp_path: Path, seed: int, is_large: bool) -> None:
    """Those that are required join a large one, too."""
    world = World(tmp_path, seed)
    for _ in range(5):
        world.send(40, deletes=0)
    with QueueReader(world.kit.plane, 8, 8) as reader:
        assert world.enqueue(reader) == 200
        used = sorted({unit.slot_ms for unit in world.units()})
        first, until_ms = used[0], used[-4]
        slot = ffi.gc(lib.rmq_timer_slot_open(first, 50, 200, SECRET), lib.rmq_timer_slot_close)
        lib.rmq_timer_slot_extend(slot, first + STEP_MS)
        walk = {"slot_ms": first, "until_ms": until_ms}
        if is_large:
            walk |= {"units": lib.RMQ_TIMER_JOIN_UNITS, "until_ms": used[-1] + STEP_MS, "required_ms": until_ms}
        expected = sorted(number for number, unit in enumerate(world.units()) if unit.slot_ms < until_ms)
        keys, found = ffi.new("uint64_t[]", 512), []
        for is_again in (0, 1, 1, 1, 1, 1, 1, 1, 1):
            walked = ffi.new("struct rmq_timer_walk *", walk | {"is_again": is_again})
            lib.rmq_timer_walk_begin(world.files.struct, walked)
            while not walked.is_over:
                assert not lib.rmq_timer_walk(world.files.struct, reader.native, slot, walked, 7, world.work)
            assert lib.rmq_timer_slot_end(slot) == used[-5] + STEP_MS
            count = lib.rmq_timer_slot_take(slot, 1 << 62, keys, 512)
            assert count <= 50
            found += [(lib.rmq_timer_slot_exact_ms(slot, key), lib.rmq_timer_slot_unit(key)) for key in keys[0:count]]
            if not lib.rmq_timer_slot_left_out(slot):
                break
            lib.rmq_timer_slot_walk_again(slot)
    assert found == sorted(found) and sorted(number for _, number in found) == expected
    assert len(used) > 20
