"""Families of transactions: open halves, how transactions ended, and checks. All topics are counted together."""

from __future__ import annotations

from ringmq.broker.exporter.text import Page
from ringmq.ipc.plane import Plane
from ringmq.native import lib

_WORDS = {
    "rocketmq_half_messages": lib.RMQ_TRANSACTIONS_OPEN,
    "rocketmq_commit_messages_total": lib.RMQ_TRANSACTIONS_COMMITTED,
    "rocketmq_rollback_messages_total": lib.RMQ_TRANSACTIONS_ROLLED_BACK,
    "ringmq_transactions_expired_total": lib.RMQ_TRANSACTIONS_EXPIRED,
    "ringmq_transactions_lost_total": lib.RMQ_TRANSACTIONS_LOST,
}
_CHECKS = {"sent": lib.RMQ_TRANSACTIONS_CHECKED, "no_producer": lib.RMQ_TRANSACTIONS_UNCHECKED}


def add_transactions(page: Page, plane: Plane) -> None:
    """Add all families. Without the worker `transactions` since the start, all are 0."""
    words = plane.role(lib.RMQ_ROLE_TRANSACTIONS).counters
    for name, word in _WORDS.items():
        page.add(name, int(words[word]))
    checks = [({"result": result}, int(words[word])) for result, word in _CHECKS.items()]
    page.add("ringmq_transaction_checks_total", checks)
