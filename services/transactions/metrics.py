"""Families of transactions: open halves, how transactions ended, and checks. All topics are counted together."""

from __future__ import annotations

from ringmq.broker.exporter.sources import Add, Sources
from ringmq.broker.exporter.text import Page
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.services.transactions.finish_times import BOUNDS_S

_WORDS = {
    "rocketmq_half_messages": lib.RMQ_TRANSACTIONS_OPEN,
    "rocketmq_commit_messages_total": lib.RMQ_TRANSACTIONS_COMMITTED,
    "rocketmq_rollback_messages_total": lib.RMQ_TRANSACTIONS_ROLLED_BACK,
    "ringmq_transactions_expired_total": lib.RMQ_TRANSACTIONS_EXPIRED,
    "ringmq_transactions_lost_total": lib.RMQ_TRANSACTIONS_LOST,
}
FINISH_BOUNDS = tuple(map(str, BOUNDS_S))
_CHECKS = {"sent": lib.RMQ_TRANSACTIONS_CHECKED, "no_producer": lib.RMQ_TRANSACTIONS_UNCHECKED}


def families(sources: Sources) -> Add:
    """Those of a master."""
    return sources.of_master(lambda page, now_ms: add_transactions(page, sources.plane))


def add_transactions(page: Page, plane: Plane) -> None:
    """Add all families. Without the worker `transactions` since the start, all are 0."""
    words = plane.role(lib.RMQ_ROLE_TRANSACTIONS).counters
    for name, word in _WORDS.items():
        page.add(name, int(words[word]))
    finished = [int(words[lib.RMQ_TRANSACTIONS_FINISH + number]) for number in range(lib.RMQ_FINISH_BUCKETS)]
    seconds = int(words[lib.RMQ_TRANSACTIONS_FINISH_SECONDS])
    page.add_histograms("rocketmq_finish_message_latency_milliseconds", FINISH_BOUNDS, [({}, finished, seconds)])
    checks = [({"result": result}, int(words[word])) for result, word in _CHECKS.items()]
    page.add("ringmq_transaction_checks_total", checks)
