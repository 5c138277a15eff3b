"""Hashes of names and of pairs of ids: SipHash-1-3 in C as in Python, and the cost of keys that peers choose.

The costs are numbers of cells: no search looks at more than the longest run of cells in use. The keys share one cell
under hashes without a secret, which any peer can compute.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from name_hash_twin import SECRET, name_hash, numbered_name_hash, pair_hash, siphash

from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import plane_name, remove_segments
from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.timer.topic_counts import TopicCounts

KEYS, RUN_MAX = 3000, 100
SIZES = Capacity(
    topics=4096, queues=4096, groups=4096, subscriptions=4096, offsets=4096, parked_slots=64, commit_slots=8,
    arrived_slots=8,
)  # fmt: skip
WORD, HALF = 2**64, 2**32
PAIR_FACTOR, STEP_FACTOR, TIMER_FACTOR, FNV_FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 2654435761, 16777619


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    name = plane_name(tmp_path)
    yield Plane.create(name, SIZES, tmp_path.stat(), 1, ffi.new("uint64_t[2]", SECRET))
    remove_segments(name)


def clashing_names() -> list[bytes]:
    """Names of 16 bytes whose hash without a secret is the same 32 bits."""
    names = []
    for number in range(KEYS):
        state = (16 ^ number) * STEP_FACTOR % WORD
        names.append(number.to_bytes(8, "little") + (state ^ state >> 32 ^ 7).to_bytes(8, "little"))
    return names


def clashing_pairs() -> list[tuple[int, int]]:
    """Pairs that were all 0 under a product's upper half."""
    inverse = pow(PAIR_FACTOR, -1, WORD)
    return [divmod(number * inverse % WORD, HALF) for number in range(1, KEYS + 1)]


def clashing_queues(topic: bytes) -> list[int]:
    """Queue ids of a topic that were all 0 under FNV."""
    inverse, ids = pow(FNV_FACTOR, -1, HALF), []
    for number in range(KEYS):
        state = number << 17
        state ^= state >> 15  # a fold, which was the last step
        for byte in reversed(topic):
            state = state * inverse % HALF ^ byte
        ids.append(signed(state ^ 2166136261))
    return ids


def signed(number: int) -> int:
    return number - HALF if number >= HALF // 2 else number


def longest_run(cells: Sequence[int]) -> int:
    """The longest run of cells in use, over the end as well."""
    free = [at for at, cell in enumerate(cells) if not cell]
    return max(after - at - 1 for at, after in pairwise([*free, free[0] + len(cells)]))


def plane_cells(plane: Plane, table: str) -> list[int]:
    tables = plane.header.tables
    at = ffi.cast("uint32_t *", plane.struct.base + getattr(tables, f"{table}_hash_at"))
    return list(at[0 : getattr(tables, f"{table}_hash_size")])


def add_topics(plane: Plane) -> list[int]:
    assert all(lib.rmq_topic_add(plane.struct, name, len(name), 0) != lib.RMQ_NONE for name in clashing_names())
    return plane_cells(plane, "topic")


def add_groups(plane: Plane) -> list[int]:
    assert all(lib.rmq_group_add(plane.struct, name, len(name), 1) != lib.RMQ_NONE for name in clashing_names())
    return plane_cells(plane, "group")


def add_queues(plane: Plane) -> list[int]:
    assert [plane.queue_add(*pair, 0, 0) for pair in clashing_pairs() if pair[1]] == list(range(KEYS))
    return plane_cells(plane, "queue")


def add_subscriptions(plane: Plane) -> list[int]:
    for pair in clashing_pairs():
        plane.subscription_set(*pair, lib.RMQ_SUBSCRIPTION_ALL, 1, [])
    return plane_cells(plane, "subscription")


def add_offsets(plane: Plane) -> list[int]:
    for pair in clashing_pairs():
        plane.offset_put(*pair, 1)
    assert all(plane.offset_get(*pair) == 1 for pair in clashing_pairs())
    return plane_cells(plane, "offset")


def add_pulls(plane: Plane) -> list[int]:
    number = plane.port_of(lib.RMQ_ROLE_READ)
    for pair in clashing_pairs():
        lib.rmq_pull_stats_add(plane.struct, number, *pair, 1, 1, 1, 1)
    assert plane.header.ports.port[number].pull_stats.count == KEYS
    at = ffi.cast("uint32_t *", plane.struct.base + plane.header.ports.port[number].pull_stats_cells_at)
    return list(at[0 : lib.RMQ_PULL_STATS_CELLS])


@pytest.mark.parametrize("fill", [add_topics, add_groups, add_queues, add_subscriptions, add_offsets, add_pulls])
def test_a_table_of_the_plane_has_short_runs(plane: Plane, fill: Callable[[Plane], list[int]]) -> None:
    cells = fill(plane)
    assert sum(map(bool, cells)) == KEYS and longest_run(cells) < RUN_MAX


def test_expressions_have_hashes_of_their_own(plane: Plane) -> None:
    texts = clashing_names()[: lib.RMQ_FILTERS_MAX]
    assert all(lib.rmq_filter_put(plane.struct, slot, text, 16, b"p", 1) == 1 for slot, text in enumerate(texts))
    hashes = list(plane.header.filters.hashes)
    assert hashes == [name_hash(SECRET, text) | 1 for text in texts]
    assert len(set(hashes)) == len(texts)


def test_queues_of_a_scan_have_short_runs() -> None:
    table = ffi.gc(lib.rmq_queue_table_new(ffi.new("uint64_t[2]", SECRET)), lib.rmq_queue_table_free)
    for queue_id in clashing_queues(b"Topic"):
        assert lib.rmq_queue_table_row(table, b"Topic", 5, queue_id).queue_id == queue_id
    cells = list(table.buckets[0 : table.buckets_size])
    assert sum(map(bool, cells)) == KEYS and longest_run(cells) < RUN_MAX


def test_timer_topics_have_short_runs() -> None:
    counts = TopicCounts(ffi.new("struct rmq_timer_files *"), 0)
    counts.struct.secret = SECRET
    inverse, unit = pow(TIMER_FACTOR, -1, HALF), ffi.new("struct rmq_timer_unit *", {"size": 100})
    for number in range(KEYS):
        unit.topic_hash = signed(number * inverse % HALF)
        row = lib.rmq_timer_topic_of(counts.struct, unit)
        assert counts.struct.rows[row].topic_hash == unit.topic_hash
    rows = counts.struct.rows[0 : lib.RMQ_TIMER_TOPICS]
    assert counts.struct.used == KEYS and longest_run([row.record_bytes for row in rows]) < RUN_MAX


def name_table(secret: Any, names: list[tuple[bytes, int]], slot_count: int) -> list[int]:
    """The slots of a table with these names."""
    texts = [ffi.from_buffer("uint8_t[]", name) for name, _ in names]
    rows = ffi.new(
        "struct rmq_name[]", [(text, len(text), number) for text, (_, number) in zip(texts, names, strict=True)]
    )
    slots = ffi.new("uint32_t[]", slot_count)
    table = ffi.new("struct rmq_name_table *", [rows, slots, len(names), slot_count - 1, secret])
    lib.rmq_name_table_fill(table)
    return list(slots)


def test_a_table_of_names_has_short_runs() -> None:
    slots = name_table(SECRET, [(name, 0) for name in clashing_names()], 8192)
    assert sum(map(bool, slots)) == KEYS and longest_run(slots) < RUN_MAX


def test_c_hashes_as_the_twin_does(plane: Plane) -> None:
    dice = random.Random(9)
    names = {dice.randbytes(length) for length in range(1, 256) for _ in range(3)}
    for name in names:
        topic = lib.rmq_topic_at(plane.struct, lib.rmq_topic_add(plane.struct, name, len(name), 0))
        group = lib.rmq_group_at(plane.struct, lib.rmq_group_add(plane.struct, name, len(name), 0))
        assert topic.name_hash == group.name_hash == name_hash(SECRET, name)
        number = dice.randrange(-HALF // 2, HALF // 2)
        slots = name_table(SECRET, [(name, number)], 4096)
        assert slots[numbered_name_hash(SECRET, name, number) % 4096] == 1
    pairs = [(dice.randrange(HALF), dice.randrange(HALF)) for _ in range(200)]
    for pair in pairs:
        plane.offset_put(*pair, 5)
    cells = plane_cells(plane, "offset")
    homes = [pair_hash(SECRET, *pair) % len(cells) for pair in pairs]
    assert sum(cells[home] == number + 1 for number, home in enumerate(homes)) >= len(set(homes))


def test_the_twin_is_siphash() -> None:
    assert siphash(SECRET, b"") == 0xABAC0158050FC4DC, "of the authors' table for 1-3"
    assert sys.hash_info.algorithm == "siphash13"
    texts = [bytes(range(length)) for length in range(1, 70)]
    program = "print(*(hash(bytes(range(length))) for length in range(1, 70)))"
    environ = {**os.environ, "PYTHONHASHSEED": "0"}  # a secret of zeros
    shown = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, check=True).stdout
    assert [siphash((0, 0), text) for text in texts] == [int(number) % WORD for number in shown.split()]


def test_names_of_one_cell_part_under_another_secret() -> None:
    names = [b"Topic-%d" % number for number in range(6000)]
    clash = [name for name in names if name_hash(SECRET, name) % 64 == 0]
    assert len(clash) > 60
    assert len({name_hash((SECRET[0], SECRET[1] ^ 1), name) % 64 for name in clash}) > 32


def test_every_plane_draws_a_secret(tmp_path: Path) -> None:
    seen, name = set(), plane_name(tmp_path)
    try:
        for _ in range(3):
            plane = Plane.create(name, SIZES, tmp_path.stat(), 1)
            plane.topic_add("Topic", 0)
            other = Plane.open(name)
            assert list(other.header.name_secret) == list(plane.header.name_secret)
            assert lib.rmq_topic_at(plane.struct, 1).name_hash == name_hash(plane.header.name_secret, b"Topic")
            seen.add(tuple(plane.header.name_secret))
    finally:
        remove_segments(name)
    assert len(seen) == 3 and all(all(secret) for secret in seen)
    assert list(table_secret()) != list(table_secret())
