"""Requests of clients at guests: in order within a connection, long ones in slices; a defect costs one answer."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ringmq.broker.requests.outlets import BACKLOG_BYTES_LARGE
from ringmq.broker.requests.request import (
    Answer,
    Connection,
    Drop,
    Effect,
    Outbox,
    Release,
    Reply,
    Request,
    Slices,
    verdict_of,
)
from ringmq.broker.requests.slices import SlicedWorks
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.services.guest import Guest

UNDONE_BYTES_MAX = 64 << 20
"""Frames of requests that are not answered yet; beyond it no record is taken, and read workers answer busy."""


class GuestRequests:
    """Runs requests over the guests. `refusal`: why a peer may not send a request; `answered`: called with each request
    that is answered, or waits from now on; `tell_failure`: the trace of a defect, for the operator."""

    def __init__(
        self,
        guests: Iterable[Guest],
        outbox: Outbox,
        clock: TurnClock,
        backlog_bytes: Callable[[], int],
        refusal: Callable[[int, Connection], str | None],
        answered: Callable[[Request], None],
        tell_failure: Callable[[str], None],
    ) -> None:
        self.effects: list[Effect] = []
        self._guests: Mapping[int, Guest] = {code: guest for guest in guests for code in guest.codes}
        self._outbox = outbox
        self._refusal = refusal
        self._answered = answered
        self._tell_failure = tell_failure
        self._works = SlicedWorks(clock, must_rest=lambda: backlog_bytes() > BACKLOG_BYTES_LARGE)

    @property
    def is_busy(self) -> bool:
        """There is more to do at once."""
        return self._works.is_ready

    @property
    def has_work(self) -> bool:
        """Some request is in slices, or waits behind one."""
        return len(self._works) > 0

    @property
    def is_choked(self) -> bool:
        """So much is not answered yet that no more should be taken in."""
        return self._works.undone_bytes > UNDONE_BYTES_MAX

    def run(self, request: Request) -> None:
        """Answer a request, now or after the earlier requests of its connection."""
        self._works.add(_Work(self, request, request.connection, request.frame_bytes))

    def end(self, connection: Connection) -> None:
        """The connection is closed."""
        self._works.end(connection)

    def begin_next(self) -> None:
        """Begin a request that has waited for one before it."""
        self._works.begin_next()

    def turn(self) -> None:
        """Go on with long requests."""
        self._works.turn()

    def finish(self) -> None:
        """Answer everything: the worker stops."""
        self._works.finish()

    def take_effects(self) -> list[Effect]:
        """The effects so far."""
        taken, self.effects = self.effects, []
        return [*taken, *self._outbox.take()]

    def begin(self, request: Request) -> Answer | Slices:
        """Have the guest of the request's code answer it, if its sender may send it; RequestErrors become answers."""
        code = request.command.code
        guest = self._guests.get(code)
        if request.command.is_response:
            return Drop()  # no guest asks clients
        if guest is None:
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
        if refused := self._refusal(code, request.connection):
            return request.reply(ResponseCode.NO_PERMISSION, refused)
        try:
            answer = guest.on_request(request)
        except RequestError as error:
            return request.reply(error.code, str(error))
        return replace(answer, steps=_guarded(request, answer.steps)) if isinstance(answer, Slices) else answer

    def complete(self, request: Request, answer: Answer) -> None:
        """The answer of a request is there."""
        self.effects += self._outbox.take()
        verdict = verdict_of(request, answer)
        if verdict is not None:
            self.effects.append(verdict)
        self._answered(request)

    def fail(self, request: Request, error: Exception) -> None:
        """A defect of ours must cost one answer, not the worker; the trace is for the operator."""
        self._tell_failure(f"request {request.command.code} failed:\n{''.join(traceback.format_exception(error))}")
        if request.command.is_oneway or request.command.is_response:
            self.effects.append(Release(request.connection, request.pending))
            return
        response = request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        self.effects.append(Reply(request.connection, request.pending, response))


def _guarded(request: Request, steps: Steps[Answer]) -> Steps[Answer]:
    try:
        return (yield from steps)
    except RequestError as error:
        return request.reply(error.code, str(error))


@dataclass(frozen=True, slots=True)
class _Work:
    requests: GuestRequests
    request: Request
    connection: Connection
    size_bytes: int

    def begin(self) -> Answer | Slices:
        return self.requests.begin(self.request)

    def complete(self, answer: Answer) -> None:
        self.requests.complete(self.request, answer)

    def fail(self, error: Exception) -> None:
        self.requests.fail(self.request, error)
