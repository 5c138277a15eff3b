"""The answer of a slave to a consumer that sends a message back (36)."""

from __future__ import annotations

from ringmq.broker.requests.guest_answers import ControlParts, Handlers
from ringmq.broker.requests.request import REJECTED, Answer, Request
from ringmq.remoting.codes import RequestCode, ResponseCode


def answers(parts: ControlParts) -> Handlers:
    """The requests that control of a slave answers."""
    return {RequestCode.CONSUMER_SEND_MSG_BACK: send_back}


def send_back(request: Request) -> Answer:
    """36, answered as stock does (`SendMessageProcessor.rejectRequest`). The consumer sends the retry to the master
    then."""
    return request.reply(ResponseCode.SYSTEM_BUSY, REJECTED)
