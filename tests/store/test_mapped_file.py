"""Mapped files under a limit, and reading the used parts of preallocated files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import MappedFileCache, data_chunks, data_end, write_zeros

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


def test_a_search_for_the_next_record_reads_no_unwritten_space(tmp_path: Path) -> None:
    """Each start searches behind the end of the log, and reads all data there afterwards."""
    (tmp_path / "commitlog").mkdir()
    path = preallocated(tmp_path / "commitlog" / ("0" * 20), b"x" * (1 << 20))
    log = CommitLog(StoreConfig(tmp_path, commit_log_file_bytes=SIZE), MappedFileCache(4))
    assert log.next_record(0) is None
    assert 1 << 20 <= data_end(str(path), 0) < SIZE


def test_zeros_are_written_over_data_alone(tmp_path: Path) -> None:
    path = preallocated(tmp_path / "segment", b"x" * 100_000)
    assert 60_000 <= write_zeros(path, 40_000, SIZE) < 1 << 20
    text = path.read_bytes()
    assert text == b"x" * 40_000 + bytes(SIZE - 40_000)


UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from ringmq.store.mapped_file import MappedFileCache

cache = MappedFileCache(1000)
pages = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize:"))
limit = (int(pages.split()[1]) << 10) + (80 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(sum(cache.get(path)[0] for path in sys.argv[1:]))
"""


def test_mappings_give_way_where_address_space_ends(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(10)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]))
        os.truncate(path, 32 << 20)
    command = [sys.executable, "-c", UNDER_A_LIMIT, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(sum(range(10))), "")


def test_mappings_of_unlinked_and_replaced_files_are_let_go(tmp_path: Path) -> None:
    kept, unlinked, replaced = (str(tmp_path / name) for name in ("kept", "unlinked", "replaced"))
    cache = MappedFileCache()
    for path in (kept, unlinked, replaced):
        Path(path).write_bytes(b"before")
        cache.get(path)
    mapped = cache.get(kept)
    Path(unlinked).unlink()
    Path(replaced).unlink()
    Path(replaced).write_bytes(b"behind")
    cache.forget_gone()
    assert f"{unlinked} (deleted)" not in Path("/proc/self/maps").read_text()
    assert cache.get(kept) is mapped
    assert bytes(cache.get(replaced)) == b"behind"
    with pytest.raises(FileNotFoundError):
        cache.get(unlinked)
