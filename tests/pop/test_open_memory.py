"""Open messages for readers outside the broker: they are refused where the files do not tell the truth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import ffi, lib
from ringmq.pop import open_memory as open_memory_module
from ringmq.pop.image_file import IMAGE, JOURNAL
from ringmq.pop.memory_copy import MemoryCopy, image_copy
from ringmq.pop.names import FILE
from ringmq.pop.open_memory import STALE_MS, open_memory
from ringmq.pop.revival_words import Gauge, SnapshotFault
from ringmq.services.kit.clocks import monotonic_ms
from tests.broker.test_processes import SMALL
from tests.pop.test_window_table import Windows, windows

__all__ = ["windows"]


@pytest.fixture
def stopped(windows: Windows) -> Iterator[Path]:
    windows.stop(clean=True)
    yield windows.root


def test_the_entries_of_the_last_snapshot(stopped: Path) -> None:
    files = {path: path.read_bytes() for path in (stopped / "pop").iterdir()}
    with open_memory(stopped) as memory:
        assert memory is not None
        found = {}
        for chunk in memory.entries():
            for entry in ffi.from_buffer("struct rmq_pop_entry[]", chunk):
                if entry.state:
                    name = memory.windows[int(entry.window)]
                    found[name.group, name.topic, name.queue_id] = int(entry.base_offset), int(entry.present)
        assert memory.orders() == (b"", [])
    assert found == {("G", "T", 0): (5, 1), ("H", "U", 3): (200, 511)}
    assert {path: path.read_bytes() for path in (stopped / "pop").iterdir()} == files


@pytest.mark.parametrize("starts", [1, open_memory_module.ATTEMPTS])
def test_names_that_a_start_writes_anew_lose_no_window(
    stopped: Path, monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    """The copy has the windows of before, and the names those of behind."""
    names, left = stopped / "pop" / FILE, [starts]
    whole = names.read_bytes()

    def put(data: bytes) -> None:
        (fresh := names.with_suffix(".tmp")).write_bytes(data)
        fresh.rename(names)

    @contextmanager
    def copy_beside_a_start(folder: Path) -> Iterator[MemoryCopy]:
        with image_copy(folder) as copy:
            if comes := left[0] > 0:
                left[0] -= 1
                put(b"")
            yield copy
        if comes:
            put(whole)  # for the next copy

    monkeypatch.setattr(open_memory_module, "image_copy", copy_beside_a_start)
    busy = pytest.raises(OSError, match="written anew again and again")
    with busy if starts > 1 else nullcontext(), open_memory(stopped) as memory:
        assert memory is not None
        assert {("G", "T"), ("H", "U")} <= {(name.group, name.topic) for name in memory.windows.values()}


def test_a_store_without_pop_has_no_memory(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:
        assert memory is None


def test_a_damaged_image_is_refused(stopped: Path) -> None:
    (stopped / "pop" / JOURNAL).unlink()
    image = stopped / "pop" / IMAGE
    data = bytearray(image.read_bytes())
    at = len(data) - 1
    while not data[at]:
        at -= 1  # of the last entry in use
    data[at] ^= 1
    image.write_bytes(data)
    with pytest.raises(ValueError, match="cannot be used: 1 windows and entries are damaged"), open_memory(stopped):
        pass


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (SnapshotFault.NO_ROOM, "the disk has no room"),
        (SnapshotFault.FAILED, "a write or a sync has failed"),
        (SnapshotFault.NONE, "the worker pop does not write it"),
    ],
)
def test_files_that_lack_changes_of_a_running_broker_are_refused(
    broker_with_image: tuple[RunningBroker, Plane], fault: SnapshotFault, cause: str
) -> None:
    broker, plane = broker_with_image
    words = plane.role(lib.RMQ_ROLE_POP).counters
    words[Gauge.UNSAVED_MS], words[Gauge.SNAPSHOT_FAULT] = monotonic_ms() - STALE_MS - 5000, fault
    told = rf"lacks the changes of the last (1[5-9]|[2-9]\d) s: {cause}"
    with pytest.raises(ValueError, match=told), open_memory(broker.store):
        pass
    words[Gauge.UNSAVED_MS] = monotonic_ms() - STALE_MS // 2
    with open_memory(broker.store) as memory:
        assert memory is not None, "the next snapshot is on its way"
    words[Gauge.UNSAVED_MS] = 0


@pytest.fixture(scope="module")
def broker_with_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Plane]]:
    """A broker with files of POP, whose worker does not run and so writes no gauge."""
    store = tmp_path_factory.mktemp("stale") / "store"
    with RunningBroker(store, SMALL) as broker:
        made = Windows(store)
        made.stop(clean=True)
        assert "pop" not in broker.worker_pids()
        yield broker, Plane.open(plane_name(store))
