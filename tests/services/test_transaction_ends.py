"""Ends of transactions before their halves have arrived: C and its twin agree about the next step."""

import random
from pathlib import Path

import pytest
from plane_kit import Kit

from ringmq.native import ffi, lib
from ringmq.services.transactions.ends import COMMIT, Arrival, End
from ringmq.services.transactions.ends_twin import READY, WAITS, readiness
from ringmq.services.transactions.half_table import ENDED, OPEN, SENT, Half, HalfTable

NOW = Arrival(append_end=900, dispatched=700, end=50, arrived=40, is_full=False)
MISSING, FULL = lib.RMQ_END_MISSING, lib.RMQ_END_FULL


def both(offset: int, position: int, halves: Arrival) -> int:
    marks, fields = ffi.new("struct rmq_half_marks *"), ffi.new("struct rmq_end_fields *")
    marks.append_end, marks.dispatched, marks.end, marks.arrived, marks.is_full = halves
    fields.queue_offset, fields.position = offset, position
    found = int(lib.rmq_end_readiness(marks, fields))
    assert found == readiness(End("P", offset, position, COMMIT), halves)
    return found


@pytest.mark.parametrize(
    ("offset", "position", "next_step"),
    [
        (39, 699, READY),
        (40, 699, WAITS),
        (49, 0, WAITS),
        (50, 699, READY),  # a lie: it would wait for ever
        (1 << 62, -1, READY),
        (-1, -1, READY),
        (39, 700, WAITS),
        (60, 899, WAITS),
        (60, 900, MISSING),
        (0, 1 << 62, MISSING),
    ],
)
def test_the_next_step_for_an_end(offset: int, position: int, next_step: int) -> None:
    assert both(offset, position, NOW) == next_step
    full = FULL if next_step == WAITS and position < NOW.dispatched else next_step
    assert both(offset, position, NOW._replace(is_full=True)) == full
    arrived = next_step if position >= NOW.dispatched else READY
    assert both(offset, position, NOW._replace(arrived=NOW.end)) == arrived


def test_random_ends() -> None:
    dice = random.Random(5)
    found = set()
    for _ in range(5000):
        dispatched, arrived = dice.randrange(9), dice.randrange(9)
        halves = Arrival(
            dispatched + dice.randrange(3), dispatched, arrived + dice.randrange(3), arrived, dice.random() < 0.5
        )
        found.add(both(dice.randrange(-2, 12), dice.randrange(-2, 12), halves))
    assert found == {READY, WAITS, MISSING, FULL}


FSYNC_FAILED = 14
"""Code of a completion whose record has bytes, but may not be on disk."""


@pytest.mark.parametrize(
    ("copy", "op_record", "state"),
    [
        ((0, 100), (0, 80), ENDED),
        ((FSYNC_FAILED, 100), (0, 80), OPEN),
        ((0, 100), (FSYNC_FAILED, 80), OPEN),
        ((1, 0), (1, 0), OPEN),
    ],
)
def test_an_end_counts_if_its_whole_chain_is_stored(
    tmp_path: Path, copy: tuple[int, int], op_record: tuple[int, int], state: int
) -> None:
    """`copy` and `op_record`: codes and bytes of both completions of the chain."""
    kit, halves = Kit(tmp_path / "store"), HalfTable()
    halves.add(Half(7, 7, 0, -1, 0))
    halves.native.rows[0].state = SENT
    chains = ffi.new("struct rmq_end_chains *", {"busy_chains": 1})
    chain = chains.chains[2]
    chain.count, chain.waiting = 1, 2
    chain.ends[0].first, chain.ends[0].fields.commit_or_rollback = 7, lib.RMQ_END_COMMIT
    ring = kit.header.ports.port[0].completed
    for at, (code, size) in enumerate((copy, op_record)):
        completion = kit.slot("struct rmq_completion *", ring, at)
        completion.token, completion.generation = 2 << 8 | at, kit.header.ports.port[0].generation
        completion.code, completion.bytes, completion.commit_log_offset = code, size, 1000 + at
    ring.head = 2
    assert lib.rmq_end_chains_collect(kit.plane, chains, halves.native, ffi.NULL, 1) == 0
    is_stored = state == ENDED
    assert halves.native.rows[0].state == state
    assert (chains.committed, chains.log_end, chains.busy_chains) == ((1, 1100, 0) if is_stored else (0, 0, 1))
    assert (chain.count, chains.unfinished) == ((0, 0) if is_stored else (1, 1))
