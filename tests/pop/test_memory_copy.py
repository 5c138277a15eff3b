"""Copies of the image beside a worker that writes it: each is the memory of one moment, at any step of a snapshot."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.native import ffi
from ringmq.pop import memory_copy
from ringmq.pop.image_file import IMAGE, JOURNAL, PAGE
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.memory_copy import last_snapshot
from tests.pop.memory_kit import ENTRIES, open_memory, put
from tests.pop.test_snapshots import Taker

BETWEEN = 64 * 16
"""Entries from one that a test changes to the next one: they lie in pages that are far apart."""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_lasting(tmp_path)


def fill(memory: PopMemory, moment: int) -> None:
    for index in range(0, ENTRIES, BETWEEN):
        put(memory, index, moment)


def moments(folder: Path) -> set[int]:
    """The moments that a copy has parts of."""
    copied, header = last_snapshot(folder)
    with copied:
        data = copied[int(header.layout.entries_at) : int(header.layout.bytes)]
    entries = ffi.from_buffer("struct rmq_pop_entry[]", data)
    return {int(entries[index].base_offset) for index in range(0, ENTRIES, BETWEEN)}


STEPS = [
    ("pop-snapshot-begun", 1),
    ("pop-journal-pages", 1),
    ("pop-journal-written", 2),
    ("pop-journal-synced", 2),
    ("pop-image-written", 2),
    ("pop-image-synced", 2),
]
"""Steps of the second snapshot, and the one that a copy has then."""


@pytest.mark.parametrize(("at", "moment"), STEPS)
def test_a_copy_at_a_step_of_the_next_snapshot(root: Path, at: str, moment: int) -> None:
    memory, found = open_memory(root), list[set[int]]()

    def step(name: str) -> None:
        if name == at and memory.header.snapshot > 1:
            found.append(moments(memory.folder))

    taker = Taker(memory, step=step)
    for number in (1, 2):
        fill(memory, number)
        taker.write()
    taker.snapshots.close()
    memory.close(clean=False)
    assert found and all(each == {moment} for each in found)


@pytest.mark.parametrize(("at", "moment"), STEPS)
def test_a_copy_behind_kill_9_at_a_step(root: Path, at: str, moment: int) -> None:
    child = os.fork()
    if not child:
        try:
            memory = open_memory(root)

            def step(name: str) -> None:
                if name == at and memory.header.snapshot > 1:
                    os.kill(os.getpid(), signal.SIGKILL)

            taker = Taker(memory, step=step)
            for number in (1, 2):
                fill(memory, number)
                taker.write()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert moments(root / "pop") == {moment}


def test_pages_that_are_half_in_the_image_come_from_the_journal(root: Path) -> None:
    memory = open_memory(root)

    def step(name: str) -> None:
        if name == "pop-image-written" and memory.header.snapshot > 1:
            with (memory.folder / IMAGE).open("r+b") as image:
                for at in (0, int(memory.layout.entries_at)):  # the header, and the first entries
                    image.seek(at + PAGE // 2)
                    image.write(b"\xff" * (PAGE // 2))
                    image.seek(at)
                    image.write(b"\xff" * 16)
            found.append(moments(memory.folder))

    found = list[set[int]]()
    taker = Taker(memory, step=step)
    for number in (1, 2):
        fill(memory, number)
        taker.write()
    taker.snapshots.close()
    memory.close(clean=False)
    assert found == [{2}]


@pytest.mark.parametrize("snapshots", [1, 2])
def test_a_copy_that_a_later_snapshot_meets_is_made_again(
    root: Path, snapshots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try has the old half of the image and the new one."""
    memory = open_memory(root)
    taker, tries, number = Taker(memory), list[int](), 1
    fill(memory, number)
    taker.write()
    copied = memory_copy._copied

    def slow(descriptor: int, header: Any) -> Any:
        nonlocal number
        found = copied(descriptor, header)
        tries.append(number)
        if len(tries) == 1:
            for _ in range(snapshots):
                number += 1
                fill(memory, number)
                taker.write()
            half = (int(header.layout.entries_at) + int(header.layout.bytes)) // 2
            newer = copied(descriptor, header)
            found[half:] = newer[half:]
            newer.close()
        return found

    monkeypatch.setattr(memory_copy, "_copied", slow)
    assert moments(memory.folder) == {number}
    assert tries == [1, number]
    taker.snapshots.close()
    memory.close(clean=False)


def test_a_copy_that_meets_snapshots_for_ever_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = open_memory(root)
    taker, copied = Taker(memory), memory_copy._copied

    def slow(descriptor: int, header: Any) -> Any:
        found = copied(descriptor, header)
        put(memory, 0, int(memory.header.snapshot))
        taker.write()
        return found

    monkeypatch.setattr(memory_copy, "_copied", slow)
    monkeypatch.setattr(memory_copy, "WAIT_S", 0.05)
    with pytest.raises(OSError, match="gives way to the next one") as raised:
        last_snapshot(memory.folder)
    assert raised.value.errno == errno.EBUSY
    taker.snapshots.close()
    memory.close(clean=False)


def test_a_journal_that_is_cut_while_it_is_read_costs_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader maps no part of it: a mapping of a file that gets shorter ends the process."""
    memory = open_memory(root)
    taker = Taker(memory)
    fill(memory, 1)
    taker.write()
    whole = memory_copy.whole_journal

    def cut(data: memoryview) -> Any:
        with (memory.folder / JOURNAL).open("r+b") as file:
            file.truncate(0)
        return whole(data)

    monkeypatch.setattr(memory_copy, "whole_journal", cut)
    assert moments(memory.folder) == {1}
    taker.snapshots.close()
    memory.close(clean=False)
