"""Families of POP. All groups are counted together."""

from __future__ import annotations

from ringmq.broker.exporter.sources import Add, Sources
from ringmq.broker.exporter.text import Page
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.pop.revival_words import Gauge, RevivalWord
from ringmq.pop.role_words import Counter

_SINGLE = {
    "ringmq_pop_messages_total": Counter.MESSAGES,
    "ringmq_pop_changes_total": Counter.CHANGES,
    "ringmq_pop_unsent_total": Counter.UNSENT,
    "ringmq_pop_unreadable_total": Counter.UNREADABLE,
    "ringmq_pop_open_messages": Gauge.OPEN,
    "ringmq_pop_entries": Gauge.ENTRIES,
    "ringmq_pop_entries_max": Gauge.ENTRIES_MAX,
    "ringmq_pop_windows": Gauge.WINDOWS,
    "ringmq_pop_reviving": Gauge.REVIVING,
}
_BY_RESULT: dict[str, dict[str, int]] = {
    "ringmq_pop_requests_total": {
        "found": Counter.POPS, "empty": Counter.EMPTY, "bound": Counter.BOUND, "full": Counter.FULL,
    },
    "ringmq_pop_acks_total": {
        "done": Counter.ACKS, "late": Counter.ACKS_LATE, "foreign": Counter.ACKS_FOREIGN,
        "withdrawn": Counter.PASSED_OVER,
    },
    "ringmq_pop_revived_total": {
        "copied": RevivalWord.STORED, "dead": RevivalWord.DEAD, "failed": RevivalWord.FAILED, "gone": RevivalWord.GONE,
    },
}  # fmt: skip


def families(sources: Sources) -> Add | None:
    """Those of a master."""
    return None if sources.is_slave else lambda page, now_ms: add_pops(page, sources.plane)


def add_pops(page: Page, plane: Plane) -> None:
    """Add all families."""
    words = plane.role(lib.RMQ_ROLE_POP).counters
    for name, word in _SINGLE.items():
        page.add(name, int(words[word]))
    for name, results in _BY_RESULT.items():
        page.add(name, [({"result": result}, int(words[word])) for result, word in results.items()])
