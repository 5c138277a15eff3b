"""Families of delay levels: waiting messages, how much the oldest is overdue, what was delivered and skipped."""

from __future__ import annotations

from ringmq.broker.exporter.sources import Add, Sources
from ringmq.broker.exporter.text import Page
from ringmq.ipc.plane import Plane
from ringmq.ipc.republish_words import PROGRESS, REFUSED, SKIPPED, SUBMITTED
from ringmq.native import lib
from ringmq.remoting.names import SCHEDULE_TOPIC
from ringmq.store.config import parse_delay_levels
from ringmq.store.message_store import MessageStore


def families(sources: Sources) -> Add:
    """Those of a master."""
    levels = len(parse_delay_levels(sources.config.message_delay_level))
    return sources.of_master(DelayFamilies(sources.plane, sources.store, levels).add_to)


class DelayFamilies:
    """The families of one plane. Without the worker `delay` since the start, no message waits."""

    def __init__(self, plane: Plane, store: MessageStore, levels: int) -> None:
        self._plane, self._store, self._levels = plane, store, levels

    def add_to(self, page: Page, now_ms: int) -> None:
        """Add all families. Levels whose progress is not known yet are left out."""
        waiting, overdue = [], []
        for level in range(1, self._levels + 1):
            begin, end = self._waiting(level)
            if begin >= 0:
                labels = {"level": str(level)}
                waiting.append((labels, max(0, end - begin)))
                overdue.append((labels, self._overdue_ms(level, begin, end, now_ms) / 1000))
        words = self._plane.role(lib.RMQ_ROLE_DELAY).counters
        page.add("ringmq_delayed_messages", waiting)
        page.add("ringmq_delay_overdue_seconds", overdue)
        page.add("ringmq_delay_delivered_total", max(0, int(words[SUBMITTED]) - int(words[REFUSED])))
        page.add("ringmq_delay_skipped_total", int(words[SKIPPED]))

    def _waiting(self, level: int) -> tuple[int, int]:
        """The offsets of the level's first waiting message, -1 if it is unknown, and behind its last one."""
        role = self._plane.role(lib.RMQ_ROLE_DELAY)
        topic_id = self._plane.topic_find(SCHEDULE_TOPIC)
        slot = None if topic_id is None else self._plane.queue_find(topic_id, level - 1)
        if slot is None or not role.generation:
            return 0, 0
        queue = self._plane.queue(slot)
        progress = int(role.counters[PROGRESS + level - 1]) - 1
        return (-1 if progress < 0 else max(progress, int(queue.min_offset))), int(queue.max_offset)

    def _overdue_ms(self, level: int, begin: int, end: int, now_ms: int) -> int:
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1) if begin < end else None
        unit = None if queue is None else queue.unit(begin)
        return 0 if unit is None else max(0, now_ms - unit.tags_code)
