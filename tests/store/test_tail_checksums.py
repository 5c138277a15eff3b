"""Windows of a log's tail: where they lie, and that a checksum is the one of the bytes there."""

import zlib
from pathlib import Path

import pytest

from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import MappedFileCache
from ringmq.store.tail_checksums import WINDOW_BYTES, WINDOWS_MAX, tail_checksums, window_crc, window_places

FILE_BYTES = 100_000


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    """Three files of a log that begins at 200,000; bytes are no records, which does not matter here."""
    (tmp_path / "commitlog").mkdir()
    for start in (200_000, 300_000, 400_000):
        data = bytes((start // 100_000 * 7 + at * at) & 0xFF for at in range(FILE_BYTES))
        (tmp_path / "commitlog" / f"{start:020d}").write_bytes(data)
    return CommitLog(StoreConfig(root=tmp_path, commit_log_file_bytes=FILE_BYTES), MappedFileCache())


def test_windows_look_back_in_growing_strides() -> None:
    places = window_places(0, 1 << 40)
    assert len(places) == WINDOWS_MAX
    assert [(1 << 40) - start - length for start, length in places] == [0] + [WINDOW_BYTES << k for k in range(1, 16)]
    assert {length for _, length in places} == {WINDOW_BYTES}


@pytest.mark.parametrize("min_offset", [0, 5, 1 << 30])
@pytest.mark.parametrize("length", [0, 1, WINDOW_BYTES, WINDOW_BYTES + 1, 2 * WINDOW_BYTES + 7, 10 * WINDOW_BYTES])
def test_windows_of_a_short_log_stay_inside_it_and_end_with_it(min_offset: int, length: int) -> None:
    places = window_places(min_offset, min_offset + length)
    assert bool(places) == bool(length)
    for start, size in places:
        assert min_offset <= start and 0 < size <= WINDOW_BYTES and start + size <= min_offset + length
    if length:
        assert sum(places[0]) == min_offset + length


def test_the_checksum_is_the_one_of_the_bytes_also_over_a_file_end(log: CommitLog) -> None:
    data = b"".join(path.read_bytes() for path in sorted((log.files.directories[0]).iterdir()))
    windows = tail_checksums(log, 200_000, 440_000)
    assert [window[:2] for window in windows] == window_places(200_000, 440_000)
    assert any(offset // FILE_BYTES != (offset + length - 1) // FILE_BYTES for offset, length, _ in windows)
    for offset, length, value in windows:
        assert value == zlib.crc32(data[offset - 200_000 :][:length]) & 0x7FFFFFFF, offset


def test_bytes_that_are_gone_have_no_checksum(log: CommitLog) -> None:
    assert window_crc(log, 199_999, 10) is None
    assert window_crc(log, 499_999, 2) is None
    (log.files.directories[0] / f"{200_000:020d}").unlink()
    log.files.refresh()
    assert window_crc(log, 299_999, 2) is None
    assert len(tail_checksums(log, 200_000, 440_000)) < len(window_places(200_000, 440_000))
