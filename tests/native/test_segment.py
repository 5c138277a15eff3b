"""Making and mapping log files."""

import errno
import os
from pathlib import Path

import pytest

from ringmq.native import ffi, lib

BYTES = 65536


def create(root: Path, directory: Path, offset: int, size: int = BYTES) -> int:
    return int(lib.rmq_segment_create(str(root).encode(), str(directory).encode(), offset, size))


def test_a_file_is_whole_and_allocated_when_it_gets_its_name(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    assert lib.rmq_segment_exists(str(log).encode(), BYTES, BYTES) == 0
    assert create(tmp_path, log, BYTES) == 0
    (path,) = log.iterdir()
    assert path.name == f"{BYTES:020d}"
    assert path.read_bytes() == bytes(BYTES)
    assert path.stat().st_blocks * 512 >= BYTES
    assert [p.name for p in tmp_path.iterdir()] == ["commitlog"]
    path.write_bytes(b"x" * BYTES)
    assert create(tmp_path, log, BYTES) == 0  # there already: left alone
    assert path.read_bytes() == b"x" * BYTES
    assert create(tmp_path, log, BYTES, 2 * BYTES) == -errno.EINVAL


def test_other_file_system_than_the_root(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    log = shared / f"ringmq-test-{os.getpid()}"
    log.mkdir()
    try:
        assert create(tmp_path, log, 0) == 0
        assert (log / f"{0:020d}").stat().st_size == BYTES
    finally:
        for path in log.iterdir():
            path.unlink()
        log.rmdir()


def test_errors_are_told(tmp_path: Path) -> None:
    assert create(tmp_path, tmp_path / "missing", 0) == -errno.ENOENT
    assert create(tmp_path, tmp_path, 0, 1 << 62) in (-errno.EFBIG, -errno.ENOSPC)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("writable", [0, 1])
def test_map_refuses_a_file_of_another_length(tmp_path: Path, writable: int) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(100))
    segment = ffi.new("struct rmq_segment *")
    assert lib.rmq_segment_map(segment, str(tmp_path).encode(), 0, BYTES, writable) == -errno.EINVAL
    assert lib.rmq_segment_map(segment, str(tmp_path).encode(), BYTES, BYTES, writable) == -errno.ENOENT


def test_mapping_for_writing_fills_the_holes_of_a_sparse_file(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as file:
        file.write(b"abc")
        file.truncate(BYTES)
    segment = ffi.new("struct rmq_segment *")
    assert lib.rmq_segment_map(segment, str(tmp_path).encode(), 0, BYTES, 1) == 0
    assert path.stat().st_blocks * 512 >= BYTES
    assert path.read_bytes() == b"abc" + bytes(BYTES - 3)
    lib.rmq_segment_unmap(segment)
