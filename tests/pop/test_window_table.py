"""`ringmq store inspect` shows the windows of POP, of a live broker and of a stopped one, and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ringmq.cli.main import main
from ringmq.native import ffi, lib
from ringmq.pop.memory import PopMemory, remove_lasting
from ringmq.pop.names import Names
from ringmq.pop.window_table import windows_of
from ringmq.store.config import StoreConfig
from ringmq.store.message_store import MessageStore
from tests.pop.memory_kit import cut_power, open_memory
from tests.pop.test_snapshots import Taker

COLUMNS = ("group", "topic", "queue_id", "next_offset", "first_open", "open")
FEW, MANY = ("G", "T", 0, 6, 5, 1), ("H", "U", 3, 209, 200, 9)
DONE = ("G", "U", 3, 7, 7, 0)


class Windows:
    """Three windows, with 1, 9 and no open messages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.memory: PopMemory = open_memory(root)
        self._names = Names(self.memory.folder)
        self._taker = Taker(
            self.memory, used_entries=lambda: int(lib.rmq_pop_counts_of(self._native).entries)
        )  # fmt: skip
        self._native = lib.rmq_pop_windows_open(self.memory.pages, self.memory.layout, 0, 0, ffi.new("uint64_t *"))
        for group, topic, queue_id, _, first, count in (FEW, MANY, DONE):
            number, place = self._names.add(group, topic, queue_id, 0), ffi.new("uint32_t *")
            assert lib.rmq_pop_window_make(self._native, number, queue_id, 0, first, place) == 0
            self._give(place[0], first, count)

    def _give(self, place: int, first: int, count: int) -> None:
        give = ffi.new("struct rmq_pop_give *", {
            "pop_time_ms": 1, "mono_ms": 0, "start_offset": first, "next_offset": first + count,
            "invisible_ms": 60_000,
        })  # fmt: skip
        if count:
            assert lib.rmq_pop_window_give(self._native, place, give, list(range(first, first + count)), count) == 0

    def stop(self, *, clean: bool) -> None:
        lib.rmq_pop_windows_close(self._native)
        if clean:
            assert self._taker.snapshots.finish(20_000)
        self._taker.snapshots.close()
        self._names.close()
        self.memory.close(clean=clean)


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(65_536))
    yield Windows(tmp_path)
    remove_lasting(tmp_path)


def table(root: Path, topic: str | None = None, limit: int = 20) -> tuple[list[tuple[Any, ...]], int]:
    found = windows_of(MessageStore(StoreConfig(root)), topic, limit)
    assert found is not None and found.name == "pop_windows"
    return [tuple(row[column] for column in COLUMNS) for row in found.rows], found.total


def test_the_windows_of_a_live_broker(windows: Windows) -> None:
    """They lie in the segment: the image has none of them yet."""
    assert table(windows.root) == ([MANY, FEW, DONE], 3)
    assert windows.memory.path.exists()
    windows.stop(clean=False)
    assert table(windows.root) == ([MANY, FEW, DONE], 3), "a kill leaves the segment"
    cut_power(windows.root)
    assert table(windows.root) == ([], 0), "a power cut takes what no snapshot has"


def test_the_windows_of_a_stopped_broker(windows: Windows) -> None:
    windows.stop(clean=True)
    files = {path: path.read_bytes() for path in (windows.root / "pop").iterdir()}
    assert table(windows.root) == ([MANY, FEW, DONE], 3)
    assert {path: path.read_bytes() for path in (windows.root / "pop").iterdir()} == files


def test_the_table_is_bounded_and_of_one_topic(windows: Windows) -> None:
    windows.stop(clean=True)
    assert table(windows.root, limit=1) == ([MANY], 3)
    assert table(windows.root, topic="U") == ([MANY, DONE], 2)


def test_a_store_without_pop_and_a_damaged_image_have_no_table(windows: Windows, tmp_path: Path) -> None:
    windows.stop(clean=True)
    image = windows.root / "pop" / "image"
    data = bytearray(image.read_bytes())
    data[24] ^= 1
    image.write_bytes(data)
    (windows.root / "pop" / "journal").unlink()
    store = MessageStore(StoreConfig(windows.root))
    assert windows_of(store, None, 20) is None, "`ringmq store verify` names the damage"
    image.unlink()
    assert windows_of(store, None, 20) is None


def test_an_image_without_some_entries_has_no_table(windows: Windows) -> None:
    """The next start does not use it: groups go on at their consumer offsets."""
    entries_at = int(windows.memory.layout.entries_at)
    windows.stop(clean=True)
    (windows.root / "pop" / "journal").unlink()
    os.truncate(windows.root / "pop" / "image", entries_at)
    assert windows_of(MessageStore(StoreConfig(windows.root)), None, 20) is None


def test_the_command_shows_them(windows: Windows) -> None:
    windows.stop(clean=True)
    arguments = ["store", "inspect", str(windows.root), "--set", "mappedFileSizeCommitLog=65536", "--limit", "2"]
    result = CliRunner().invoke(main, [*arguments, "-o", "json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.output)
    assert shown["pop_windows_total"] == 3
    assert [row["group"] for row in shown["pop_windows"]] == ["H", "G"]
    assert "pop_windows_total: 3" in CliRunner().invoke(main, arguments).output
