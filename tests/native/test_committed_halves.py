"""The scans for committed messages of transactions and for marks in C, beside their twins in Python."""

import random
from collections.abc import Iterator

import pytest

from ringmq.ipc.ports import mark_of, parts_of_mark
from ringmq.native import ffi, lib
from ringmq.store import record as records
from tests.store.copy_kit import stored

Commit = tuple[int, int]
"""Log offsets of a half and of its committed message."""


def twin(file: bytes, start: int, limit: int, end: int, file_start: int) -> tuple[list[Commit], int]:
    """(commits, place behind the last record that begins below the limit)."""
    found, at = list[Commit](), start
    while at < limit:
        result, record = records.parse_record(file[at:end])
        if result == records.OK and record is not None and record.physical_offset == file_start + at:
            if record.transaction_type == 8 and record.prepared_transaction_offset >= 0:
                found.append((record.prepared_transaction_offset, record.physical_offset))
            at += record.size
        else:
            at += 1
    return found, at


def random_file(dice: random.Random, file_start: int) -> bytes:
    """Records of all kinds, and bytes that are none."""
    file = b""
    for _ in range(40):
        if dice.random() < 0.15:
            file += dice.randbytes(dice.randrange(1, 30))
        place = file_start + len(file) + (dice.random() < 0.1)
        file += stored(
            body=dice.randbytes(dice.randrange(40)), sys_flag=dice.choice((0, 4, 8, 8, 8, 12, 9)),
            prepared=dice.choice((0, 77, 1 << 50, (29 << 56) + 5, -3)), physical_offset=place,
            born_host=dice.randbytes(dice.choice((4, 16))),
        )  # fmt: skip
    return file


def scan(
    file: bytes, begin: int, limit: int, end: int, file_start: int, room: int
) -> Iterator[tuple[list[Commit], int]]:
    """The steps of the scan in C."""
    halves, commits, at = ffi.new("uint64_t[]", room), ffi.new("uint64_t[]", room), ffi.new("uint64_t *", begin)
    data = ffi.from_buffer("uint8_t *", file)
    while at[0] < limit:
        count = lib.rmq_committed_halves(data, at[0], limit, end, file_start, halves, commits, room, at)
        yield [(int(halves[number]), int(commits[number])) for number in range(count)], int(at[0])


@pytest.mark.parametrize("seed", range(40))
def test_scan_beside_its_twin(seed: int) -> None:
    dice = random.Random(seed)
    file_start = dice.choice((0, 1 << 30))
    file = random_file(dice, file_start)
    end = dice.choice((len(file), dice.randrange(len(file))))
    limit = dice.randrange(end + 1)
    wanted, place = twin(file, 0, limit, end, file_start)
    steps = list(scan(file, 0, limit, end, file_start, dice.choice((1, 2, 1000))))
    assert [half for found, _ in steps for half in found] == wanted
    assert (steps[-1][1] if steps else 0) == place


def test_a_half_at_the_begin_of_the_log() -> None:
    """The first message of a store may be a half."""
    half = stored(physical_offset=0)
    commit = stored(sys_flag=8, prepared=0, physical_offset=len(half) + 3)
    file = half + b"\0" * 3 + commit + b"\xff" * 5
    assert list(scan(file, 0, len(file), len(file), 0, 9)) == [([(0, len(half) + 3)], len(file))]


def test_the_scan_finds_something() -> None:
    dice = random.Random(1)
    file = random_file(dice, 0)
    assert len(twin(file, 0, len(file), len(file), 0)[0]) > 3


def marks_twin(file: bytes, mark_range: int) -> list[tuple[int, int]]:
    """(mark, neighbours with it)."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(file):
        result, record = records.parse_record(file[at:])
        if result != records.OK or record is None or record.physical_offset != at:
            at += 1
            continue
        at += record.size
        mark = record.prepared_transaction_offset
        is_half_place = mark_range == lib.RMQ_MARK_RANGE_STAGED and record.transaction_type
        if mark <= 0 or parts_of_mark(mark)[0] != mark_range or is_half_place:
            continue
        neighbours = found.pop()[1] if found and found[-1][0] == mark else 0
        found.append((mark, neighbours + 1))
    return found


def marks_of(file: bytes, mark_range: int, room: int) -> list[tuple[int, int]]:
    """The marks by the scan in C, in steps of at most `room` marks."""
    marks, counts, at = ffi.new("uint64_t[]", room), ffi.new("uint32_t[]", room), ffi.new("uint64_t *")
    data, found = ffi.from_buffer("uint8_t *", file), []
    while at[0] < len(file):
        count = lib.rmq_published_marks(mark_range, data, at[0], len(file), len(file), 0, marks, counts, room, at)
        found += [(int(marks[number]), int(counts[number])) for number in range(count)]
    return found


@pytest.mark.parametrize("mark_range", [lib.RMQ_MARK_RANGE_STAGED, lib.RMQ_ROLE_TRANSACTIONS])
@pytest.mark.parametrize("seed", range(20))
def test_marks_beside_their_twin(seed: int, mark_range: int) -> None:
    file = random_file(random.Random(seed), 0)
    assert marks_of(file, mark_range, 1000) == marks_twin(file, mark_range)


def test_a_copy_of_a_committed_message_keeps_its_mark() -> None:
    """A consumer sends a message of a transaction back. Its delayed copy has the bits of the commit."""
    mark = mark_of(lib.RMQ_ROLE_DELAY, 3, 7)
    assert marks_of(stored(sys_flag=8, prepared=mark), lib.RMQ_ROLE_DELAY, 9) == [(mark, 1)]
    assert not marks_of(stored(sys_flag=8, prepared=77), lib.RMQ_MARK_RANGE_STAGED, 9), "the place of its half"
