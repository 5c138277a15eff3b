"""The families of replies."""

from __future__ import annotations

from ringmq.broker.exporter.sources import Add, Sources
from ringmq.broker.exporter.text import Page
from ringmq.native import lib
from ringmq.services.replies.counters import DELIVERED_COUNTER, FAILED_COUNTER, UNSTORED_COUNTER

_WORDS = {
    "ringmq_replies_delivered_total": DELIVERED_COUNTER,
    "ringmq_replies_failed_total": FAILED_COUNTER,
    "ringmq_replies_unstored_total": UNSTORED_COUNTER,
}


def families(sources: Sources) -> Add:
    """Those of any broker."""
    words = sources.plane.role(lib.RMQ_ROLE_SERVICES).counters

    def add(page: Page, now_ms: int) -> None:
        for name, word in _WORDS.items():
            page.add(name, int(words[word]))

    return add
