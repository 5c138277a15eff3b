"""Reading the used parts of preallocated files."""

import os
from pathlib import Path

from ringmq.store.mapped_file import data_chunks, write_zeros

SIZE = 64 << 20


def preallocated(path: Path, content: bytes) -> Path:
    """A file with `content` at its start and allocated space behind it, as a log segment."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, SIZE)
    os.pwrite(descriptor, content, 0)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    return path


def test_unwritten_space_is_not_read(tmp_path: Path) -> None:
    """Read-ahead turns unwritten space into data; following it read a whole 1 GiB segment at each start."""
    content = b"x" * (1 << 20)
    with preallocated(tmp_path / "segment", content).open("rb") as file:
        chunks = list(data_chunks(file.fileno(), 0, SIZE, 64 << 10))
    assert b"".join(chunk for _, chunk in chunks).rstrip(b"\x00") == content
    assert sum(len(chunk) for _, chunk in chunks) < 8 << 20


def test_zeros_are_written_over_data_alone(tmp_path: Path) -> None:
    path = preallocated(tmp_path / "segment", b"x" * 100_000)
    assert 60_000 <= write_zeros(path, 40_000, SIZE) < 1 << 20
    text = path.read_bytes()
    assert text == b"x" * 40_000 + bytes(SIZE - 40_000)
