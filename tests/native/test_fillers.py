"""Filler units in the middle of a queue name no record: what is looked for by place in the log steps over them."""

import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from plane_kit import Kit

from ringmq.native import ffi, lib
from ringmq.store.consume_queue import ConsumeQueue
from ringmq.store.mapped_file import MappedFileCache

UNITS_OF_A_FILE = 5
FILE_BYTES = UNITS_OF_A_FILE * 20
FILLER = None


def write_units(kit: Kit, places: Sequence[int | None]) -> Path:
    """The queue T/0 with these units; the newest file has room behind the last one."""
    folder = kit.root / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    units = [struct.pack(">qiq", *((0, 0x7FFFFFFF, 0) if at is FILLER else (at, 50, 7))) for at in places]
    for first in range(0, len(units) + 1, UNITS_OF_A_FILE):
        data = b"".join(units[first : first + UNITS_OF_A_FILE])
        (folder / f"{first * 20:020d}").write_bytes(data.ljust(FILE_BYTES, b"\0"))
    return folder


def first_live(places: Sequence[int | None], border: int) -> int:
    """The rule itself."""
    return next((index for index, at in enumerate(places) if at is not FILLER and at >= border), len(places))


def layouts() -> Iterator[list[int | None]]:
    """Queues of up to five files; runs of fillers at the begin, inside, over the border of a file, at the end."""
    yield [100, 200, FILLER, FILLER, FILLER, 300, 400]
    yield [100, 200, 300, FILLER, FILLER, FILLER, FILLER, FILLER, FILLER, FILLER, FILLER, 400]
    yield [FILLER] * 7 + [0, 50]
    yield [FILLER] * 12
    chooser = random.Random(7)
    for _ in range(15):
        places: list[int | None] = []
        at = chooser.choice((0, 100))
        while len(places) < chooser.randrange(1, 24):
            if chooser.random() < 0.4:
                places += [FILLER] * chooser.choice((1, 2, 7))
            else:
                places.append(at)
                at += 100
        yield places


@pytest.mark.parametrize("places", list(layouts()), ids=str)
def test_cleaning_and_reading_step_over_fillers(tmp_path: Path, places: list[int | None]) -> None:
    borders = sorted({0, *(at + more for at in places if at is not FILLER for more in (0, 50)), 1 << 40})
    kit = Kit(tmp_path, queue_file_bytes=FILE_BYTES)
    queue = kit.queue(kit.topic(b"T"), 0)
    with kit.dispatcher() as dispatch:
        for border in borders:
            folder = write_units(kit, places)
            queue.min_offset, queue.max_offset = 0, len(places)
            expected = first_live(places, border)
            reader = ConsumeQueue(folder, "T", 0, FILE_BYTES, MappedFileCache())
            assert reader.min_offset(border, len(places)) == expected
            assert lib.rmq_dispatcher_clean_queue(dispatch.handle, 0, border) >= 0
            assert queue.min_offset == expected
            oldest = min(int(path.name) // 20 for path in folder.iterdir())
            assert oldest == min(expected, len(places) - 1) // UNITS_OF_A_FILE * UNITS_OF_A_FILE
            shutil.rmtree(folder)


@pytest.mark.parametrize("places", list(layouts()), ids=str)
def test_planners_step_over_fillers(tmp_path: Path, places: list[int | None]) -> None:
    folder = write_units(Kit(tmp_path, queue_file_bytes=FILE_BYTES), places)
    borders = sorted({0, *(at + more for at in places if at is not FILLER for more in (0, 50)), 1 << 40})
    reader = ConsumeQueue(folder, "T", 0, FILE_BYTES, MappedFileCache())
    assert reader.offsets_at(borders) == [first_live(places, border) for border in borders]


def test_the_first_unit_that_is_no_filler() -> None:
    filler, unit = struct.pack(">qiq", 0, 0x7FFFFFFF, 0), struct.pack(">qiq", 0, 50, 0)
    for before in (0, 1, 300):
        for behind in (unit, bytes(20), struct.pack(">qiq", 8, 0x7FFFFFFF, 0), b""):
            data = filler * before + behind
            assert lib.rmq_cq_fillers(ffi.from_buffer(data), len(data) // 20) == before
