"""Queues that end before a stream's offsets, and may catch up to them.

A slave that begins again (its log, its queues, or both) gets its records once more, in the order of the log. Until
then its queues are short, the log's folder is the same, and nothing is lost. A log that has reached rows younger than
the stream's offsets has passed all rows that the stream had read: missing rows will not come. Until then there are no
new rows either.

A queue that has caught up may have other rows than before: rows that a broker stored after it had lost its newest
ones. Their times reveal them.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.slices import QueueKey
from ringmq.spark_bridge.stream_core import LogEnd, Offsets

CLOCKS_APART_MS: Final = 1000  # of broker and driver; a broker that lost rows is away for longer than that
QUEUES_SEARCHED_MAX: Final = 64  # each takes a search of younger rows in its files

_log = logging.getLogger("ringmq.spark_bridge")


@dataclass(frozen=True, slots=True)
class _CatchUp:
    """The ends of a broker's queues, when they were seen to change last, and whether the rest is not waited for."""

    ends: Mapping[QueueKey, int]
    changed_at: float
    is_over: bool


@dataclass(frozen=True, slots=True)
class _Missing:
    """The stream's offset in a queue that ended before it, and the time of that offset."""

    place: int
    given_at_ms: int


def first_newer(key: QueueKey, given_at_ms: int, catalog: Catalog) -> int | None:
    """Return the first offset of a queue whose row is younger than a stream's offsets.

    None if there is no such row, or if the time of the stream's offsets is unknown (0).
    """
    if not given_at_ms:
        return None
    first = catalog.offset_at(key, given_at_ms + 1)
    if first is None or first == catalog.bounds(key)[0]:  # all of them: its topic was made again
        return first
    return catalog.offset_at(key, given_at_ms + CLOCKS_APART_MS)


class TruncatedQueues:
    """Remembers which queues ended before their places, which brokers are waited for, and since when nothing came."""

    def __init__(self, idle_max_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle_max_s = idle_max_s
        self._clock = clock
        self._catch_ups: dict[str, _CatchUp] = {}
        self._missing: dict[QueueKey, _Missing] = {}

    def missed(self, places: Offsets, given_at_ms: int) -> None:
        """Record that these queues end before the stream's offsets."""
        for key, place in places.items():
            known = self._missing.get(key)
            if known is None or known.place != place:
                self._missing[key] = _Missing(place, given_at_ms)

    def replaced(self, places: Offsets, log: LogEnd, catalog: Catalog) -> dict[QueueKey, int]:
        """Return the caught-up queues with younger rows, and the begin of these rows.

        The missing rows of such a queue are lost. Each queue is reported once, and the rest of its broker is not
        awaited.
        """
        back = {
            key: missing
            for key, missing in self._missing.items()
            if key.broker in log.brokers and log.offsets.get(key, -1) >= missing.place
        }
        found = {}
        for key, missing in back.items():
            first = first_newer(key, missing.given_at_ms, catalog)
            if first is not None and first < missing.place == places.get(key):
                found[key] = first
                self._catch_ups[key.broker] = _CatchUp({}, self._clock(), is_over=True)
        for key in back:
            del self._missing[key]
        return found

    def lost(self, places: Offsets, catalog: Catalog) -> dict[QueueKey, int]:
        """Return the queues with younger rows and the begin of these, among short queues that are not awaited."""
        found = {key: first_newer(key, self._missing[key].given_at_ms, catalog) for key in places}
        return {key: first for key, first in found.items() if first is not None}

    def held(self, places: Offsets, ends: Mapping[QueueKey, int], catalog: Catalog) -> set[str]:
        """Return the brokers of these short queues whose rows may still come. `ends` are the current ends of all
        queues.

        Stream offsets without a known time are not awaited.
        """
        brokers = {key.broker for key in places}
        for broker in self._catch_ups.keys() - brokers:
            del self._catch_ups[broker]
        known = set(self._catch_ups)
        for broker in brokers:
            own = {key: end for key, end in ends.items() if key.broker == broker}
            given_at_ms = min(self._missing[key].given_at_ms for key in places if key.broker == broker)
            self._catch_ups[broker] = self._looked_at(self._catch_ups.get(broker), own, given_at_ms, catalog)
        held = {broker for broker, catch_up in self._catch_ups.items() if not catch_up.is_over}
        if held - known:
            _log.warning(
                "%s: queues end before the query's place, in a log without newer rows. They keep their place while "
                "more rows come, and %d s longer",
                sorted(held - known),
                self._idle_max_s,
            )
        return held

    def _looked_at(
        self, before: _CatchUp | None, ends: Mapping[QueueKey, int], given_at_ms: int, catalog: Catalog
    ) -> _CatchUp:
        now = self._clock()
        if before is None:
            before = _CatchUp({}, now, is_over=given_at_ms == 0)
        if before.is_over or ends == before.ends:
            return replace(before, is_over=before.is_over or now - before.changed_at > self._idle_max_s)
        changed = [key for key, end in ends.items() if end and end != before.ends.get(key)]
        has_newer = any(first_newer(key, given_at_ms, catalog) is not None for key in changed[:QUEUES_SEARCHED_MAX])
        return _CatchUp(ends, now, is_over=has_newer)
