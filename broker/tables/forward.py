"""Requests that the broker hands on to a client (307, 309) and whose answers it hands back as they come."""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.broker.requests.request import Connection, Outbox, Request
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand

FORWARD_TIMEOUT_MS = 10_000
FORWARDS_MAX = 1024


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Request
    target: Connection
    client_id: str
    deadline_ms: int


class ForwardTable:
    """Forwarded requests without an answer yet, by the opaque that they went out under."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """No further request can wait."""
        return len(self._waiting) >= FORWARDS_MAX

    def send(
        self, outbox: Outbox, request: Request, target: Connection, client_id: str, command: RemotingCommand
    ) -> None:
        """Push `command` to the client; its answer, or 207 after 10 s, goes to `request`."""
        opaque = outbox.push(target, command)
        self._waiting[opaque] = _Waiting(request, target, client_id, request.now_ms + FORWARD_TIMEOUT_MS)

    def answer(self, outbox: Outbox, connection: Connection, response: RemotingCommand) -> bool:
        """A client's answer: code, ext fields and body go on as they came. False when nobody waits for it."""
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
        """Answer what waited too long: 207."""
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
