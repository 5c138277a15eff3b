"""The rules for half frames and for connections that end in a shortage, by example and against their twin."""

import random

import eviction_twin as twin
import pytest

from ringmq.native import lib

TIMEOUT_MS = 30_000
CASES = 20_000


@pytest.mark.parametrize(
    ("free", "expected_ms"),
    [(1000, 30_000), (500, 30_000), (400, 15_360), (250, 3750), (125, 450), (50, 250), (0, 250)],
)
def test_the_time_for_a_half_frame_shrinks_with_the_free_memory(free: int, expected_ms: int) -> None:
    assert lib.rmq_frame_time_ms(TIMEOUT_MS, free, 1000) == expected_ms
    assert lib.rmq_frame_time_ms(100, free, 1000) == 100


def test_announcing_a_large_frame_costs_next_to_nothing() -> None:
    assert lib.rmq_frame_first_bytes(16_000_000, 6, 1) == 16_384
    assert lib.rmq_frame_first_bytes(16_000_000, 6, 0) == 6
    assert lib.rmq_frame_first_bytes(100_000, 65_536, 1) == 100_000


def test_a_frame_that_comes_at_its_pace_is_never_late_for_want_of_memory_nor_makes_room() -> None:
    for taken_ms in range(0, 16_000, 50):
        there = taken_ms * lib.RMQ_FRAME_PACE
        assert lib.rmq_frame_lateness(TIMEOUT_MS, lib.RMQ_FRAME_FLOOR_MS, there, taken_ms) == lib.RMQ_FRAME_ON_TIME
        assert lib.rmq_frame_behind(16 << 20, there, taken_ms) == 0


def test_a_bare_announcement_goes_before_a_frame_that_comes_slowly() -> None:
    claim = lib.rmq_frame_behind(16_000_000, 6, 1000)
    slow = lib.rmq_frame_behind(1_000_000, 600_000, 1000)
    assert lib.rmq_block_victim_rank(claim, 500, 0) > lib.rmq_block_victim_rank(slow, 500, 0)
    assert lib.rmq_block_victim_rank(0, 500, 0) == 0


def test_buffers_come_from_clients_that_read_nothing_first() -> None:
    silent = lib.rmq_buffer_victim_rank(1, 0, 5000)
    waits_for_much = lib.rmq_buffer_victim_rank(1, 4_000_000, 100)
    waits_for_little = lib.rmq_buffer_victim_rank(30, 8192, 5000)
    reading = lib.rmq_buffer_victim_rank(30, 0, 50)
    assert silent > reading > waits_for_much > waits_for_little > lib.rmq_buffer_victim_rank(0, 0, 5000) == 0


def test_the_rules_are_those_of_the_twin() -> None:
    dice = random.Random(1)

    def number(most: int) -> int:
        return dice.choice([0, 1, most, dice.randrange(most + 1), dice.randrange(1 + min(most, 500))])

    for _ in range(CASES):
        total, there, taken_ms, limit_ms = number(16 << 20), number(16 << 20), number(1 << 33), number(86_400_000)
        flag = dice.random() < 0.5
        assert lib.rmq_frame_first_bytes(total, there, flag) == twin.first_bytes(total, there, many=flag)
        free, every = number(1 << 20), number(1 << 20)
        assert lib.rmq_frame_time_ms(limit_ms, free, every) == twin.time_ms(limit_ms, free, every)
        timeout_ms = number(86_400_000)
        args = timeout_ms, limit_ms, there, taken_ms
        assert lib.rmq_frame_lateness(*args) == twin.lateness(*args)
        lag = lib.rmq_frame_behind(total, there, taken_ms)
        assert lag == twin.behind(total, there, taken_ms)
        assert lib.rmq_answer_victim_rank(there, taken_ms) == twin.answer_rank(there, taken_ms)
        run = number(1 << 20)
        assert lib.rmq_block_victim_rank(lag, run, flag) == twin.block_rank(lag, run, crumb=flag)
        assert lib.rmq_waiting_victim_rank(total, taken_ms, run) == twin.waiting_rank(total, taken_ms, run)
        weight = lib.rmq_waiting_weight(total, flag, taken_ms)
        assert weight == twin.waiting_weight(total, has_sent=flag, since_ms=taken_ms)
        weight = weight if dice.random() < 0.5 else 0
        assert lib.rmq_buffer_victim_rank(run, weight, taken_ms) == twin.buffer_rank(run, weight, taken_ms)
