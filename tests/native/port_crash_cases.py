"""An owner of an ordered port, write and flush die at any crash point, and the store is held now and then.

The owner republishes the numbers 1, 2, 3, ... Each turn of a role is a process of its own, so that nothing is known but
what stands in shared memory: the owner's checkpoint, the port, the journal. test_crash_points.py runs these cases with
the build that has the crash points.
"""

import mmap
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_kit import PORT_POINTS, in_child, points
from plane_kit import SHORT_SLICE_NS, Kit
from test_port import HELD, ORDERED, ROLE, SERVICE, PlaneOfKit, requests, stored

from ringmq.ipc.ports import Port, PortPlan
from ringmq.native import ffi, lib

NUMBERS = 40
AT_A_TIME = 4
STORED = (0, 10, 11, 12)
"""Codes of requests whose records are in the log."""
SYNC_FLUSH_TIMEOUT_MS = 500
"""If write dies behind its commit, the append offset stays where it was. Flush waits so long for the replacement."""


class Checkpoint:
    """The last number that the owner knows to be stored, in memory that outlives it."""

    def __init__(self) -> None:
        self._word = mmap.mmap(-1, 8)

    @property
    def number(self) -> int:
        return int(struct.unpack("=Q", self._word[:8])[0])

    @number.setter
    def number(self, value: int) -> None:
        self._word[:8] = struct.pack("=Q", value)


def own(kit: Kit, topic: int, checkpoint: Checkpoint, *, is_replacement: bool) -> None:
    """One turn of the owner: what became of its requests, then the next ones."""
    port = Port(PlaneOfKit(kit), SERVICE)
    if is_replacement:
        port.claim()
    found = ffi.new("struct rmq_completion[64]")
    if not port.answered:
        return
    for ring in (lib.RMQ_PORT_APPENDED, lib.RMQ_PORT_COMPLETED):
        count = port.peek(ring, found, 64)
        done = [completion.token for completion in found[0:count] if completion.code in STORED]
        checkpoint.number = max([checkpoint.number, *done])
        port.done(ring, count)
    port.acknowledge()
    first = checkpoint.number + 1
    numbers = list(range(first, min(first + AT_A_TIME, NUMBERS + 1)))
    if numbers:
        assert port.submit(requests(kit, topic, numbers), len(numbers)) == len(numbers)


def write(kit: Kit) -> None:
    """A slice of write; requests that are there are taken."""
    with kit.writer() as run:
        run(SHORT_SLICE_NS)


def flush(kit: Kit) -> None:
    """Flush until nothing waits for the disk."""
    with kit.flusher() as run:
        while kit.header.ports.parked.tail < kit.header.ports.parked.head:
            run(SHORT_SLICE_NS)


def made(root: Path, sync: bool) -> tuple[Kit, int]:
    """A kit with the port and log files enough."""
    kit = Kit(root, segment_bytes=4096, sync=sync, ports=(ORDERED,))
    for number in range(1, 12):
        kit.create_segment(number * 4096)
    kit.header.settings.sync_flush_timeout_ms = SYNC_FLUSH_TIMEOUT_MS
    kit.header.roles[ROLE].generation = 1
    return kit, kit.topic(b"T")


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_each_number_is_stored_once_and_in_order(tmp_path: Path, seed: int, sync: bool) -> None:
    chance = random.Random(f"{seed}-{sync}")
    kit, topic = made(tmp_path, sync)
    checkpoint, hits, turns = Checkpoint(), 0, 0
    is_replacement = True
    names = {"own": PORT_POINTS, "write": points("write-"), "flush": ["flush-answer", "flush-completed-head"]}
    while checkpoint.number < NUMBERS:
        turns += 1
        assert turns < 3000, "it does not come to an end"
        role = chance.choice(("own", "own", "write", "write", *["flush"] * sync))
        point = f"{chance.choice(names[role])}:{chance.randrange(1, 4)}" if chance.random() < 0.7 else None
        kit.marks.write_hold = HELD if chance.random() < 0.2 else 0
        turn: Callable[[], None]
        if role == "own":

            def turn(is_replacement: bool = is_replacement) -> None:
                own(kit, topic, checkpoint, is_replacement=is_replacement)

            killed = in_child(turn, point)
            is_replacement = killed or chance.random() < 0.3
            kit.header.roles[ROLE].generation += is_replacement
        else:
            killed = in_child(lambda: write(kit) if role == "write" else flush(kit), point)  # noqa: B023
        hits += killed
    assert hits > 3
    in_child(lambda: write(kit))  # one that died behind its commit has its append offset moved by the next one
    assert stored(kit) == list(range(1, NUMBERS + 1))


@pytest.mark.parametrize("point", PORT_POINTS)
def test_every_step_of_an_owner_is_reached(tmp_path: Path, point: str) -> None:
    kit, topic = made(tmp_path, False)
    checkpoint = Checkpoint()
    assert in_child(lambda: own(kit, topic, checkpoint, is_replacement=True), point)
    while checkpoint.number < NUMBERS:
        kit.header.roles[ROLE].generation += 1
        in_child(lambda: own(kit, topic, checkpoint, is_replacement=True))
        in_child(lambda: write(kit))
    assert stored(kit) == list(range(1, NUMBERS + 1))


@pytest.mark.parametrize(("point", "reported"), [("port-commits-filled", 0), ("port-commits-published", 3)])
def test_offsets_that_a_dying_owner_has_published_are_stored(tmp_path: Path, point: str, reported: int) -> None:
    kit = Kit(tmp_path, ports=(PortPlan(ROLE, flags=lib.RMQ_PORT_COMMITS),))
    group, slot = int(lib.rmq_group_add(kit.plane, b"G", 1, 0)), kit.queue_slot(kit.topic(b"T"), 0)
    port = Port(PlaneOfKit(kit), SERVICE)
    reports = ffi.new("struct rmq_offset_commit[]", [(group, slot, offset) for offset in (5, 6, 7)])
    assert in_child(lambda: port.commit(reports, 3), point)
    assert lib.rmq_offset_drain(kit.plane) == reported
    assert port.commit(reports, 3) == lib.rmq_offset_drain(kit.plane) == 3, "the replacement reports them again"
    assert lib.rmq_offset_get(kit.plane, group, slot) == 7
