"""Shares of open half messages: their keys, counts and refusals beside the twins."""

import random
from typing import Any

import pytest

from ringmq.ipc.admission import Rule, RuleKind, rules_struct
from ringmq.ipc.half_shares import HalfCounts, full, remark
from ringmq.native import ffi, lib
from ringmq.services.transactions.half_table import Half, HalfTable
from tests.native.name_hash_twin import SECRET, name_hash

OWN = [(number << 16 | number, number << 18 | number) for number in range(1, 4)]
"""Keys of hosts and groups that share no cell."""
V4, V6 = b"\x0a\0\0\1", bytes(range(16))


def keys_of(host: bytes, properties: bytes) -> tuple[int, int]:
    found = lib.rmq_half_keys_of(SECRET, host.ljust(16, b"\0"), len(host) == 16, properties, len(properties))
    return found.host, found.group


@pytest.mark.parametrize(
    ("properties", "group"),
    [
        (b"PGROUP\x01P\x02", b"P"),
        (b"A\x01b\x02PGROUP\x01P\x02PGROUP\x01Q", b"Q"),
        (b"PGROUP\x01P\x02PGROUP\x01\x02", b"P"),
        (b"XPGROUP\x01P\x02", b""),
        (b"", b""),
    ],
)
def test_the_keys_of_a_half(properties: bytes, group: bytes) -> None:
    assert keys_of(V4, properties) == (name_hash(SECRET, V4), name_hash(SECRET, group))
    assert keys_of(V6, properties) == (name_hash(SECRET, V6[:8]), name_hash(SECRET, group)), (
        "a host of IPv6 is a network"
    )


def shares_with(open_count: int, arrived: int, of_host: int, of_group: int) -> Any:
    shares = ffi.new("struct rmq_half_shares *")
    shares.open, shares.arrived = open_count, arrived
    for cells, key, count in ((shares.hosts, 7 << 16 | 5, of_host), (shares.groups, 9, of_group)):
        for _ in range(count):
            lib.rmq_half_add(ffi.addressof(cells), key, 1)
    return shares


@pytest.mark.parametrize("seed", range(60))
def test_room_and_remark_beside_their_twins(seed: int) -> None:
    dice = random.Random(seed)
    limits = [dice.randrange(1, 9) for _ in range(3)]
    rule = Rule(
        RuleKind.REDIRECT, b"TRAN_MSG", halves_max=limits[0], host_halves_max=limits[1], group_halves_max=limits[2],
        half_topic_id=1,
    )  # fmt: skip
    open_count, arrived, end, of_host, of_group = (dice.randrange(8) for _ in range(5))
    shares, keys = shares_with(open_count, arrived, of_host, of_group), ffi.new("struct rmq_half_keys *")
    keys.host, keys.group = 7 << 16 | 5, 9
    struct, number = rules_struct([rule]), ffi.new("uint64_t *")
    native = ffi.addressof(struct.rules[0])
    share = lib.rmq_half_room(shares, native, end, keys[0], number)
    counts = HalfCounts(open_count + max(0, end - arrived), of_host, of_group)
    assert share == full(rule, counts)
    if share != lib.RMQ_HALF_FITS:
        text = ffi.new("char[]", lib.RMQ_HALF_REMARK_MAX)
        lib.rmq_half_remark(text, share, native, number[0])
        assert ffi.string(text).decode() == remark(share, rule, counts)


def test_the_longest_remark_is_whole() -> None:
    rule = Rule(RuleKind.REDIRECT, b"TRAN_MSG", halves_max=1, host_halves_max=1, group_halves_max=(1 << 32) - 1,
                half_topic_id=1)  # fmt: skip
    counts = HalfCounts(0, 0, (1 << 64) - 1)
    struct, text = rules_struct([rule]), ffi.new("char[]", lib.RMQ_HALF_REMARK_MAX)
    lib.rmq_half_remark(text, lib.RMQ_HALF_GROUP_FULL, ffi.addressof(struct.rules[0]), counts.of_group)
    assert ffi.string(text).decode() == remark(lib.RMQ_HALF_GROUP_FULL, rule, counts)


def test_a_key_that_shares_one_cell_has_its_own_count() -> None:
    cells = ffi.new("struct rmq_half_cells *")
    for key, count in ((1 << 16 | 1, 3), (1 << 16 | 2, 5), (2 << 16 | 1, 7)):
        for _ in range(count):
            lib.rmq_half_add(cells, key, 1)
    assert lib.rmq_half_count(cells, 1 << 16 | 2) == 5
    assert lib.rmq_half_count(cells, 2 << 16 | 1) == 7
    assert lib.rmq_half_count(cells, 2 << 16 | 2) == 5, "both cells are those of others"
    lib.rmq_half_add(cells, 9, -1)
    assert lib.rmq_half_count(cells, 9) == 0, "a dead worker had counted it in one row"


@pytest.mark.parametrize("seed", range(5))
def test_a_table_counts_its_halves(seed: int) -> None:
    """A replacement finds counts of a dead worker, and replaces them. Each end counts one less."""
    dice = random.Random(seed)
    shares, table = shares_with(4, 4, 3, 2), HalfTable(SECRET)
    for first in range(20):
        table.add(Half(first, first, 0, -1, 0))
        row = table.native.rows[first]
        row.keys.host, row.keys.group = dice.choice(OWN)
    keys = {first: (table.native.rows[first].keys.host, table.native.rows[first].keys.group) for first in range(20)}
    for first in dice.sample(range(20), 5):
        table.end(first)
        del keys[first]
    table.share(shares)
    for first in dice.sample(sorted(keys), 10):
        table.end(first)
        del keys[first]
        for column, cells in enumerate((shares.hosts, shares.groups)):
            for key in (7 << 16 | 5, *(found[column] for found in OWN)):
                count = sum(found[column] == key for found in keys.values())
                assert lib.rmq_half_count(ffi.addressof(cells), key) == count
    assert len(table) == len(keys) == 5
