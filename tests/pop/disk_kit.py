"""A disk that remembers writes and syncs of POP's files, and what a power cut may leave of them."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from ringmq.native import ffi
from ringmq.pop.image_file import PAGE, DiskFile

SECTOR = 512
GROWS = ("names", "names.tmp", "image.tmp", "journal")
"""Files that a write makes larger. Pages of the image have their room."""


def fill_disk(patch: pytest.MonkeyPatch) -> None:
    """Writes that would take room fail."""
    write, pwrite = os.write, os.pwrite

    def refuse(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.name in GROWS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def full_write(descriptor: int, data: bytes) -> int:
        refuse(descriptor)
        return write(descriptor, data)

    def full_pwrite(descriptor: int, data: bytes, at: int) -> int:
        refuse(descriptor)
        return pwrite(descriptor, data, at)

    patch.setattr(os, "write", full_write)
    patch.setattr(os, "pwrite", full_pwrite)


class Disk:
    """Operations in their order: (file, offset, data), and (file, None, b"") for a sync."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, int | None, bytes]] = []
        self.fails_at: str | None = None
        """`write FILE`, `sync FILE`, `reserve image`: the operation that fails, always from its first time on."""
        self.errno = 28
        self.tried: list[str] = []

    def open(self, path: Path) -> DiskFile:
        """For `Files`."""
        return _File(self, path)

    def attempt(self, kind: str, name: str) -> None:
        """An operation begins, and may fail."""
        self.tried.append(f"{kind} {name}")
        if self.fails_at == f"{kind} {name}":
            raise OSError(self.errno, os.strerror(self.errno), name)

    def note(self, kind: str, name: str, at: int | None, data: bytes) -> None:
        """An operation begins that changes the file, or syncs it."""
        self.attempt(kind, name)
        self.operations.append((name, at, data))

    def left_by_cut(self, count: int, chance: random.Random, before: dict[str, bytes]) -> dict[str, bytes]:
        """Contents of the files if the power goes after `count` operations. Of what was not synced, each sector of each
        write is there or not."""
        files = {name: bytearray(data) for name, data in before.items()}
        synced = {
            name: max((i for i in range(count) if self.operations[i][:2] == (name, None)), default=-1) for name in files
        }
        for index, (name, at, data) in enumerate(self.operations[:count]):
            if at is None:
                continue
            if index < synced[name]:
                _store(files[name], at, data)
                continue
            for begin in range(0, len(data), SECTOR):
                if chance.random() < 0.5:
                    _store(files[name], at + begin, data[begin : begin + SECTOR])
        return {name: bytes(data) for name, data in files.items()}


def _store(file: bytearray, at: int, data: bytes) -> None:
    if len(file) < at + len(data):
        file.extend(bytes(at + len(data) - len(file)))
    file[at : at + len(data)] = data


class _File(DiskFile):
    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(path)
        self._disk = disk

    def write(self, data: Any, at: int) -> None:
        self._disk.note("write", self.path.name, at, bytes(data))
        super().write(data, at)

    def reserve(self, numbers: Any, count: int) -> None:
        self._disk.attempt("reserve", self.path.name)
        super().reserve(numbers, count)

    def apply(self, journal: DiskFile, at: int, numbers: Any, count: int) -> None:
        pages = os.pread(journal.descriptor, count * PAGE, at)
        for index, number in enumerate(ffi.unpack(numbers, count)):
            self._disk.note("write", self.path.name, number * PAGE, pages[index * PAGE : (index + 1) * PAGE])
        super().apply(journal, at, numbers, count)

    def sync(self) -> None:
        self._disk.note("sync", self.path.name, None, b"")
        super().sync()
