"""The bound of the broker's memory: the counted pages, and its levels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.ipc import segment
from ringmq.ipc.memory import FREE, FULL, NEAR, RETURN_EVERY_MS, MemoryReturn, MemoryUse, memory_use, next_level
from ringmq.native import lib


@pytest.mark.parametrize(
    ("before", "used", "after"),
    [
        (FREE, 0, FREE),
        (FREE, 899, FREE),
        (FREE, 900, NEAR),
        (FREE, 970, FULL),
        (FREE, 5000, FULL),
        (NEAR, 850, NEAR),
        (NEAR, 849, FREE),
        (NEAR, 969, NEAR),
        (NEAR, 970, FULL),
        (FULL, 930, FULL),
        (FULL, 929, NEAR),
        (FULL, 850, NEAR),
        (FULL, 849, FREE),
    ],
)
def test_levels_come_and_go_with_some_room_between(before: int, used: int, after: int) -> None:
    assert next_level(before, used, 1000) == after


def test_the_levels_are_those_of_the_layout() -> None:
    assert (FREE, NEAR, FULL) == (lib.RMQ_MEMORY_FREE, lib.RMQ_MEMORY_NEAR, lib.RMQ_MEMORY_FULL)


def test_private_pages_and_segments_are_counted_and_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path)
    for pid, text in (
        (1, "RssAnon:\t     100 kB\nRssFile:\t 9999 kB\nRssShmem:\t 9999 kB\nVmSwap:\t 28 kB\n"),
        (2, "x\n"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Name:\ta\n{text}")
    (tmp_path / "ringmq-7-plane").write_bytes(b"x" * 65_536)
    with (tmp_path / "ringmq-7-arena0").open("wb") as sparse:
        sparse.truncate(1 << 30)
    (tmp_path / "ringmq-8-plane").write_bytes(b"x" * 65_536)
    written = (tmp_path / "ringmq-7-plane").stat().st_blocks * 512
    assert memory_use([1, 2, 3], "ringmq-7", tmp_path) == MemoryUse(128 * 1024, written)


def test_a_page_of_this_process_counts() -> None:
    before = memory_use([os.getpid()], "no-plane").private
    taken = b"\1" * (64 << 20)
    assert memory_use([os.getpid()], "no-plane").private - before >= 60 << 20
    del taken


FREES_MUCH = """
import os
from ringmq.ipc.memory import NEAR, MemoryReturn, memory_use

def private_mib():
    return memory_use([os.getpid()], "no-plane").private >> 20

before = private_mib()
taken = [bytes(1000 + number % 3000) for number in range(40_000)]
pinned = taken[::1000]
del taken
kept = private_mib() - before
MemoryReturn().tick(NEAR, 0)
print(kept, private_mib() - before)
"""


def test_freed_memory_goes_back_to_the_system() -> None:
    """In a process of its own: in this one earlier tests have left free memory for the new objects."""
    done = subprocess.run([sys.executable, "-c", FREES_MUCH], check=True, capture_output=True, text=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 60, "the C library keeps what was freed"
    assert left < kept / 2


def test_memory_goes_back_only_near_the_limit_and_now_and_then() -> None:
    calls: list[int] = []
    memory = MemoryReturn(lambda: calls.append(now_ms))
    for level, now_ms in ((FREE, 0), (NEAR, 1), (FULL, 2), (FULL, RETURN_EVERY_MS), (FULL, RETURN_EVERY_MS + 1)):
        memory.tick(level, now_ms)
    assert calls == [1, RETURN_EVERY_MS + 1]
