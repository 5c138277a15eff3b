"""The answer of a slave to a reply (324, 325)."""

from __future__ import annotations

from ringmq.broker.requests.guest_answers import ControlParts, Handlers
from ringmq.broker.requests.request import REJECTED, Answer, Request
from ringmq.remoting.codes import RequestCode, ResponseCode


def answers(parts: ControlParts) -> Handlers:
    """The requests that control of a slave answers."""
    return {RequestCode.SEND_REPLY_MESSAGE: refuse, RequestCode.SEND_REPLY_MESSAGE_V2: refuse}


def refuse(request: Request) -> Answer:
    """As a send at a slave. The replier tries another broker then."""
    return request.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
