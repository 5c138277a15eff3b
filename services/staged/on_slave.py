"""The answer of a slave to staged writes (270001)."""

from __future__ import annotations

from ringmq.broker.requests.guest_answers import ON_SLAVE, ControlParts, Handlers
from ringmq.broker.requests.request import Answer, Request
from ringmq.remoting.codes import RequestCode, ResponseCode


def answers(parts: ControlParts) -> Handlers:
    """The requests that control of a slave answers."""
    return {RequestCode.STAGED_WRITES: staged_writes}


def staged_writes(request: Request) -> Answer:
    """270001. Read workers of a master forward it to the worker `services`, which slaves do not have."""
    return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, ON_SLAVE)
