"""Marks of changed pages, snapshots of one moment, and memory that is reserved before it is used."""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from ringmq.native import ffi, lib

PAGE: int = lib.RMQ_POP_PAGE_BYTES
CHUNK: int = lib.RMQ_POP_CHUNK_BYTES
LAYOUT = lib.rmq_pop_layout_of(1000, 20_000)
PAGES = int(LAYOUT.bytes) // PAGE


class Memory:
    """Anonymous memory with its pages, and a model of it."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, int(LAYOUT.mapped_bytes))
        self.base = ffi.from_buffer("uint8_t *", self.map, require_writable=True)
        self.pages = lib.rmq_pop_pages_open(self.base, LAYOUT, -1)

    def change(self, page: int, value: int) -> None:
        lib.rmq_pop_pages_touch(self.pages, self.base + page * PAGE + 77)
        self.map[page * PAGE : (page + 1) * PAGE] = bytes([value]) * PAGE

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The pages of the blocks that are ready."""
        while (block := lib.rmq_pop_pages_block(self.pages)) != ffi.NULL:
            for index in range(block.count):
                yield int(block.numbers[index]), bytes(ffi.buffer(block.data + index * PAGE, PAGE))
            lib.rmq_pop_block_free(block)

    def close(self) -> None:
        lib.rmq_pop_pages_close(self.pages)
        ffi.release(self.base)
        self.map.close()


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory()
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(30))
def test_a_snapshot_is_the_memory_of_one_moment(memory: Memory, seed: int) -> None:
    """Pages change before, between and behind the turns that take them, some of them several times."""
    chance = random.Random(seed)
    image: dict[int, bytes] = {}
    for number in range(1, 8):
        for _ in range(chance.randrange(1, 300)):
            memory.change(chance.randrange(PAGES), chance.randrange(256))
        changed = int(lib.rmq_pop_pages_changed(memory.pages))
        moment = bytes(memory.map[: int(LAYOUT.bytes)])
        assert lib.rmq_pop_pages_begin(memory.pages) == changed
        taken: dict[int, bytes] = {}
        while True:
            for _ in range(chance.randrange(20)):
                memory.change(chance.randrange(PAGES), chance.randrange(256))
            waiting = lib.rmq_pop_pages_take(memory.pages, chance.randrange(1, 40))
            taken.update(memory.blocks())
            if not waiting:
                break
        assert len(taken) == changed
        if number == 4:  # not on disk: its pages belong to the next one
            lib.rmq_pop_pages_give_up(memory.pages)
            continue
        lib.rmq_pop_pages_saved(memory.pages)
        image.update(taken)
        for page in range(PAGES):
            assert image.get(page, bytes(PAGE)) == moment[page * PAGE : (page + 1) * PAGE], (number, page)


def test_a_snapshot_that_is_given_up_leaves_its_pages_to_the_next_one(memory: Memory) -> None:
    for page in (3, 9):
        memory.change(page, 1)
    assert lib.rmq_pop_pages_begin(memory.pages) == 2
    lib.rmq_pop_pages_take(memory.pages, 1)
    memory.change(5, 1)
    lib.rmq_pop_pages_give_up(memory.pages)
    assert (lib.rmq_pop_pages_kept(memory.pages), list(memory.blocks())) == (0, [])
    assert lib.rmq_pop_pages_begin(memory.pages) == 3


def test_a_replacement_takes_the_pages_of_its_predecessor_again(memory: Memory) -> None:
    """A death at any point of a snapshot loses no page, because the marks lie in the memory."""
    memory.change(3, 1)
    memory.change(4, 1)
    lib.rmq_pop_pages_begin(memory.pages)
    lib.rmq_pop_pages_take(memory.pages, 1)
    memory.change(9, 1)
    other = lib.rmq_pop_pages_open(memory.base, LAYOUT, -1)
    assert lib.rmq_pop_pages_begin(other) == 3
    assert lib.rmq_pop_pages_take(other, 10) == 0
    lib.rmq_pop_pages_saved(other)
    lib.rmq_pop_pages_close(other)
    third = lib.rmq_pop_pages_open(memory.base, LAYOUT, -1)
    assert not lib.rmq_pop_pages_is_changed(third)
    lib.rmq_pop_pages_close(third)


def test_blocks_are_full_until_the_last(memory: Memory) -> None:
    for page in range(100):
        memory.change(page, 1)
    lib.rmq_pop_pages_begin(memory.pages)
    lib.rmq_pop_pages_take(memory.pages, 63)
    assert lib.rmq_pop_pages_block(memory.pages) == ffi.NULL
    lib.rmq_pop_pages_take(memory.pages, 100)
    counts = []
    while (block := lib.rmq_pop_pages_block(memory.pages)) != ffi.NULL:
        counts.append(int(block.count))
        lib.rmq_pop_block_free(block)
    assert counts == [64, 36]


class Segment:
    """A sparse file in memory, with a limit of its bytes."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pop")
        os.ftruncate(self.descriptor, int(LAYOUT.mapped_bytes))
        os.posix_fallocate(self.descriptor, int(LAYOUT.bytes), int(LAYOUT.mapped_bytes - LAYOUT.bytes))
        self.map = mmap.mmap(self.descriptor, int(LAYOUT.mapped_bytes))
        self.base = ffi.from_buffer("uint8_t *", self.map, require_writable=True)

    def open(self) -> Any:
        return lib.rmq_pop_pages_open(self.base, LAYOUT, self.descriptor)

    def close(self) -> None:
        ffi.release(self.base)
        self.map.close()
        os.close(self.descriptor)


def test_chunks_with_data_are_there() -> None:
    """The header's chunk, and each chunk with a page that holds something; they are filled up."""
    segment = Segment()
    os.pwrite(segment.descriptor, b"x", 2 * CHUNK + 5 * PAGE)
    pages = segment.open()
    chunks = range(0, int(LAYOUT.bytes), CHUNK)
    there = [at // CHUNK for at in chunks if lib.rmq_pop_pages_has(pages, segment.base + at)]
    assert there == [0, 2]
    marks = int(LAYOUT.mapped_bytes - LAYOUT.bytes)
    assert os.fstat(segment.descriptor).st_blocks * 512 == 2 * CHUNK + marks
    lib.rmq_pop_pages_close(pages)
    segment.close()


def test_the_room_of_files_is_checked(tmp_path: Any) -> None:
    """`apply` reports errors of either file, and places pages by their numbers."""
    journal, image = tmp_path / "journal", tmp_path / "image"
    journal.write_bytes(b"head" + b"".join(bytes([value]) * PAGE for value in (1, 2, 3, 4)))
    image.touch()
    with journal.open("rb") as source, image.open("r+b") as target:
        numbers = ffi.new("uint32_t[]", [7, 8, 0, 9])
        assert lib.rmq_pop_pages_apply(target.fileno(), source.fileno(), 4, numbers, 4) == 0
        found = image.read_bytes()
        expected = bytes([3]) * PAGE + bytes(6 * PAGE) + bytes([1]) * PAGE + bytes([2]) * PAGE + bytes([4]) * PAGE
        assert found == expected
        assert lib.rmq_pop_pages_apply(target.fileno(), source.fileno(), 4, numbers, 4 + 0) == 0
        five = ffi.new("uint32_t[]", [7, 8, 0, 9, 10])
        assert lib.rmq_pop_pages_apply(target.fileno(), source.fileno(), 4, five, 5) == -errno.EIO
    with journal.open("rb") as source, image.open("rb") as target:
        assert lib.rmq_pop_pages_apply(target.fileno(), source.fileno(), 4, numbers, 1) == -errno.EBADF


def test_room_is_taken_for_holes_alone(tmp_path: Any) -> None:
    """A second call changes nothing of the file: the next sync waits for no journal of the file system."""
    image = tmp_path / "image"
    image.write_bytes(b"\1" * PAGE)
    numbers = ffi.new("uint32_t[]", [0, 5, 6, 2])
    with image.open("r+b") as target:
        assert lib.rmq_pop_pages_room(target.fileno(), numbers, 4) == 0
        assert os.fstat(target.fileno()).st_blocks * 512 == 4 * PAGE
        assert image.read_bytes() == b"\1" * PAGE + bytes(6 * PAGE)
        target.write(b"\2" * (7 * PAGE))
        target.flush()
        os.utime(image, ns=(0, 0))
        assert lib.rmq_pop_pages_room(target.fileno(), numbers, 4) == 0
        assert os.fstat(target.fileno()).st_mtime_ns == 0
    with image.open("rb") as target:
        assert lib.rmq_pop_pages_room(target.fileno(), ffi.new("uint32_t[]", [9]), 1) == -errno.EBADF
