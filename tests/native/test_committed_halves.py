"""The scan for committed messages of transactions in C, beside its twin in Python."""

import random
from collections.abc import Iterator

import pytest

from ringmq.native import ffi, lib
from ringmq.store import record as records
from tests.store.copy_kit import stored


def twin(file: bytes, start: int, limit: int, end: int, file_start: int) -> tuple[list[int], int]:
    """(log offsets of the halves, place behind the last record that begins below the limit)."""
    found, at = [], start
    while at < limit:
        result, record = records.parse_record(file[at:end])
        if result == records.OK and record is not None and record.physical_offset == file_start + at:
            if record.transaction_type == 8 and record.prepared_transaction_offset > 0:
                found.append(record.prepared_transaction_offset)
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


def scan(file: bytes, begin: int, limit: int, end: int, file_start: int, room: int) -> Iterator[tuple[list[int], int]]:
    """The steps of the scan in C."""
    halves, at = ffi.new("uint64_t[]", room), ffi.new("uint64_t *", begin)
    data = ffi.from_buffer("uint8_t *", file)
    while at[0] < limit:
        count = lib.rmq_committed_halves(data, at[0], limit, end, file_start, halves, room, at)
        yield [int(halves[number]) for number in range(count)], int(at[0])


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


def test_the_scan_finds_something() -> None:
    dice = random.Random(1)
    file = random_file(dice, 0)
    assert len(twin(file, 0, len(file), len(file), 0)[0]) > 3
