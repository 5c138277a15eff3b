"""Stores whose queues end before a stream's place, and may be on the way back to it.

A slave that begins anew (its log, its queues, or both) gets what it had once more, in the order of the log. Its queues
are short then, the log's folder is the same, and nothing is lost. A log that has come to rows younger than the place
has passed all that the place covers: what is missing will not come. Until then there is nothing new to read either.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.slices import QueueKey

LOOKS_MAX: Final = 64  # queues that are asked for younger rows: each takes a search in its files

_log = logging.getLogger("ringmq.spark_bridge")


@dataclass(frozen=True, slots=True)
class _Refill:
    """The ends of a broker's queues, when they were seen to change last, and whether the rest is not waited for."""

    ends: Mapping[QueueKey, int]
    changed_at: float
    is_over: bool


class Refills:
    """Remembers which brokers are waited for, and since when nothing has come."""

    def __init__(self, idle_max_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle_max_s = idle_max_s
        self._clock = clock
        self._refills: dict[str, _Refill] = {}

    def held(
        self, brokers: Collection[str], ends: Mapping[QueueKey, int], given_at_ms: int, catalog: Catalog
    ) -> set[str]:
        """Those of `brokers`, which have queues that end too early, whose rows may still come; `ends` are those of all
        queues now. A place of which it is not known when it was given (0) waits for nobody."""
        for broker in self._refills.keys() - brokers:
            del self._refills[broker]
        known = set(self._refills)
        for broker in brokers:
            own = {key: end for key, end in ends.items() if key.broker == broker}
            self._refills[broker] = self._looked_at(self._refills.get(broker), own, given_at_ms, catalog)
        held = {broker for broker, refill in self._refills.items() if not refill.is_over}
        if held - known:
            _log.warning(
                "%s: queues end before the query's place, in a log without newer rows. They keep their place while "
                "more rows come, and %d s longer",
                sorted(held - known),
                self._idle_max_s,
            )
        return held

    def _looked_at(
        self, before: _Refill | None, ends: Mapping[QueueKey, int], given_at_ms: int, catalog: Catalog
    ) -> _Refill:
        now = self._clock()
        if before is None:
            before = _Refill({}, now, is_over=given_at_ms == 0)
        if before.is_over or ends == before.ends:
            return replace(before, is_over=before.is_over or now - before.changed_at > self._idle_max_s)
        changed = [key for key, end in ends.items() if end and end != before.ends.get(key)]
        has_newer = any(catalog.offset_at(key, given_at_ms + 1) is not None for key in changed[:LOOKS_MAX])
        return _Refill(ends, now, is_over=has_newer)
