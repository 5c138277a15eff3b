"""The part of a turn that a connection gets, and the wait of an honest client beside greedy ones."""

import random
import subprocess
from pathlib import Path

import pytest
import turn_twin as twin

from ringmq.native import lib
from tests.native.sanitized import build_driver

SMALL_BYTES, LARGE_BYTES = 64, 60_000
MOST_TURNS = 3
CLIENTS, MUCH_BYTES, LITTLE_BYTES = 20, 3 << 20, 1000
"""Of send_driver.c."""


def printed(*command: object) -> list[list[int]]:
    """The numbers that a driver prints, by line."""
    words = [str(word) for word in command]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled simulation of receiving."""
    return Path(build_driver("turn_driver.c", tmp_path_factory.mktemp("turns")))


@pytest.mark.parametrize("is_new", [False, True], ids=["old connection", "new connection"])
@pytest.mark.parametrize(
    ("greedy", "frame_bytes"),
    [(8, LARGE_BYTES), (64, SMALL_BYTES), (64, LARGE_BYTES), (200, LARGE_BYTES), (1000, SMALL_BYTES)],
)
def test_an_honest_client_waits_a_few_turns(driver: Path, greedy: int, frame_bytes: int, *, is_new: bool) -> None:
    [[waited, frames]] = printed(driver, greedy, frame_bytes, int(is_new))
    assert waited <= MOST_TURNS
    assert 0 < frames <= twin.UNITS_OF_TURN + twin.UNITS + twin.UNITS_LATE * (greedy + 1)


def test_a_turn_hands_over_little_at_once_and_much_in_parts(tmp_path: Path) -> None:
    turns = printed(build_driver("send_driver.c", tmp_path))
    assert turns[0][1] == LITTLE_BYTES, "behind those with much"
    assert max(all_bytes for all_bytes, _ in turns) <= twin.BYTES_OF_TURN + twin.SEND_BYTES + LITTLE_BYTES
    assert sum(all_bytes for all_bytes, _ in turns) == CLIENTS * MUCH_BYTES + LITTLE_BYTES


def test_a_connection_always_gets_something_of_a_turn() -> None:
    assert lib.rmq_turn_units(0) > lib.rmq_turn_units(1 << 31) >= lib.RMQ_TURN_PULL
    assert lib.rmq_turn_send_bytes(1000, 1 << 40) == 1000


def test_the_rules_are_those_of_the_twin() -> None:
    dice = random.Random(1)
    edges = [
        n + d for n in (twin.UNITS_OF_TURN, twin.ONCE_BYTES, twin.SEND_BYTES, twin.BYTES_OF_TURN) for d in (-1, 0, 1)
    ]
    numbers = [*edges, *(dice.randrange(1 << dice.randrange(1, 32)) for _ in range(200))]
    for used in numbers:
        assert lib.rmq_turn_units(used) == twin.units(used)
        for waiting in numbers:
            assert lib.rmq_turn_send_bytes(waiting, used) == twin.send_bytes(waiting, used)
