"""Growth of topics, of what groups get of topics, and of the broker, for request 315: from counters of the plane alone.

A pass over all counters begins every 10 s. It goes on in slices, so that it holds up no request. A topic that has grown
since the pass before is an item with windows, and so is a pair of a group and a topic. Counters that fall have begun
anew.

The number of items is bounded. An item ends after a day without growth. If there are too many, a new item takes the
place of the one that has not grown for the longest time, at least `IDLE_MS`; otherwise it is left out.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Protocol

from ringmq.broker.requests.turns import SLICE_MS, Steps, TurnClock
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.broker.tables.publication import entry_name
from ringmq.broker.tables.stats import Totals
from ringmq.broker.tables.windows import PERIODS_MS, Figures, Windows
from ringmq.remoting.names import is_system_topic

ITEMS_MAX = 16_384
IDLE_MS = 600_000
EXPIRY_MS = 86_400_000 + 3_600_000
"""A day and one period of its window: what is older shows 0 everywhere."""
STEP_ENTRIES = 128
"""Entries of one step, in some 0.3 ms."""
_LOW = 0xFFFFFFFF


class Counts(Protocol):
    """`ringmq.ipc.plane_counts.PlaneCounts`."""

    def queue_count(self) -> int: ...
    def queues(self, first: int, count: int) -> Iterable[tuple[int, int, int]]: ...
    def pull_tables(self) -> list[tuple[int, int]]: ...
    def pulls(self, port: int, first: int, count: int) -> Iterable[tuple[int, int, int]]: ...


class Statistics:
    """The items. A topic's key is its id, that of a group's gets of a topic `group id << 32 | topic id`."""

    def __init__(self, plane: PlaneProtocol, counts: Counts, items_max: int = ITEMS_MAX) -> None:
        self._plane, self._counts, self._items_max = plane, counts, items_max
        self._items: OrderedDict[int, Windows] = OrderedDict()
        """The one that has not grown for the longest time first."""
        self._last: dict[int, tuple[int, int]] = {}
        """Messages and bytes as of the last pass, of all topics and pairs."""
        self._of_broker = tuple(Windows() for _ in range(4))
        self._puts, self._gets, self._user_puts, self._user_gets = self._of_broker
        self._steps: Steps[bool] | None = None
        self._clock = TurnClock()
        self._next_ms = [0] * len(PERIODS_MS)
        self._pass_ms = 0
        self._totals: Totals | None = None

    def __len__(self) -> int:
        """Number of items."""
        return len(self._items)

    def prepare(self, now_ms: int) -> None:
        """Note the counters as they are. Called before the first request."""
        self._pass_ms = now_ms
        self._next_ms = [now_ms + period_ms for period_ms in PERIODS_MS]
        for found in self._sums():
            if found is not None:
                key, *counts = found
                self._last[key] = (counts[0], counts[1])

    def tick(self, now_ms: int, totals: Totals) -> None:
        """Go on with the pass, for some 2 ms of CPU time. A new one begins when it is due."""
        if self._totals is None:
            self._totals = totals  # of an earlier process of control
        if self._steps is None:
            if now_ms < self._next_ms[0]:
                return
            self._steps = self._pass(now_ms, totals, self._totals)
            self._totals = totals
        if self._clock.advance(self._steps, SLICE_MS):
            self._steps = None

    def topic(self, topic: str, *, of_bytes: bool) -> tuple[Figures, ...] | None:
        """Minute, hour and day of what came into a topic. None if nothing did."""
        topic_id = self._plane.topic_find(topic)
        return None if topic_id is None else _figures(self._items.get(topic_id), of_bytes=of_bytes)

    def gets(self, topic: str, group: str, *, of_bytes: bool) -> tuple[Figures, ...] | None:
        """The same of what a group has got of a topic."""
        topic_id, group_id = self._plane.topic_find(topic), self._plane.group_find(group)
        if topic_id is None or group_id is None:
            return None
        return _figures(self._items.get(group_id << 32 | topic_id), of_bytes=of_bytes)

    def broker(self, *, is_put: bool, with_system: bool) -> tuple[Figures, ...] | None:
        """The same of the whole broker. `with_system`: system topics count, too. Stock has no averages here."""
        puts, gets = (self._puts, self._gets) if with_system else (self._user_puts, self._user_gets)
        found = _figures(puts if is_put else gets, of_bytes=False)
        return None if found is None else tuple(Figures(one.sum, one.tps) for one in found)

    # ---- a pass ----

    def _pass(self, now_ms: int, totals: Totals, before: Totals) -> Steps[bool]:
        due = [number for number, next_ms in enumerate(self._next_ms) if now_ms >= next_ms]
        for number in due:
            period_ms = PERIODS_MS[number]
            self._next_ms[number] += ((now_ms - self._next_ms[number]) // period_ms + 1) * period_ms
        before_ms = [self._pass_ms, *(now_ms - period_ms for period_ms in PERIODS_MS[1:])]
        for number, found in enumerate(self._sums()):
            if found is not None:
                self._observe(*found, now_ms)
            if found is None or number % STEP_ENTRIES == 0:
                yield
        for windows, grown in (
            (self._puts, totals.put_messages - before.put_messages),
            (self._gets, totals.got_messages - before.got_messages),
        ):
            if grown:
                windows.add(grown, 0, now_ms)
        for number, windows in enumerate([*self._of_broker, *self._items.values()]):
            if windows.messages:
                for window in due:
                    windows.sample(window, now_ms, before_ms[window])
            if number % STEP_ENTRIES == 0:
                yield
        self._pass_ms = now_ms
        self._expire(now_ms)
        return True

    def _sums(self) -> Iterator[tuple[int, int, int] | None]:
        """(key, messages, bytes) of each topic, then of each pair. None after each step between them."""
        counts, topic_of, sums = self._counts, array("I"), dict[int, list[int]]()
        total = counts.queue_count()
        for first in range(0, total, STEP_ENTRIES):
            for topic_id, messages, size in counts.queues(first, min(STEP_ENTRIES, total - first)):
                topic_of.append(topic_id)
                _add(sums, topic_id, messages, size)
            yield None
        yield from ((key, messages, size) for key, (messages, size) in sums.items())
        sums = {}
        for port, entries in counts.pull_tables():
            for first in range(0, entries, STEP_ENTRIES):
                for key, messages, size in counts.pulls(port, first, min(STEP_ENTRIES, entries - first)):
                    slot = key & _LOW
                    if slot < total:  # a later queue comes with the next pass
                        _add(sums, key & ~_LOW | topic_of[slot], messages, size)
                yield None
        yield from ((key, messages, size) for key, (messages, size) in sums.items())

    def _observe(self, key: int, messages: int, size: int, now_ms: int) -> None:
        last_messages, last_size = self._last.get(key, (0, 0))
        if (messages, size) == (last_messages, last_size):
            return
        self._last[key] = messages, size
        grown = messages - last_messages if messages >= last_messages else messages
        grown_size = size - last_size if size >= last_size else size
        if not grown:
            return
        if not is_system_topic(entry_name(self._plane.topic(key & _LOW))):
            (self._user_gets if key > _LOW else self._user_puts).add(grown, grown_size, now_ms)
        item = self._items.get(key)
        if item is None:
            if len(self._items) >= self._items_max and not self._evict(now_ms):
                return
            item = self._items[key] = Windows()
        item.add(grown, grown_size, now_ms)
        self._items.move_to_end(key)

    def _evict(self, now_ms: int) -> bool:
        key, oldest = next(iter(self._items.items()))
        if now_ms - oldest.grown_ms < IDLE_MS:
            return False
        del self._items[key]
        return True

    def _expire(self, now_ms: int) -> None:
        while self._items:
            key, oldest = next(iter(self._items.items()))
            if now_ms - oldest.grown_ms <= EXPIRY_MS:
                return
            del self._items[key]


def _add(sums: dict[int, list[int]], key: int, messages: int, size: int) -> None:
    found = sums.get(key)
    if found is None:
        sums[key] = [messages, size]
    else:
        found[0] += messages
        found[1] += size


def _figures(windows: Windows | None, *, of_bytes: bool) -> tuple[Figures, ...] | None:
    if windows is None or not windows.messages:
        return None
    return tuple(windows.figures(number, of_bytes=of_bytes) for number in range(len(PERIODS_MS)))
