"""The numbers of the snapshots that last had each page: over deaths, starts of the worker, and full disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.pop import image_file, page_changes
from ringmq.pop.image_file import IMAGE, PAGE, DiskFile, Header, read_header
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.page_changes import PageChanges, changed_since, open_changes, read_changes
from tests.pop.memory_kit import entry, open_memory, put
from tests.pop.test_memory_deaths import killed_at
from tests.pop.test_snapshots import Taker


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_lasting(tmp_path)


def pages_of(memory: PopMemory) -> int:
    return int(memory.layout.bytes) // PAGE


def page_of(memory: PopMemory, index: int) -> int:
    """The page of an entry."""
    return (int(memory.layout.entries_at) + index * 64) // PAGE


def header_of(root: Path) -> Header:
    """The header of the image."""
    return read_header((root / "pop" / IMAGE).read_bytes()[:PAGE], has_check=True)


class Worker:
    """A worker with snapshots, whose pages are noted."""

    def __init__(self, root: Path, step: page_changes.Step = page_changes.passed) -> None:
        self.memory = open_memory(root)
        found = open_changes(self.memory.folder, pages_of(self.memory))
        assert found is not None
        found._step = step
        self.taker = Taker(self.memory, changes=found)

    def put(self, index: int) -> None:
        put(self.memory, index, index)

    def write(self) -> int:
        """A snapshot. Returns its number."""
        self.taker.write()
        return int(self.memory.header.snapshot)

    def end(self, *, clean: bool = False) -> None:
        self.taker.snapshots.close()
        self.memory.close(clean=clean)


def test_pages_have_the_number_of_their_last_snapshot(root: Path) -> None:
    worker = Worker(root)
    worker.put(0)
    worker.put(1000)
    first = worker.write()
    worker.put(1001)
    second = worker.write()
    folder, pages = worker.memory.folder, [page_of(worker.memory, 0), page_of(worker.memory, 1000)]
    assert changed_since(folder, first - 1) == [0, *pages]
    assert changed_since(folder, first) == [0, pages[1]]
    assert changed_since(folder, second) == []
    known = read_changes(folder)
    assert known is not None and (known.begun, known.done) == (second, second)
    worker.end()


def test_a_replacement_goes_on_with_the_numbers(root: Path) -> None:
    worker = Worker(root)
    worker.put(0)
    first, run = worker.write(), read_changes(worker.memory.folder)
    worker.put(1000)
    worker.end()
    again = Worker(root)
    second, now = again.write(), read_changes(again.memory.folder)
    assert run is not None and now is not None and run.run == now.run
    assert changed_since(again.memory.folder, first) == [0, page_of(again.memory, 1000)]
    assert second == first + 1
    again.end()


def test_an_image_that_was_written_anew_begins_a_run(root: Path) -> None:
    worker = Worker(root)
    worker.put(0)
    worker.write()
    before = read_changes(worker.memory.folder)
    worker.end()
    memory = open_memory(root)
    memory.save_whole()
    memory.close(clean=False)
    again = Worker(root)
    now = read_changes(again.memory.folder)
    assert before is not None and now is not None and before.run != now.run
    assert now.done == now.begun == again.memory.header.snapshot
    again.end()


def test_another_boot_begins_a_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(root)
    worker.put(0)
    worker.write()
    before = read_changes(worker.memory.folder)
    worker.end(clean=False)
    monkeypatch.setattr(page_changes, "_boot", lambda: b"b" * 36)
    assert read_changes(root / "pop") is None
    again = Worker(root)
    now = read_changes(again.memory.folder)
    assert before is not None and now is not None and before.run != now.run
    again.end()


@pytest.mark.parametrize("point", ["pop-changes-noted", "pop-changes-begun", "pop-changes-done"])
def test_no_death_hides_a_page(root: Path, point: str) -> None:
    """A slave that has the snapshot before gets the page, or all pages of another run."""
    worker = Worker(root)
    worker.put(0)
    first, run = worker.write(), read_changes(worker.memory.folder)
    worker.end()

    def work(step: page_changes.Step) -> None:
        worker = Worker(root, step)
        worker.put(1000)
        worker.write()

    assert killed_at(point, 1, work)
    again = Worker(root)
    now = read_changes(again.memory.folder)
    assert run is not None and now is not None and now.begun == now.done == again.memory.header.snapshot
    if now.run == run.run:
        assert page_of(again.memory, 1000) in changed_since(again.memory.folder, first)
    assert entry(again.memory, 1000).base_offset == 1000
    again.end()


def test_a_start_that_dies_in_a_journal_leaves_an_image_of_no_moment(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has died before it noted the pages of the journal."""
    worker = Worker(root)
    worker.put(0)
    first = worker.write()
    worker.end()

    def work(step: page_changes.Step) -> None:
        worker = Worker(root)
        worker.taker.snapshots._step = step
        worker.put(1000)
        worker.write()

    assert killed_at("pop-journal-synced", 1, work)
    known = read_changes(root / "pop")
    assert known is not None and known.is_of(header_of(root)) and known.done == first

    def die(image: DiskFile, *arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "apply", die)
        with pytest.raises(OSError, match="Input/output error"):
            image_file.load(root / "pop")
    assert not known.is_of(header_of(root))
    again = Worker(root)
    now = read_changes(root / "pop")
    assert now is not None and now.is_of(header_of(root)) and entry(again.memory, 1000).base_offset == 1000
    again.end()


def test_a_full_disk_ends_the_file_until_it_has_room(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slaves get all pages of the new run, and what changes from then on."""
    worker = Worker(root)
    worker.put(0)
    worker.write()
    before = read_changes(worker.memory.folder)
    worker.put(1)
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == page_changes.FILE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for index in (2, 3):
            worker.put(index)
            worker.write()
            assert read_changes(worker.memory.folder) is None
    assert worker.taker.snapshots.failure is None
    assert caplog.text.count("No space left on device; slaves keep the open messages that they have until") == 1
    worker.put(4)
    fourth, now = worker.write(), read_changes(worker.memory.folder)
    assert before is not None and now is not None and now.run != before.run
    assert now.begun == now.done == fourth and now.is_of(header_of(root))
    worker.put(1000)
    worker.write()
    assert changed_since(worker.memory.folder, fourth) == [0, page_of(worker.memory, 1000)]
    worker.end()


def test_a_head_that_is_cut_counts_as_none(root: Path) -> None:
    worker = Worker(root)
    worker.end()
    path = root / "pop" / page_changes.FILE
    path.write_bytes(path.read_bytes()[:20])
    assert read_changes(root / "pop") is None
    PageChanges(root / "pop", 4, page_changes.Header(1, 1, 1, 1)).close()
