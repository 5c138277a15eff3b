"""The memory of POP outlives processes as a segment, and the machine as an image."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.ipc import memory as memory_of_broker
from ringmq.ipc import segment
from ringmq.native import ffi, lib
from ringmq.pop import image_file
from ringmq.pop.memory import PopMemory, PopMemoryError, remove_lasting
from ringmq.pop.names import RESERVED, Names
from tests.pop.memory_kit import ENTRIES, WINDOWS, content, cut_power, entry, open_memory, order, plane, put, window


@pytest.fixture(autouse=True)
def no_segments(tmp_path: Path) -> Iterator[None]:
    yield
    remove_lasting(tmp_path)


def segments(root: Path) -> list[Path]:
    return list(segment.SHM_DIR.glob(f"{segment.lasting_name(root, 'pop')}-*"))


def test_the_segment_outlives_a_process(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    assert memory.origin == "new"
    put(memory, 5, 1000)
    put(memory, ENTRIES - 1, 2000)
    memory.close(clean=False)
    again = open_memory(tmp_path)
    assert again.origin == "kept"
    assert content(again) == {5: (1000, lib.RMQ_POP_OPEN), ENTRIES - 1: (2000, lib.RMQ_POP_OPEN)}
    again.close(clean=True)
    assert not segments(tmp_path)


def test_a_power_cut_leaves_the_last_snapshot(tmp_path: Path) -> None:
    """No snapshot was written, so the image has nothing."""
    memory = open_memory(tmp_path)
    put(memory, 5, 1000)
    memory.close(clean=False)
    cut_power(tmp_path)
    again = open_memory(tmp_path)
    assert (again.origin, content(again)) == ("image", {})
    again.close(clean=True)


def test_files_are_for_owner_and_group(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    (path,) = segments(tmp_path)
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (path, memory.folder, memory.folder / image_file.IMAGE)]
    assert modes == [0o600, 0o750, 0o640]
    memory.close(clean=True)


def test_memory_is_taken_where_it_is_used(tmp_path: Path) -> None:
    """A new memory of 256 MiB takes less than a MiB, reading a chunk that is not there is not asked for."""
    memory = open_memory(tmp_path, entries=1 << 22)
    (path,) = segments(tmp_path)
    assert path.stat().st_size > 256 << 20
    assert path.stat().st_blocks * 512 < 1 << 20
    assert not lib.rmq_pop_pages_has(memory.pages, entry(memory, 1 << 21))
    assert memory_of_broker.memory_use([], segment.plane_name(tmp_path)).shared == path.stat().st_blocks * 512
    memory.close(clean=True)


def test_another_start_of_the_broker_has_not_compared_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory = open_memory(tmp_path)
    put(memory, 5, 1000)
    first = int(memory.header.store_id)
    memory.close(clean=False)
    again = open_memory(tmp_path, start_id=8)
    assert (again.origin, content(again)) == ("new", {})
    assert again.header.store_id != first
    assert "not compared with the log" in caplog.text
    again.close(clean=True)


@pytest.mark.parametrize("damage", ["magic", "version", "size", "store", "owner"])
def test_a_segment_that_is_none_of_ours_is_not_used(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory(tmp_path)
    put(memory, 5, 1000)
    header = memory.header
    match damage:
        case "magic":
            header.magic = 0
        case "version":
            header.version += 1
        case "store":
            header.store_id += 1
    memory.close(clean=False)
    (path,) = segments(tmp_path)
    if damage == "size":
        os.truncate(path, path.stat().st_size + 4096)
    if damage == "owner":
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    again = open_memory(tmp_path)
    assert (again.origin, content(again)) == ("image", {})
    again.close(clean=True)


def test_an_older_segment_is_not_used(tmp_path: Path) -> None:
    """The store was served elsewhere, and came back: its image has newer snapshots."""
    memory = open_memory(tmp_path)
    put(memory, 5, 1000)
    memory.close(clean=False)
    image = image_file.DiskFile(tmp_path / "pop" / "image")
    head = bytearray(os.pread(image.descriptor, image_file.PAGE, 0))
    change_header(head, snapshot=9)
    image.write(head, 0)
    image.close()
    again = open_memory(tmp_path)
    assert (again.origin, again.header.snapshot, content(again)) == ("image", 9, {})
    again.close(clean=True)


def change_header(page: bytearray, **words: int) -> None:
    """Change words of a header page, and its check."""
    head = ffi.from_buffer("struct rmq_pop_header *", page, require_writable=True)
    for name, value in words.items():
        setattr(head, name, value)
    image_file.seal_header(head)


def test_a_whole_image_has_the_number_of_its_entries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory = open_memory(tmp_path)
    for index in (0, 5, ENTRIES - 1):
        put(memory, index, 7)
    memory.close(clean=False)
    memory = open_memory(tmp_path)  # it finds the chunks
    memory.save_whole()
    memory.close(clean=True)
    again = PopMemory.load(tmp_path)
    assert again is not None and set(content(again)) == {0, 5, ENTRIES - 1}
    again.close(clean=True)
    layout = lib.rmq_pop_layout_of(WINDOWS, ENTRIES)
    os.truncate(tmp_path / "pop" / image_file.IMAGE, int(layout.bytes) - image_file.PAGE)
    assert PopMemory.load(tmp_path) is None
    assert "2 entries are there instead of 3" in caplog.text


@pytest.mark.parametrize("at", range(0, image_file.HEADER_BYTES, 4))
def test_a_damaged_header_of_the_image_is_not_used(tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture) -> None:
    memory = open_memory(tmp_path)
    memory.close(clean=True)
    with (tmp_path / "pop" / "image").open("r+b") as file:
        file.seek(at)
        word = file.read(4)
        file.seek(at)
        file.write(bytes(byte ^ 0x5A for byte in word))
    again = open_memory(tmp_path)
    assert again.origin == ("image" if at > image_file.CHECK_AT else "new")
    assert again.origin == "image" or "may come again" in caplog.text
    again.close(clean=True)


def test_ids_that_a_power_cut_may_have_taken_are_passed_over(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    names = Names(memory.folder)
    assert names.add("G", "T", 0, 0) == 1
    names.close()
    memory.close(clean=False)
    cut_power(tmp_path)
    again = open_memory(tmp_path)
    names = Names(again.folder)
    assert names.add("G", "T", 1, 0) == RESERVED + 1
    names.close()
    again.close(clean=True)


def test_segments_of_an_earlier_store_in_this_place_go(tmp_path: Path) -> None:
    stale = Path(f"{segment.SHM_DIR}/{segment.lasting_name(tmp_path, 'pop')}-{1:016x}")
    stale.write_bytes(b"")
    memory = open_memory(tmp_path)
    assert segments(tmp_path) == [memory.path]
    memory.close(clean=True)


def test_more_entries_and_windows_fit_after_a_stop(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.close(clean=True)
    with (tmp_path / "pop" / "image").open("r+b") as file:  # what a snapshot leaves
        file.seek(int(memory.layout.entries_at) + 64 * 100 + 58)
        file.write(bytes([lib.RMQ_POP_OPEN]))
        file.seek(int(memory.layout.windows_at))
        file.write((77).to_bytes(4, "little"))
        file.seek(int(memory.layout.orders_at) + 512 * 9 + 16)
        file.write((77).to_bytes(4, "little"))
    again = open_memory(tmp_path, entries=2 * ENTRIES, windows=2 * WINDOWS)
    assert (again.layout.entries_max, again.layout.windows_max) == (2 * ENTRIES, 2 * WINDOWS)
    assert (content(again), window(again, 0).id) == ({100: (0, lib.RMQ_POP_OPEN)}, 77)
    assert order(again, 9).window == 77
    assert lib.rmq_pop_pages_changed(again.pages) == 1  # the header, for the next snapshot
    again.close(clean=True)
    fewer = open_memory(tmp_path, entries=10, windows=10)  # entries in use stay
    assert (fewer.layout.entries_max, fewer.layout.windows_max) == (101, 2 * WINDOWS)
    fewer.close(clean=True)


def test_memory_that_a_burst_took_is_given_back(tmp_path: Path) -> None:
    """Entries that are free again stay out of the next segment."""
    memory = open_memory(tmp_path, entries=1 << 16)
    memory.close(clean=True)
    with (tmp_path / "pop" / "image").open("r+b") as file:
        file.seek(int(memory.layout.entries_at))
        file.write(bytes(1 << 10).replace(b"\0", b"\1") and b"\1" * 58 + b"\0" + b"\1" * 5)
    again = open_memory(tmp_path, entries=1 << 16)
    assert not lib.rmq_pop_pages_has(again.pages, entry(again, 40000))
    again.close(clean=True)


def test_a_full_shared_memory_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*place: int) -> None:
        raise OSError(28, "No space left on device", str(segment.SHM_DIR / "x"))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(PopMemoryError, match="No space left on device; make room in /dev/shm"):
        open_memory(tmp_path)
    assert not segments(tmp_path)
    assert plane().watermarks.start_id
