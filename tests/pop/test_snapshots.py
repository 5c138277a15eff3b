"""Snapshots of POP's memory: what a power cut leaves, what a failure of the disk does, what a clean stop writes."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.native import lib
from ringmq.pop import image_file, snapshots
from ringmq.pop.image_file import END, HEAD, IMAGE, JOURNAL, PAGE, DiskFile
from ringmq.pop.memory import PopMemory, PopMemoryError, remove_lasting
from ringmq.pop.snapshot_core import State
from ringmq.pop.snapshots import Files, Snapshots
from tests.pop.disk_kit import Disk
from tests.pop.memory_kit import content, cut_power, open_memory, put
from tests.waiting import TIMEOUT_S

NO_NAMES = SimpleNamespace(sync=lambda: None)
LOG = SimpleNamespace(crc=lambda offset, length: 1)
MARKS = SimpleNamespace(min_offset=0, flushed_offset=900, append_offset=1000)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_lasting(tmp_path)


class Taker:
    """The loop of a worker, with a clock that a test moves."""

    def __init__(self, memory: PopMemory, disk: Disk | None = None, **more: Any) -> None:
        self.memory, self.now_ms = memory, 1_000_000
        files = Files(memory, disk.open) if disk else None
        self.snapshots = Snapshots(memory, LOG, MARKS, more.pop("names", NO_NAMES), files=files, **more)

    def turn_until(self, is_done: Callable[[], object]) -> None:
        until = time.monotonic() + TIMEOUT_S
        while not is_done():
            assert time.monotonic() < until, self.snapshots._core.state
            self.snapshots.turn(self.now_ms)
            time.sleep(0.0002)  # span: paces the turns, as the loop of a worker does

    def write(self) -> None:
        """One whole snapshot."""
        self.now_ms += 1000
        before = self.snapshots.written
        self.turn_until(lambda: self.snapshots.written > before or self.snapshots.failure)


def image_pages(folder: Path, pages: int) -> list[bytes]:
    data = (folder / IMAGE).read_bytes().ljust(pages * PAGE, b"\0")
    return [data[at : at + PAGE] for at in range(0, pages * PAGE, PAGE)]


def memory_pages(memory: PopMemory) -> list[bytes]:
    data = bytes(memory._map[: int(memory.layout.bytes)])
    return [data[at : at + PAGE] for at in range(0, len(data), PAGE)]


def test_a_power_cut_leaves_the_last_snapshot(root: Path) -> None:
    memory = open_memory(root)
    taker = Taker(memory)
    put(memory, 5, 1000)
    taker.write()
    put(memory, 6, 2000)
    taker.snapshots.close()
    memory.close(clean=False)
    cut_power(root)
    again = open_memory(root)
    assert (again.origin, content(again), again.was_cut) == ("image", {5: (1000, lib.RMQ_POP_OPEN)}, True)
    place = again.header.places[again.header.snapshot % 2]
    assert (place.flushed_offset, place.end_offset, place.flushed_crc) == (900, 1000, 1)
    again.close(clean=True)


@pytest.mark.parametrize("seed", range(8))
def test_each_power_cut_leaves_one_moment(root: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """The disk keeps any sectors of writes that were not synced. A start finds the last moment whose journal was
    synced, or a later one, and never parts of two."""
    chance = random.Random(seed)
    memory, disk, moments = open_memory(root), Disk(), [[b""]]
    before = {IMAGE: (memory.folder / IMAGE).read_bytes(), JOURNAL: b""}
    moments[0] = image_pages(memory.folder, int(memory.layout.bytes) // PAGE)
    kept: list[tuple[int, int]] = []

    def noted(step: str) -> None:
        if step == "pop-snapshot-begun":
            moments.append(memory_pages(memory))
        if step == "pop-journal-synced":
            kept.append((len(disk.operations), len(moments) - 1))

    taker = Taker(memory, disk, step=noted)
    for _ in range(4):
        for _ in range(chance.randrange(1, 6)):
            put(memory, chance.randrange(8000), chance.randrange(1 << 40))
        taker.write()
    taker.snapshots.close()
    for count in range(len(disk.operations) + 1):
        folder = tmp_path_factory.mktemp("cut")
        for name, data in disk.left_by_cut(count, chance, before).items():
            (folder / name).write_bytes(data)
        image_file.load(folder)
        found = image_pages(folder, len(moments[0]))
        at_least = max((moment for at, moment in kept if at <= count), default=0)
        assert found in moments[at_least : at_least + 2], f"cut behind {count} of {len(disk.operations)} operations"
    memory.close(clean=True)


def test_the_check_of_moments_finds_an_image_without_a_journal(root: Path, tmp_path: Path) -> None:
    """A planted fault: the image is written in place without a journal, so a cut leaves parts of two moments."""
    memory, disk, moments = open_memory(root), Disk(), []
    before = {IMAGE: (memory.folder / IMAGE).read_bytes(), JOURNAL: b""}
    moments.append(image_pages(memory.folder, int(memory.layout.bytes) // PAGE))
    taker = Taker(memory, disk, step=lambda step: moments.append(memory_pages(memory)) if "begun" in step else None)
    for index in range(0, 8000, 100):
        put(memory, index, index + 1)
    taker.write()
    taker.snapshots.close()
    operations = [entry for entry in disk.operations if entry[0] == IMAGE and entry[1] is not None]
    disk.operations = operations
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / IMAGE).write_bytes(disk.left_by_cut(len(operations), random.Random(1), before)[IMAGE])
    assert image_pages(tmp_path / "cut", len(moments[0])) not in moments
    memory.close(clean=True)


def small_journal(root: Path) -> tuple[PopMemory, bytes, bytes]:
    """A memory whose last journal has two pages, that journal, and the image before it."""
    memory = open_memory(root)
    taker = Taker(memory)
    put(memory, 5, 1000)
    taker.write()
    before = (memory.folder / IMAGE).read_bytes()
    put(memory, 6, 2000)
    taker.write()
    taker.snapshots.close()
    return memory, (memory.folder / JOURNAL).read_bytes()[: HEAD.size + 2 * (PAGE + 4) + END.size], before


@pytest.mark.parametrize("tail", [b"", b"\0" * 40, b"\xff" * 40])
def test_a_journal_that_is_torn_at_any_byte_is_not_used(root: Path, tail: bytes) -> None:
    memory, journal, _ = small_journal(root)
    path = memory.folder / JOURNAL
    path.write_bytes(journal)
    assert image_file.read_journal(path) is not None
    ends = {*range(HEAD.size + 8), *range(0, len(journal), 97), *range(len(journal) - 80, len(journal))}
    for end in sorted(ends):
        torn = journal[:end] + tail
        if torn[: len(journal)] != journal:
            path.write_bytes(torn)
            assert image_file.read_journal(path) is None, end
    memory.close(clean=True)


def test_a_journal_with_a_changed_byte_is_not_used(root: Path) -> None:
    memory, journal, _ = small_journal(root)
    path = memory.folder / JOURNAL
    for at in {*range(HEAD.size), *range(HEAD.size, len(journal), 131), *range(len(journal) - 40, len(journal))}:
        changed = bytearray(journal)
        changed[at] ^= 0x10
        path.write_bytes(changed)
        assert image_file.read_journal(path) is None, at
    memory.close(clean=True)


def test_a_whole_journal_mends_an_image_that_is_torn_at_any_byte(root: Path) -> None:
    """Elsewhere than in its changed pages, a torn image is one of these or a whole one."""
    memory, journal, before = small_journal(root)
    after = image_pages(memory.folder, int(memory.layout.bytes) // PAGE)
    after_bytes = b"".join(after)
    changed = [page for page in range(len(before) // PAGE) if before[page * PAGE : (page + 1) * PAGE] != after[page]]
    assert changed
    for at in sorted({page * PAGE + at for page in changed for at in (*range(0, PAGE, 511), PAGE)}):
        (memory.folder / IMAGE).write_bytes(after_bytes[:at] + before[at:])
        (memory.folder / JOURNAL).write_bytes(journal)
        assert image_file.load(memory.folder) is not None
        assert image_pages(memory.folder, len(after)) == after, at
    memory.close(clean=True)


def test_a_journal_of_another_store_or_of_an_older_snapshot_is_not_used(root: Path) -> None:
    memory, journal, _ = small_journal(root)
    older = Taker(memory)
    put(memory, 9, 3000)
    older.write()
    older.snapshots.close()
    newest = (memory.folder / IMAGE).read_bytes()
    (memory.folder / JOURNAL).write_bytes(journal)
    image_file.load(memory.folder)
    assert (memory.folder / IMAGE).read_bytes() == newest, "an older journal"
    memory.discard()
    other = open_memory(root)
    made = (other.folder / IMAGE).read_bytes()
    (other.folder / JOURNAL).write_bytes(journal)
    image_file.load(other.folder)
    assert (other.folder / IMAGE).read_bytes() == made, "another store"
    other.close(clean=True)


FAILURES = ["write journal", "sync journal", "write image", "sync image"]
EIO, ENOSPC = 5, 28


@pytest.mark.parametrize(
    ("fails_at", "number"),
    [*((fails_at, EIO) for fails_at in FAILURES), ("sync journal", ENOSPC), ("sync image", ENOSPC)],
)
def test_a_failure_of_the_disk_is_never_tried_again(root: Path, fails_at: str, number: int) -> None:
    memory, disk = open_memory(root), Disk()
    taker = Taker(memory, disk)
    disk.fails_at, disk.errno = fails_at, number
    put(memory, 5, 1000)
    taker.write()
    failure = taker.snapshots.failure
    assert failure is not None and "cannot be saved" in failure and fails_at.split()[1] in failure
    tried = len(disk.tried)
    disk.fails_at = None
    for _ in range(3):
        put(memory, 6, 2000)
        taker.now_ms += 1000
        taker.snapshots.turn(taker.now_ms)
    assert len(disk.tried) == tried
    assert not taker.snapshots.finish(100)
    taker.snapshots.close()
    memory.close(clean=False)
    again = open_memory(root)  # a replacement of the worker
    other = Taker(again)
    assert "earlier write failed" in str(other.snapshots.failure)
    other.snapshots.close()
    again.save_whole()  # a start of the broker
    assert Taker(again).snapshots.failure is None
    again.close(clean=True)
    last = open_memory(root)
    assert set(content(last)) == {5, 6}
    last.close(clean=True)


@pytest.mark.parametrize("fails_at", ["write journal", "reserve image", "write image"])
def test_a_full_disk_is_waited_for(root: Path, fails_at: str) -> None:
    """The snapshots fail, and none is lost. The one behind them has what came meanwhile."""
    memory, disk = open_memory(root), Disk()
    taker = Taker(memory, disk)
    snapshots = taker.snapshots
    disk.fails_at = fails_at
    ends = State.RESTS, State.WAITS
    for tries in range(1, 4):
        put(memory, tries, 1000 + tries)
        taker.now_ms += 1000
        taker.turn_until(lambda: disk.tried.count(fails_at) == tries and snapshots._core.state in ends)  # noqa: B023
        assert (snapshots.failure, snapshots.written) == (None, 0)
    assert fails_at.split()[1] in snapshots.no_room and "No space left" in snapshots.no_room
    disk.fails_at = None
    taker.write()
    assert (snapshots.no_room, snapshots.given_up) == ("", 0 if fails_at == "write image" else 3)
    if not snapshots.is_idle:
        taker.write()
    snapshots.close()
    memory.close(clean=False)
    cut_power(root)
    again = open_memory(root)
    assert set(content(again)) == {1, 2, 3}
    again.close(clean=True)


@pytest.mark.parametrize("fails_at", ["write journal", "reserve image"])
def test_a_snapshot_without_room_keeps_none(root: Path, fails_at: str) -> None:
    """Room that the journal has is missing to the log."""
    memory, disk = open_memory(root), Disk()
    taker = Taker(memory, disk)
    put(memory, 5, 1000)
    taker.write()
    disk.fails_at = fails_at
    put(memory, 6, 2000)
    taker.now_ms += 1000
    taker.turn_until(lambda: taker.snapshots.no_room)
    assert (memory.folder / JOURNAL).stat().st_size == 0
    taker.snapshots.close()
    memory.close(clean=False)
    cut_power(root)
    again = open_memory(root)
    assert set(content(again)) == {5}
    again.close(clean=True)


def test_a_journal_that_has_grown_is_cut(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large snapshot was given up. The small one behind it stays whole."""
    monkeypatch.setattr(image_file, "JOURNAL_KEPT_BYTES", 8 * PAGE)
    memory = open_memory(root)
    taker = Taker(memory)
    os.truncate(memory.folder / JOURNAL, 100 * PAGE)
    put(memory, 5, 1000)
    taker.write()
    assert (memory.folder / JOURNAL).stat().st_size == 8 * PAGE
    assert image_file.read_journal(memory.folder / JOURNAL) is not None
    taker.snapshots.close()
    memory.close(clean=True)


@pytest.mark.parametrize("number", [EIO, ENOSPC])
@pytest.mark.parametrize("fails_at", FAILURES)
def test_a_power_cut_after_a_failure_leaves_one_moment(root: Path, fails_at: str, number: int) -> None:
    memory, disk = open_memory(root), Disk()
    taker = Taker(memory, disk)
    put(memory, 5, 1000)
    taker.write()
    disk.fails_at, disk.errno = fails_at, number
    put(memory, 6, 2000)
    put(memory, 7000, 3000)
    taker.now_ms += 1000
    taker.turn_until(lambda: taker.snapshots.failure or taker.snapshots.no_room)
    taker.snapshots.close()
    memory.close(clean=False)
    cut_power(root)
    again = open_memory(root)
    assert set(content(again)) in ({5}, {5, 6, 7000})
    again.close(clean=True)


def test_a_measurement_that_fails_is_a_failure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(offset: int, length: int) -> int:
        raise OSError(5, "Input/output error", "00000000000000000000")

    monkeypatch.setattr(LOG, "crc", broken)
    memory = open_memory(root)
    taker = Taker(memory)
    put(memory, 5, 1000)
    taker.write()
    assert "00000000000000000000: Input/output error" in str(taker.snapshots.failure)
    taker.snapshots.close()
    memory.close(clean=True)


def test_files_that_cannot_be_opened_are_an_error(root: Path) -> None:
    memory = open_memory(root)
    (memory.folder / JOURNAL).symlink_to("/etc/hostname")
    with pytest.raises(PopMemoryError, match="journal"):
        Taker(memory)
    memory.close(clean=True)


def test_names_are_on_disk_before_the_snapshot(root: Path) -> None:
    memory, order = open_memory(root), []
    names = SimpleNamespace(sync=lambda: order.append("names"))
    taker = Taker(memory, names=names, step=order.append)
    put(memory, 5, 1000)
    taker.write()
    steps = [step for step in order if step != "pop-journal-pages"]
    assert steps == [
        "pop-place-stored", "pop-copies-from-stored", "pop-used-entries-stored", "pop-snapshot-begun", "names",
        "pop-names-synced", "pop-journal-written", "pop-journal-synced", "pop-image-written", "pop-image-synced",
    ]  # fmt: skip
    taker.snapshots.close()
    memory.close(clean=True)


def test_nothing_is_written_while_nothing_changes(root: Path) -> None:
    memory, disk = open_memory(root), Disk()
    taker = Taker(memory, disk)
    for _ in range(5):
        taker.now_ms += 1000
        taker.snapshots.turn(taker.now_ms)
    assert (disk.tried, taker.snapshots.sleep_ms(taker.now_ms)) == ([], 1000)
    put(memory, 5, 1000)
    assert taker.snapshots.sleep_ms(taker.now_ms) == 0
    taker.write()
    assert taker.snapshots.is_idle
    put(memory, 5, 1001)
    assert 900 < taker.snapshots.sleep_ms(taker.now_ms + 5) <= 1000
    taker.snapshots.close()
    memory.close(clean=True)


def test_a_clean_stop_leaves_no_segment(root: Path) -> None:
    memory = open_memory(root)
    taker = Taker(memory, copies_from=lambda: 777)
    put(memory, 5, 1000)
    taker.snapshots.turn(taker.now_ms)  # one is under way
    put(memory, 6, 2000)
    assert taker.snapshots.finish(20_000)
    taker.snapshots.close()
    path = memory.path
    memory.close(clean=True)
    assert not path.exists()
    again = PopMemory.load(root)
    assert again is not None
    assert (again.header.clean, again.was_cut, again.header.copies_from) == (1, False, 777)
    assert set(content(again)) == {5, 6}
    again.close(clean=False)
    working = open_memory(root)
    assert working.header.clean == 0 and lib.rmq_pop_pages_is_changed(working.pages)
    working.close(clean=True)


def test_a_stop_on_a_full_disk_tries_each_second(root: Path) -> None:
    """The segment stays, and does not say that the image has all of it."""
    memory, disk = open_memory(root), Disk()
    taker = Taker(memory, disk)
    disk.fails_at = "write journal"
    put(memory, 5, 1000)
    assert not taker.snapshots.finish(1500)
    assert 1 <= disk.tried.count("write journal") <= 2
    assert (memory.header.clean, "No space left" in taker.snapshots.no_room) == (0, True)
    disk.fails_at = None
    assert taker.snapshots.finish(20_000)
    assert memory.header.clean == 1
    taker.snapshots.close()
    memory.close(clean=True)


class SlowFile(DiskFile):
    """A disk that does not answer until it may."""

    may = threading.Event()

    def write(self, data: Any, at: int) -> None:
        assert self.may.wait(TIMEOUT_S)
        super().write(data, at)


class SlowBrokenFile(SlowFile):
    """A disk that fails late."""

    def write(self, data: Any, at: int) -> None:
        assert self.may.wait(TIMEOUT_S)
        raise OSError(EIO, "Input/output error", str(self.path))


def give_up_one(root: Path, monkeypatch: pytest.MonkeyPatch, open_file: Callable[[Path], DiskFile]) -> Taker:
    """A snapshot that was given up because too many copies wait, while one write of it is under way. `SlowFile.may`
    lets the write go on."""
    monkeypatch.setattr(snapshots, "KEPT_PAGES_MAX", 100)
    monkeypatch.setattr(snapshots, "QUEUED_MAX", 1)
    monkeypatch.setattr(snapshots, "TAKEN_A_TURN", 8)
    SlowFile.may.clear()
    memory = open_memory(root, entries=64 * 400)
    files = Files(memory, open_file)
    taker = Taker(memory)
    taker.snapshots.close()
    taker.snapshots = Snapshots(memory, LOG, MARKS, NO_NAMES, files=files)
    for page in range(300):
        put(memory, 64 * page, page)
    taker.turn_until(lambda: len(taker.snapshots._tasks) == 1 and taker.snapshots._writer is not None)
    for page in range(300):
        put(memory, 64 * page, page + 1000)
        taker.snapshots.turn(taker.now_ms)
    assert taker.snapshots.given_up == 1
    return taker


def test_a_late_failure_of_a_snapshot_that_was_given_up_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have forgotten pages of the journal, so nothing is written any more."""
    taker = give_up_one(root, monkeypatch, SlowBrokenFile)
    assert taker.snapshots._core.state is State.RESTS
    SlowFile.may.set()
    taker.turn_until(lambda: taker.snapshots.failure)
    assert "journal: Input/output error" in str(taker.snapshots.failure)
    taker.snapshots.close()
    taker.memory.close(clean=True)


def test_a_disk_that_does_not_answer_stops_no_turn(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot is given up when too many copies wait. A later one has its pages."""
    began = time.monotonic()
    taker = give_up_one(root, monkeypatch, SlowFile)
    assert time.monotonic() - began < TIMEOUT_S / 2, "a turn that waits for the disk would take all of it"
    memory = taker.memory
    SlowFile.may.set()
    taker.write()
    taker.snapshots.close()
    memory.close(clean=False)
    cut_power(root)
    again = open_memory(root, entries=64 * 400)
    assert {base for base, _ in content(again).values()} == set(range(1000, 1300))
    again.close(clean=True)
