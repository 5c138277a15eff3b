"""The C scan and the plain-Python one find the same records at the same places, on whole and on damaged bytes."""

import random
from pathlib import Path

import numpy as np
import pytest

from ringmq.spark_bridge.scan import scan_log, scan_log_plainly


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def assert_equal(data: bytes, begin: int, end: int, start: int) -> int:
    fast, plain = scan_log(data, begin, end, start), scan_log_plainly(data, begin, end, start)
    assert (fast.stopped_at, fast.reason, len(fast.rows)) == (plain.stopped_at, plain.reason, len(plain.rows))
    for name in fast.rows.dtype.names or ():
        np.testing.assert_array_equal(fast.rows[name], plain.rows[name], name)
    np.testing.assert_array_equal(fast.keys, plain.keys)
    return len(fast.rows)


def test_all_golden_records(golden_store: Path) -> None:
    found = 0
    for path in segments(golden_store):
        data = path.read_bytes()
        found += assert_equal(data, 0, len(data), int(path.name))
    assert found == 4302


@pytest.mark.parametrize("seed", range(40))
def test_damaged_and_cut_bytes(golden_store: Path, seed: int) -> None:
    dice = random.Random(seed)
    path = segments(golden_store)[0]
    data = bytearray(path.read_bytes()[: dice.randrange(100, 40_000)])
    for _ in range(dice.randrange(4)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    assert_equal(bytes(data), 0, len(data), int(path.name))
