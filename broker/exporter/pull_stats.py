"""The pulls of groups, matched with the tables that their entries name."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ringmq.broker.exporter.tables import Ints


def _none() -> Ints:
    return np.zeros(0, np.int64)


class PullStatsIndex(Struct, frozen=True):
    """The match. It stays valid until a table has more entries, because no table ever moves or renames an entry."""

    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Keys of all entries."""
    counts: tuple[int, int, int] = (0, 0, 0)
    """Number of offsets, groups and queues at the time of the match."""
    known: Ints = field(default_factory=_none)
    """Entries whose group and queue are in the tables."""
    pairs: Ints = field(default_factory=_none)
    """For each known entry, group id << 32 | topic id."""
    alone: tuple[Ints, Ints] = field(default_factory=lambda: (_none(), _none()))
    """Entries whose group pulls from one reader, and the entries of the offset table that they belong to."""
    together: tuple[Ints, Ints] = field(default_factory=lambda: (_none(), _none()))
    """The same for groups that pull from several readers. The latest of their entries holds the next offset."""

    def latest(self, stats: NDArray[Any], count: int) -> Ints:
        """For each of `count` entries of the offset table, the entry of the latest pull. -1 = it has no stats."""
        result = np.full(count, -1, np.int64)
        entries, about = self.alone
        result[about] = entries
        entries, about = self.together
        by_time = np.argsort(stats["time_mono_ms"][entries], kind="stable")
        result[about[by_time]] = entries[by_time]  # of one place the last is kept
        return result

    def next_offsets(self, stats: NDArray[Any], count: int) -> Ints:
        """For each of `count` entries of the offset table, the next offset that its group gets. -1 = it has no
        stats."""
        return column_at(stats["next_offset"], self.latest(stats, count), -1)


def column_at(column: NDArray[Any], entries: Ints, missing: int) -> Ints:
    """The values of these entries, `missing` for an entry of -1."""
    result = np.full(len(entries), missing, np.int64)
    known = entries >= 0
    result[known] = column[entries[known]]
    return result


def index_of(
    last: PullStatsIndex, stats: NDArray[Any], offsets: NDArray[Any], groups: NDArray[Any], queues: NDArray[Any]
) -> PullStatsIndex:
    """`last` while it is valid, else an index of these tables. Sorting takes 3 ms for 16,000 entries."""
    counts = (len(offsets), len(groups), len(queues))
    if counts == last.counts and np.array_equal(stats["key"], last.keys):
        return last
    keys = stats["key"].astype(np.int64)
    group_ids, slots = keys >> 32, keys & 0xFFFFFFFF
    known = np.flatnonzero((slots < len(queues)) & (group_ids < len(groups)))
    topic_ids = queues["topic_id"].astype(np.int64)[slots[known]]
    pairs = group_ids[known] << 32 | topic_ids
    wanted = offsets["group_id"].astype(np.int64) << 32 | offsets["queue_slot"].astype(np.int64)
    order = np.argsort(wanted)
    at = np.searchsorted(wanted, keys, sorter=order)
    entries = np.flatnonzero(at < len(wanted))
    entries = entries[wanted[order[at[entries]]] == keys[entries]]
    about = order[at[entries]]
    shared = np.bincount(about, minlength=len(wanted))[about] > 1
    alone, together = (entries[~shared], about[~shared]), (entries[shared], about[shared])
    return PullStatsIndex(keys.astype(np.uint64), counts, known, pairs, alone, together)
