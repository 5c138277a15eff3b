"""The answer of a slave to a producer that ends a transaction (37)."""

from __future__ import annotations

from ringmq.broker.requests.guest_answers import ON_SLAVE, ControlParts, Handlers
from ringmq.broker.requests.request import Answer, Request
from ringmq.remoting.codes import RequestCode, ResponseCode


def answers(parts: ControlParts) -> Handlers:
    """The requests that control of a slave answers."""
    return {RequestCode.END_TRANSACTION: end_transaction}


def end_transaction(request: Request) -> Answer:
    """37, answered as stock's `EndTransactionProcessor` does. The producer's broker checks again later."""
    return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, ON_SLAVE)
