"""Requests of the broker that a client answers: those of operators (307, 309), whose answers it returns unchanged, and
replies (326)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.requests.request import Connection, Outbox, Request
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand

FORWARD_TIMEOUT_MS = 10_000
FORWARDS_MAX = 1024
CALLS_MAX = 64
CLIENT_CALLS_MAX = 32
"""Calls of one client. A client that does not answer leaves the others to those that do."""

Told = Callable[[RemotingCommand | str], None]
"""Gets the client's answer, or the reason why there is none."""


class _Waiting(Struct, frozen=True):
    target: Connection
    client_id: str
    deadline_ms: int
    asker: Connection | None
    """The connection to which the answer goes. None: it stays in the broker."""
    ended: Callable[[RemotingCommand | None, int, str], None]
    """Gets the answer, or None with code and remark."""


class ForwardTable:
    """Requests at clients without an answer yet, by the opaque under which they were sent."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._calls: dict[Connection, int] = {}
        self.calls = 0
        """The number of the broker's own requests."""

    def __len__(self) -> int:
        """The number of operators' requests."""
        return len(self._waiting) - self.calls

    @property
    def is_full(self) -> bool:
        """True if no further request of an operator can wait."""
        return len(self) >= FORWARDS_MAX

    def send(
        self, outbox: Outbox, request: Request, target: Connection, client_id: str, command: RemotingCommand
    ) -> None:
        """Push `command` to the client. Its answer, or 207 after 10 s, goes to `request`."""

        def ended(response: RemotingCommand | None, code: int, remark: str) -> None:
            if response is None:
                answer = request.reply(code, f"consumer {remark}")
            else:
                answer = request.reply(response.code, response.remark, response.ext_fields, response.body)
            outbox.reply(request, answer)

        opaque = outbox.push(target, command)
        deadline_ms = request.now_ms + FORWARD_TIMEOUT_MS
        self._waiting[opaque] = _Waiting(target, client_id, deadline_ms, request.connection, ended)

    def call(
        self, outbox: Outbox, target: Connection, client_id: str, command: RemotingCommand, now_ms: int, told: Told
    ) -> None:
        """Push `command` to the client. `told` is called once: with its answer, or with the reason why there is none,
        after 10 s at the latest."""
        if self.calls >= CALLS_MAX:
            told(f"{CALLS_MAX} requests wait for answers of clients")
        elif self._calls.get(target, 0) >= CLIENT_CALLS_MAX:
            told(f"<{client_id}> has {CLIENT_CALLS_MAX} requests without an answer")
        else:
            opaque = outbox.push(target, command)
            self.calls += 1
            self._calls[target] = self._calls.get(target, 0) + 1
            self._waiting[opaque] = _Waiting(
                target,
                client_id,
                now_ms + FORWARD_TIMEOUT_MS,
                None,
                lambda response, code, remark: told(remark if response is None else response),
            )

    def answer(self, connection: Connection, response: RemotingCommand) -> bool:
        """Accept a client's answer. False if no request waits for it."""
        waiting = self._waiting.get(response.opaque)
        if waiting is None or waiting.target != connection:
            return False
        self._remove(response.opaque).ended(response, response.code, "")
        return True

    def connections(self) -> set[Connection]:
        """Connections of both ends."""
        ends = [(waiting.target, waiting.asker) for waiting in self._waiting.values()]
        return {connection for pair in ends for connection in pair if connection is not None}

    def expire(self, now_ms: int) -> None:
        """End requests that have waited too long: 207."""
        for opaque in [opaque for opaque, waiting in self._waiting.items() if now_ms >= waiting.deadline_ms]:
            waiting = self._remove(opaque)
            remark = f"<{waiting.client_id}> did not answer within {FORWARD_TIMEOUT_MS} ms"
            waiting.ended(None, ResponseCode.CONSUME_MSG_TIMEOUT, remark)

    def drop(self, connection: Connection) -> None:
        """The client is gone: its requests end with 1, and those that it has asked for are forgotten."""
        for opaque in [opaque for opaque, waiting in self._waiting.items() if waiting.target == connection]:
            waiting = self._remove(opaque)
            remark = f"<{waiting.client_id}> went away before it answered"
            waiting.ended(None, ResponseCode.SYSTEM_ERROR, remark)
        for opaque in [opaque for opaque, waiting in self._waiting.items() if waiting.asker == connection]:
            self._remove(opaque)

    def _remove(self, opaque: int) -> _Waiting:
        waiting = self._waiting.pop(opaque)
        if waiting.asker is None:
            self.calls -= 1
            self._calls[waiting.target] -= 1
            if not self._calls[waiting.target]:
                del self._calls[waiting.target]
        return waiting
