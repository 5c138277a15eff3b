"""The last record cut or damaged at every byte: recovery ends before it or, where it is whole, behind it."""

import random
from pathlib import Path

import pytest

from ringmq.native import ffi, lib
from ringmq.store import record as records
from ringmq.store.config import StoreConfig
from ringmq.store.recovery import recover
from tests.store.golden_stores import SIZES

FILE_BYTES = 8192
TOPIC = b"Torn"


def encode(queue_offset: int, physical_offset: int, body: bytes, properties: bytes, topic: bytes = TOPIC) -> bytes:
    """Encode one record with fixed hosts and times."""
    value = ffi.new("struct rmq_record_in *")
    keep = [ffi.from_buffer(body), ffi.from_buffer(topic), ffi.from_buffer(properties)]
    value.body, value.topic, value.properties[0] = keep
    value.body_length, value.topic_length, value.properties_length[0] = len(body), len(topic), len(properties)
    value.queue_offset, value.physical_offset = queue_offset, physical_offset
    value.born_time_ms = value.store_time_ms = 1_700_000_000_000 + queue_offset
    size = lib.rmq_record_size(value)
    room = ffi.new("uint8_t[]", size)
    assert lib.rmq_record_encode(room, size, value) == size
    return bytes(ffi.buffer(room))


def small_config(root: Path) -> StoreConfig:
    return StoreConfig(root=root, commit_log_file_bytes=FILE_BYTES, **SIZES)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, bytes, bytes]:
    """A store of three records after an unclean stop: (log file, the first two records, the last one)."""
    head = encode(0, 0, b"first", b"TAGS\x01A\x02")
    head += encode(1, len(head), b"", b"")
    last = encode(2, len(head), b"the last body " * 6, b"UNIQ_KEY\x01C0A8\x02KEYS\x01k1 k2\x02WAIT\x01true\x02")
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "abort").touch()
    return tmp_path / "commitlog" / ("0" * 20), head, last


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data.ljust(FILE_BYTES, b"\x00"))


def test_last_record_zeroed_from_every_byte_on(store: tuple[Path, bytes, bytes]) -> None:
    path, head, last = store
    for kept in range(len(last)):
        _write(path, head + last[:kept])
        result = recover(small_config(path.parents[1]))
        assert result.append_offset == len(head), f"{kept} bytes of the last record"
        assert result.queues[("Torn", 0)].next_offset == 2
        assert path.read_bytes() == head.ljust(FILE_BYTES, b"\x00")
    _write(path, head + last)
    result = recover(small_config(path.parents[1]))
    assert (result.append_offset, result.queues[("Torn", 0)].next_offset) == (len(head + last), 3)


def test_pages_of_the_last_record_missing_in_the_middle(store: tuple[Path, bytes, bytes]) -> None:
    """Any zeroed stretch of 64 bytes, as when one sector did not reach the disk: cut, or byte-identical fields only."""
    path, head, last = store
    _, whole = records.parse_record(last)
    assert whole is not None
    for at in range(len(last) - 64):
        damaged = last[:at] + bytes(64) + last[at + 64 :]
        _write(path, head + damaged)
        result = recover(small_config(path.parents[1]))
        body_starts = 88
        if at + 64 > body_starts:  # body, topic or properties touched: CRC, lengths or the properties rule see it
            assert result.append_offset == len(head), at


def test_torn_properties_with_a_valid_successor_are_never_cut(store: tuple[Path, bytes, bytes]) -> None:
    path, head, last = store
    odd = last[:-5] + bytes(5)
    successor = encode(3, len(head + odd), b"more", b"TAGS\x01B\x02")
    _write(path, head + odd + successor)
    result = recover(small_config(path.parents[1]))
    assert result.append_offset == len(head + odd + successor)
    assert result.queues[("Torn", 0)].next_offset == 4


def test_successor_in_the_next_file_counts(tmp_path: Path) -> None:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    (tmp_path / "abort").touch()
    odd = encode(0, 0, b"x" * 100, b"TAGS\x01A\x02NUL\x01a\x00b\x02")
    blank = ffi.new("uint8_t[8]")
    assert lib.rmq_blank_encode(blank, FILE_BYTES - len(odd)) == 8
    _write(directory / ("0" * 20), odd + bytes(ffi.buffer(blank)))
    _write(directory / f"{FILE_BYTES:020d}", b"")
    assert recover(small_config(tmp_path)).append_offset == 0
    _write(directory / ("0" * 20), odd + bytes(ffi.buffer(blank)))
    _write(directory / f"{FILE_BYTES:020d}", encode(1, FILE_BYTES, b"", b""))
    assert recover(small_config(tmp_path)).append_offset == FILE_BYTES + 91 + len(TOPIC)


def test_random_bytes_behind_the_log_are_never_taken(store: tuple[Path, bytes, bytes]) -> None:
    path, head, _ = store
    chance = random.Random(7)
    for _ in range(50):
        _write(path, head + chance.randbytes(chance.randrange(1, 3000)))
        result = recover(small_config(path.parents[1]))
        assert result.append_offset == len(head)
        assert path.read_bytes() == head.ljust(FILE_BYTES, b"\x00")


def test_torn_record_in_front_of_old_records_leaves_nothing_to_find(store: tuple[Path, bytes, bytes]) -> None:
    """After the cut, new records of any length must not be followed by remains of older ones."""
    path, head, last = store
    remains = encode(9, len(head + last), b"old", b"TAGS\x01Z\x02")
    _write(path, head + last[:50].ljust(len(last), b"\x00") + remains)
    assert recover(small_config(path.parents[1])).append_offset == len(head)
    _write(path, path.read_bytes()[: len(head)] + last)
    assert recover(small_config(path.parents[1])).append_offset == len(head + last)
