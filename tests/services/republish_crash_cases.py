"""A republisher, write and flush die at any crash point, and the store is held now and then.

The owner of the port is a process of its own in each turn. What it knows is what stands in shared memory: its words,
the port, the journal. tests/native/test_crash_points.py runs these cases with the build that has the crash points.
"""

import random
from pathlib import Path

import pytest
from crash_kit import PORT_POINTS, in_child, points
from kit_plane import ROLE, KitPlane
from plane_kit import ARENA_BYTES, SLICE_NS, Kit

from ringmq.ipc.ports import PortPlan, parts_of_mark
from ringmq.ipc.republish_words import PROGRESS
from ringmq.native import lib
from ringmq.services.republisher import QueueTarget, Republisher, following_copies

RECORDS, BATCH, STEPS = 150, 5, 3
HELD = lib.RMQ_HOLD_LONGER_SLAVE


class Case:
    """A source with records, and turns of the three roles in processes of their own."""

    def __init__(self, root: Path, sync: bool) -> None:
        plan = PortPlan(ROLE, ARENA_BYTES, lib.RMQ_PORT_ORDERED, weight=1)
        self.kit = kit = Kit(root, segment_bytes=65536, sync=sync, request_slots=256, ports=(plan,))
        source, target = kit.topic(b"Source"), kit.topic(b"Target")
        self.source, self.target = kit.queue_slot(source, 0), QueueTarget(target, kit.queue_slot(target, 0), 0)
        with kit.writer() as write, kit.flusher() as flush, kit.dispatcher() as dispatch:
            for number in range(RECORDS):
                kit.request(source, 0, b"%d" % number)
            write()
            flush()
            while kit.marks.dispatched_offset < kit.marks.append_offset:
                dispatch()
        kit.completions(0, "completed" if sync else "appended")
        self.block = kit.header.roles[ROLE]

    @property
    def progress(self) -> int:
        """Source offset behind what the owner knows to be stored."""
        return int(self.block.counters[PROGRESS]) - 1

    def own(self) -> None:
        """A process of the owner: some turns, between which write and flush take what is there."""
        plane = KitPlane(self.kit, ARENA_BYTES)
        republisher = Republisher(
            plane, ROLE, lambda reader, lane: following_copies(plane, reader, self.target.queue_slot, ROLE, lane),
            lambda text: None, batch=BATCH,
        )  # fmt: skip
        for _ in range(STEPS):
            if republisher.collect():
                republisher.publish(republisher.read(self.source), self.target)
            self.write()
            self.flush()

    def write(self) -> None:
        """A slice of write."""
        with self.kit.writer() as run:
            run(SLICE_NS // 10)

    def flush(self) -> None:
        """Flush until nothing waits for the disk."""
        with self.kit.flusher() as run:
            while self.kit.header.ports.parked.tail < self.kit.header.ports.parked.head:
                run(SLICE_NS)

    def turn(self, name: str, point: str | None) -> bool:
        """A role in a process of its own; True when it was killed."""
        self.block.generation += name == "own"
        return in_child(getattr(self, name), point)

    def check(self) -> None:
        """Each record is copied once and in order."""
        self.turn("write", None)  # one that died behind its commit has its append offset moved by the next one
        marks = [view.prepared_transaction_offset for _, _, view in self.kit.records()]
        assert [parts_of_mark(mark)[2] for mark in marks if mark] == list(range(RECORDS))


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_each_record_is_copied_once_and_in_order(tmp_path: Path, seed: int, sync: bool) -> None:
    chance, case, hits = random.Random(f"{seed}-{sync}"), Case(tmp_path, sync), 0
    names = {
        "own": PORT_POINTS + points("write-") + ["flush-answer", "flush-completed-head"] * sync,
        "write": points("write-"),
        "flush": ["flush-answer", "flush-completed-head"],
    }
    for _ in range(3000):
        if case.progress == RECORDS:
            break
        name = chance.choice(("own", "own", "write", *["flush"] * sync))
        point = f"{chance.choice(names[name])}:{chance.randrange(1, 4)}" if chance.random() < 0.9 else None
        case.kit.marks.write_hold = HELD if chance.random() < 0.2 else 0
        hits += case.turn(name, point)
    assert hits > 3 and case.progress == RECORDS
    case.check()


@pytest.mark.parametrize("point", PORT_POINTS)
def test_every_step_of_a_republisher_is_reached(tmp_path: Path, point: str) -> None:
    case = Case(tmp_path, False)
    assert case.turn("own", point)
    for _ in range(100):
        if case.progress == RECORDS:
            break
        case.turn("own", None)
    case.check()
