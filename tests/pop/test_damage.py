"""`ringmq store verify` finds damage of POP's files, and changes nothing. The next start mends it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.native import ffi, lib
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.names import FILE, Names
from ringmq.pop.pop_damage import find_pop_damage
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from tests.pop.memory_kit import open_memory
from tests.pop.test_snapshots import Taker


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_lasting(tmp_path)


def damage(root: Path) -> list[tuple[str, str]]:
    """The faults. The look leaves all files as they are."""
    files = {path: path.read_bytes() for path in (root / "pop").iterdir()} if (root / "pop").exists() else {}
    found = find_pop_damage(MessageStore(StoreConfig(root)))
    assert {path: path.read_bytes() for path in files} == files
    return found


@pytest.fixture
def stopped(root: Path) -> Path:
    """A store with a window and an open message, stopped cleanly. Its offset in the image is `entries_at`."""
    memory = open_memory(root)
    names = Names(memory.folder)
    windows = lib.rmq_pop_windows_open(memory.pages, memory.layout, 0, 0, ffi.new("uint64_t *"))
    taker = Taker(memory, used_entries=lambda: int(lib.rmq_pop_counts_of(windows).entries))
    number, place = names.add("G", "T", 0, 0), ffi.new("uint32_t *")
    assert lib.rmq_pop_window_make(windows, number, 0, 0, 5, place) == 0
    give = ffi.new("struct rmq_pop_give *", {
        "pop_time_ms": 1, "mono_ms": 0, "start_offset": 5, "next_offset": 6, "invisible_ms": 60_000,
    })  # fmt: skip
    assert lib.rmq_pop_window_give(windows, place[0], give, [5], 1) == 0
    assert taker.snapshots.finish(20_000)
    taker.snapshots.close()
    lib.rmq_pop_windows_close(windows)
    names.close()
    memory.close(clean=True)
    return root


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_store_without_pop_has_no_damage(root: Path) -> None:
    assert damage(root) == []


def test_a_clean_stop_leaves_no_damage(stopped: Path) -> None:
    assert damage(stopped) == []
    flip(stopped / "pop" / "journal", 100)
    assert damage(stopped) == [], "a journal that is not whole is no damage"


def test_a_damaged_entry(stopped: Path) -> None:
    (stopped / "pop" / "journal").unlink()
    flip(stopped / "pop" / "image", int(lib.rmq_pop_layout_of(4096, 8192).entries_at))
    assert damage(stopped) == [("pop/image", "1 windows and entries are damaged")]


@pytest.mark.parametrize("damage_kind", ["zeros", "cut"])
def test_a_lost_page_of_entries(stopped: Path, damage_kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing in it is damaged. Without the count in the header its messages would be done."""
    (stopped / "pop" / "journal").unlink()
    at = int(lib.rmq_pop_layout_of(4096, 8192).entries_at)
    if damage_kind == "cut":
        os.truncate(stopped / "pop" / "image", at)
    else:
        data = (stopped / "pop" / "image").read_bytes()
        (stopped / "pop" / "image").write_bytes(data[:at].ljust(len(data), b"\0"))
    assert damage(stopped) == [("pop/image", "0 entries are there instead of 1")]
    assert PopMemory.load(stopped) is None
    assert "0 entries are there instead of 1" in caplog.text


def test_a_damaged_window(stopped: Path) -> None:
    (stopped / "pop" / "journal").unlink()
    flip(stopped / "pop" / "image", int(lib.rmq_pop_layout_of(4096, 8192).windows_at) + 4)
    assert damage(stopped) == [("pop/image", "1 windows and entries are damaged")]


def test_a_damaged_header(stopped: Path) -> None:
    (stopped / "pop" / "journal").unlink()
    flip(stopped / "pop" / "image", 24)
    assert damage(stopped) == [("pop/image", "its header is damaged")]


def test_pages_of_a_whole_journal_count(stopped: Path) -> None:
    """A power cut came while the image was written: the next start writes it again."""
    image = stopped / "pop" / "image"
    for at in (24, int(lib.rmq_pop_layout_of(4096, 8192).entries_at)):
        flip(image, at)
    assert damage(stopped) == []


def test_damaged_and_missing_names(stopped: Path) -> None:
    lines = (stopped / "pop" / FILE).read_bytes().splitlines(keepends=True)
    flip(stopped / "pop" / FILE, len(b"".join(lines)) - 3)
    assert damage(stopped) == [("pop/names", "1 of 2 lines are damaged"), ("pop/image", "1 windows have no name")]
    (stopped / "pop" / FILE).unlink()
    assert damage(stopped) == [("pop/image", "1 windows have no name")]
