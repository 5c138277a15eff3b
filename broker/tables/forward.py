"""Requests that the broker forwards to a client (307, 309). It returns their answers unchanged."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.requests.request import Connection, Outbox, Request
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand

FORWARD_TIMEOUT_MS = 10_000
FORWARDS_MAX = 1024


class _Waiting(Struct, frozen=True):
    request: Request
    target: Connection
    client_id: str
    deadline_ms: int


class ForwardTable:
    """Forwarded requests without an answer yet, by the opaque under which they were sent."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """True if no further request can wait."""
        return len(self._waiting) >= FORWARDS_MAX

    def send(
        self, outbox: Outbox, request: Request, target: Connection, client_id: str, command: RemotingCommand
    ) -> None:
        """Push `command` to the client. Its answer, or 207 after 10 s, goes to `request`."""
        opaque = outbox.push(target, command)
        self._waiting[opaque] = _Waiting(request, target, client_id, request.now_ms + FORWARD_TIMEOUT_MS)

    def answer(self, outbox: Outbox, connection: Connection, response: RemotingCommand) -> bool:
        """Return a client's answer: code, ext fields and body are unchanged. False if no request waits for it."""
        waiting = self._waiting.get(response.opaque)
        if waiting is None or waiting.target != connection:
            return False
        del self._waiting[response.opaque]
        request = waiting.request
        outbox.reply(request, request.reply(response.code, response.remark, response.ext_fields, response.body))
        return True

    def connections(self) -> set[Connection]:
        """Connections of both ends."""
        ends = [(waiting.target, waiting.request.connection) for waiting in self._waiting.values()]
        return {connection for pair in ends for connection in pair}

    def expire(self, outbox: Outbox, now_ms: int) -> None:
        """Answer requests that have waited too long: 207."""
        for opaque in [opaque for opaque, waiting in self._waiting.items() if now_ms >= waiting.deadline_ms]:
            waiting = self._waiting.pop(opaque)
            remark = f"consumer <{waiting.client_id}> did not answer within {FORWARD_TIMEOUT_MS} ms"
            outbox.reply(waiting.request, waiting.request.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark))

    def drop(self, outbox: Outbox, connection: Connection) -> None:
        """The client is gone: answer 1."""
        for opaque in [opaque for opaque, waiting in self._waiting.items() if waiting.target == connection]:
            waiting = self._waiting.pop(opaque)
            remark = f"consumer <{waiting.client_id}> went away before it answered"
            outbox.reply(waiting.request, waiting.request.reply(ResponseCode.SYSTEM_ERROR, remark))
        for opaque in [opaque for opaque, waiting in self._waiting.items() if waiting.request.connection == connection]:
            del self._waiting[opaque]
