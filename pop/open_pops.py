"""Check points and acknowledgements in any order, and the messages that are open by them. No IO."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from ringmq.pop.revive_records import CheckPoint, Pop, ReviveRecordError, read_record

GAP_MAX = 65_536
"""Messages between open ones that no record names, and that come again at once. Of more, the window begins in front of
them, and what is open behind comes again at once, too."""

_Key = tuple[str, str, int, int, int]
"""Topic, group, queue id, start offset and time of a pop. The broker's name may be missing in acknowledgements."""


class OpenPop(Struct):
    """One pop of one queue. `offsets`: its open messages."""

    pop: Pop
    invisible_ms: int
    revive_queue: int
    offsets: set[int]
    end: int
    """Queue offset behind its last message."""


def _key(pop: Pop) -> _Key:
    return pop[:5]


class OpenPops(Struct):
    """Collects records. A repeated check point counts once."""

    damaged: int = 0
    """Records that cannot be read."""
    damage: str = ""
    """The first of their faults."""
    _pops: dict[_Key, OpenPop] = field(default_factory=dict)
    _done: dict[_Key, set[int]] = field(default_factory=dict)

    def add(self, tag: str, body: bytes, revive_queue: int) -> None:
        """Add a record of this revive queue."""
        try:
            read = read_record(tag, body)
        except ReviveRecordError as error:
            self.damaged += 1
            self.damage = self.damage or str(error)
            return
        if not isinstance(read, CheckPoint):
            self._done.setdefault(_key(read.pop), set()).update(read.offsets)
            return
        end = read.pop.start_offset + max(read.distances, default=-1) + 1
        known = self._pops.get(_key(read.pop))
        if known is None:
            self._pops[_key(read.pop)] = OpenPop(read.pop, read.invisible_ms, revive_queue, set(read.open_offsets), end)
        else:
            known.offsets.update(read.open_offsets)
            known.end = max(known.end, end)

    def all(self) -> Iterator[OpenPop]:
        """All pops with a check point, also those without open messages."""
        for key, pop in self._pops.items():
            pop.offsets -= self._done.get(key, set())
            yield pop


def plan_window(
    committed: int, bounds: tuple[int, int], pops: list[OpenPop], *, was_killed: bool = True
) -> tuple[int, list[OpenPop], list[int]] | None:
    """(next offset, pops with open messages, offsets that no record names), None if nothing is open.

    `committed`: the consumer offset, -1 = none. `bounds`: offsets of the queue's first message and of its next one.

    A killed broker leaves an older consumer offset than its records, and pops that it has kept in memory alone. So
    what lies between the offset and the last record counts as done where a record says so, and else comes again. After
    a clean stop the offset is exact: records behind it are of the time before a reset, and what they name comes again
    as the group goes on.
    """
    low, end = bounds
    committed = min(committed, end)
    if not was_killed and committed >= 0:
        end = committed
    _cut(pops, end)
    reach = min(end, max((one.end for one in pops), default=0))
    following, begin = max(committed, reach), low if committed < 0 else committed
    missing: list[int] = []
    if was_killed and begin < reach:
        if reach - begin <= GAP_MAX:
            missing = _uncovered(pops, begin, reach)
        elif committed >= 0:
            following = committed
            _cut(pops, committed)
    pops = [one for one in pops if one.offsets]
    return (following, pops, missing) if pops or missing else None


def _cut(pops: list[OpenPop], end: int) -> None:
    for one in pops:
        one.offsets = {offset for offset in one.offsets if offset < end}


def _uncovered(pops: list[OpenPop], begin: int, reach: int) -> list[int]:
    """The offsets from `begin` to `reach` over which no pop reaches."""
    covered = [False] * (reach - begin)
    for one in pops:
        start, stop = max(one.pop.start_offset, begin), min(one.end, reach)
        if start < stop:  # a pop below `begin` has a negative end, which would cut the list
            covered[start - begin : stop - begin] = [True] * (stop - start)
    return [begin + at for at, is_covered in enumerate(covered) if not is_covered]
