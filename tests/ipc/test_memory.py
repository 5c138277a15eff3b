"""The bound of the broker's memory: the counted pages, and its levels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.ipc import segment
from ringmq.ipc.memory import (
    EXACT_EVERY_MS,
    FREE,
    FULL,
    NEAR,
    RETURN_EVERY_MS,
    MemoryReturn,
    MemorySampler,
    MemoryUse,
    memory_use,
    next_level,
    private_bytes,
)
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


def make_process(proc: Path, pid: int, resident_kib: int, swapped_kib: int, sharers: int = 0) -> None:
    """Files of /proc for a process all of whose pages have so many sharers. 0: smaps_rollup cannot be read."""
    place = proc / str(pid)
    place.mkdir(exist_ok=True)
    text = f"RssAnon:\t     {resident_kib} kB\nRssFile:\t 9999 kB\nRssShmem:\t 9999 kB\nVmSwap:\t {swapped_kib} kB\n"
    (place / "status").write_text(f"Name:\ta\n{text}")
    if sharers:
        parts = f"Pss:   9999 kB\nPss_Anon: {resident_kib // sharers} kB\nSwap:  9999 kB\n"
        rollup = f"5600-7ff0 ---p 00000000 00:00 0  [rollup]\n{parts}SwapPss: {swapped_kib // sharers} kB\n"
        (place / "smaps_rollup").write_text(rollup)


def test_private_pages_and_segments_are_counted_and_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path)
    make_process(tmp_path, 1, resident_kib=100, swapped_kib=28)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "status").write_text("Name:\ta\nx\n")
    (tmp_path / "ringmq-7-plane").write_bytes(b"x" * 65_536)
    with (tmp_path / "ringmq-7-arena0").open("wb") as sparse:
        sparse.truncate(1 << 30)
    (tmp_path / "ringmq-8-plane").write_bytes(b"x" * 65_536)
    written = (tmp_path / "ringmq-7-plane").stat().st_blocks * 512
    assert memory_use([1, 2, 3], "ringmq-7", tmp_path) == MemoryUse(128 * 1024, written)


def test_a_segment_that_outlives_the_plane_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POP's memory has a name of its own. That of another store does not count."""
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path)
    lasting = tmp_path / "ringmq-pop-803-7-00000000000000aa"
    lasting.write_bytes(b"x" * 65_536)
    for other in ("ringmq-pop-803-70-00000000000000aa", "ringmq-pop-803-8-00000000000000aa"):
        (tmp_path / other).write_bytes(b"x" * 65_536)
    for name in ("ringmq-803-7-0123456789abcdef01234567", "ringmq-803-7"):
        assert MemorySampler(name, tmp_path).sample([], 0).shared == lasting.stat().st_blocks * 512 > 0


def test_a_page_of_several_processes_counts_once(tmp_path: Path) -> None:
    for pid in (1, 2, 3, 4):
        make_process(tmp_path, pid, resident_kib=400, swapped_kib=80, sharers=4)
    make_process(tmp_path, 5, resident_kib=7, swapped_kib=0)
    assert private_bytes(range(1, 7), tmp_path) == 487 * 1024


class Costly:
    """A clock that moves by the cost of an exact sample each time it is read."""

    def __init__(self, cost_ms: int) -> None:
        self.reads = 0
        self._cost_ns = cost_ms * 1_000_000

    def __call__(self) -> int:
        self.reads += 1
        return self.reads * self._cost_ns


def test_samples_between_two_exact_ones_subtract_what_is_counted_again(tmp_path: Path) -> None:
    sampler = MemorySampler("no-plane", tmp_path, Costly(0))
    for pid in (1, 2):
        make_process(tmp_path, pid, resident_kib=100, swapped_kib=0, sharers=2)
    assert sampler.sample([1, 2], 0).total == 100 << 10
    make_process(tmp_path, 2, resident_kib=130, swapped_kib=0, sharers=1)
    assert sampler.sample([1, 2], EXACT_EVERY_MS - 1).total == 130 << 10, "as if it still shared all its old pages"
    assert sampler.sample([1, 2], EXACT_EVERY_MS).total == 180 << 10


@pytest.mark.parametrize(("others", "cost_ms", "exact"), [
    ([2], 0, [5000, 10_000]),
    ([2], 60, [6000]),
    ([2, 3], 0, [500, 5500]),
    ([2, 3], 60, [1000, 7000]),
    ([], 60, [1000, 7000]),
])  # fmt: skip
def test_exact_samples_take_a_bounded_share_of_a_cpu(
    others: list[int], cost_ms: int, exact: list[int], tmp_path: Path
) -> None:
    clock = Costly(cost_ms)
    sampler = MemorySampler("no-plane", tmp_path, clock)
    sampler.sample([1, 2], 0)
    found = []
    for now_ms in range(500, 10_500, 500):
        before = clock.reads
        sampler.sample([1, *others], now_ms)
        found += [now_ms] if clock.reads > before else []
    assert found == exact


IMAGE_BYTES = 50 << 20
FORKS_AN_IMAGE = f"""
import os
from ringmq.ipc.memory import MemorySampler, private_bytes

alone = private_bytes([os.getpid()])
image = b"\\1" * {IMAGE_BYTES}
end_read, end_write = os.pipe()
pids = [os.getpid()]
for number in range(7):
    pid = os.fork()
    if pid == 0:
        os.close(end_write)
        os.read(end_read, 1)
        os._exit(0)
    pids.append(pid)
print(private_bytes(pids) - alone, MemorySampler("no-plane").sample(pids, 0).private - alone)
"""


def test_an_image_that_is_forked_seven_times_counts_once() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS_AN_IMAGE], check=True, capture_output=True, text=True)
    for grown in map(int, done.stdout.split()):
        assert IMAGE_BYTES <= grown < 1.5 * IMAGE_BYTES


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
