"""The look of `ringmq doctor` at the memory of POP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.doctor.facts import DiskFacts
from ringmq.doctor.finding import OK, WARN, Finding, graded
from ringmq.doctor.look import Look
from ringmq.ipc import segment
from ringmq.pop.image_file import ENTRY_BYTES, FOLDER, IMAGE

MIB = 1 << 20


class Room(Struct, frozen=True):
    """Room for the memory, in bytes."""

    free: int
    taken: int
    """By the segment that is there."""


def memory_room(root: Path) -> Room | None:
    """The room of a store in which POP was used. Raises OSError."""
    if not (root / FOLDER / IMAGE).exists():
        return None
    found = os.statvfs(segment.SHM_DIR)
    if not found.f_blocks:  # a tmpfs without a limit
        return None
    paths = segment.SHM_DIR.glob(f"{segment.lasting_name(root, 'pop')}-*")
    return Room(found.f_bavail * found.f_frsize, sum(path.stat().st_blocks * 512 for path in paths))


def check_room(room: Room | None, disk: DiskFacts, config: BrokerConfig) -> Iterator[Finding]:
    """Check that /dev/shm holds all entries that `ringmqPopOpenMax` allows."""
    if room is None:
        return
    wanted, there = config.pop_open_max * ENTRY_BYTES, room.free + room.taken
    yield graded(
        "store",
        "memory of POP",
        WARN if there < wanted else OK,
        f"{there // MIB} MiB for it in {segment.SHM_DIR}, ringmqPopOpenMax may take {wanted // MIB} MiB",
        "when the room is used up, pops find nothing until consumers acknowledge",
        f"give {segment.SHM_DIR} more room (--shm-size, mount -o remount,size=...), or lower ringmqPopOpenMax",
    )


LOOK = Look(memory_room, check_room)
