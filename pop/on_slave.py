"""The answers of a slave to consumers that take or acknowledge single messages, and to operators."""

from __future__ import annotations

from ringmq.broker.requests.guest_answers import ON_SLAVE
from ringmq.broker.requests.request import Answer, Request
from ringmq.remoting.codes import RequestCode, ResponseCode

CODES = (
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.POP_INFLIGHT,
    RequestCode.POP_DRAIN,
)


def refuse(request: Request) -> Answer:
    """POP is a matter of the master, which has the open messages."""
    return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, ON_SLAVE)
