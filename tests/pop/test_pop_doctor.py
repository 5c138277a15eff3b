"""The look of `ringmq doctor` at the memory of POP."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.doctor.facts import DiskFacts
from ringmq.doctor.finding import OK, WARN
from ringmq.pop.doctor import MIB, Room, check_room, memory_room
from tests.pop.memory_kit import open_memory

DISK = DiskFacts("/s", "ext4", "rw", 20, 1, 1)


@pytest.mark.parametrize(
    ("free", "taken", "level"), [(256, 0, OK), (200, 56, OK), (200, 55, WARN), (0, 0, WARN), (0, 256, OK)]
)
def test_all_entries_need_room(free: int, taken: int, level: str) -> None:
    (found,) = check_room(Room(free * MIB, taken * MIB), DISK, BrokerConfig())
    assert (found.name, found.level, bool(found.advice)) == ("memory of POP", level, level != OK)
    assert "may take 256 MiB" in found.value


def test_a_store_without_pop_has_no_finding(tmp_path: Path) -> None:
    assert memory_room(tmp_path) is None
    assert not [*check_room(None, DISK, BrokerConfig())]


def test_the_segment_counts_as_room(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    room = memory_room(tmp_path)
    assert room is not None and room.free > 0
    assert room.taken == memory.path.stat().st_blocks * 512 > 0
    memory.close(clean=True)
    after = memory_room(tmp_path)
    assert after is not None and after.taken == 0
