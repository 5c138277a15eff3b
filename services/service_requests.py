"""Requests of clients to services. Each goes to the service that answers its code, if its sender may send it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from ringmq.broker.requests.request import Answer, Connection, Drop, Effect, Outbox, Request, Slices, verdict_of
from ringmq.broker.requests.runner import Runner
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.services.hosted_service import HostedService


class ServiceRequests(Runner):
    """Runs requests on the services.

    `refusal`: the reason why a peer may not send a request. `answered`: called with each request that is answered or
    begins to wait. `tell_failure`: logs the trace of a defect.
    """

    def __init__(
        self,
        services: Iterable[HostedService],
        outbox: Outbox,
        clock: TurnClock,
        backlog_bytes: Callable[[], int],
        refusal: Callable[[int, Connection], str | None],
        answered: Callable[[Request], None],
        tell_failure: Callable[[str], None],
    ) -> None:
        super().__init__(clock, backlog_bytes, tell_failure)
        self._services: Mapping[int, HostedService] = {code: service for service in services for code in service.codes}
        self._outbox = outbox
        self._refusal = refusal
        self._answered = answered

    def take_effects(self) -> list[Effect]:
        """The effects so far, including late answers of services."""
        return [*super().take_effects(), *self._outbox.take()]

    def begin(self, request: Request) -> Answer | Slices:
        """Have the service of the request's code answer it, if its sender may send it. RequestErrors become answers."""
        code = request.command.code
        service = self._services.get(code)
        if request.command.is_response:
            return Drop()  # services send no requests to clients
        if service is None:
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
        if refused := self._refusal(code, request.connection):
            return request.reply(ResponseCode.NO_PERMISSION, refused)
        try:
            answer = service.on_request(request)
        except RequestError as error:
            return request.reply(error.code, str(error))
        return replace(answer, steps=_guarded(request, answer.steps)) if isinstance(answer, Slices) else answer

    def complete(self, request: Request, answer: Answer, mark: int) -> None:
        """Accept the answer to a request."""
        self.effects += self._outbox.take()
        verdict = verdict_of(request, answer)
        if verdict is not None:
            self.effects.append(verdict)
        self._answered(request)


def _guarded(request: Request, steps: Steps[Answer]) -> Steps[Answer]:
    try:
        return (yield from steps)
    except RequestError as error:
        return request.reply(error.code, str(error))
