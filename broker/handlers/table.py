"""One request from its code to its answer, with the rules of all requests.

`HandlerTable.begin` looks a handler up by the request's code. Before it calls the handler, it answers 3 for an unknown
code, and 16 if the peer may not send the request (`broker/requests/access.py`). A handler gets the `Request` and
returns its answer: a response, or an order such as Redo, Wait, Close or Drop. It returns long work as `Slices`, which
the runner advances between other requests.

Errors that any handler may raise become answers here: a bad field its code and remark, a full shared table code 1.
Oneway requests are never answered, not even with an error. Any other exception is a defect:
`broker/requests/runner.py` logs its trace and answers 1.

A new request needs three things: a handler in a module of this folder, a line in `handlers_of` of
`broker/control_wiring.py` or in a function that it calls, and a class of access in `remoting/access.py` with its
resources in `remoting/access_resources.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests import access
from ringmq.broker.requests.access import Refusals
from ringmq.broker.requests.request import Answer, Drop, Effect, Now, Outbox, Request, Slices, verdict_of
from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.tables.forward import ForwardTable
from ringmq.broker.tables.held_pulls import HeldPulls
from ringmq.ipc.audit import AuditTrail
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.access import BROKER, Access
from ringmq.remoting.access_resources import resource_text
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError

Handler = Callable[[Request], Answer | Slices]
NOT_ON_SLAVE = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    }
)
"""Changes that a slave would lose at its next synchronisation with its master."""
CHANGES_TABLES = NOT_ON_SLAVE | {
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
}
"""Requests of operators whose changes are on disk before the answer."""
TOLD_FIRST = frozenset({RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST})
"""Requests whose answer waits until the name servers know the topic, as in stock: the client may use it at once."""
NOT_ON_VIP = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
"""Requests that the VIP port (listenPort - 2) does not serve. It answers them as unknown."""


class HandlerTable(Struct, frozen=True):
    """The handlers by request code, with the parts that every request needs."""

    codes: Mapping[int, Handler]
    live: LiveConfig
    now: Now
    outbox: Outbox
    refusals: Refusals
    forwards: ForwardTable
    held_pulls: HeldPulls
    audit: AuditTrail

    def handle(self, request: Request) -> list[Effect]:
        """All effects of one cold frame, its verdict last. Runs all slices."""
        begun = self.begin(request)
        return self.effects_of(request, finish(begun.steps) if isinstance(begun, Slices) else begun)

    def effects_of(self, request: Request, answer: Answer) -> list[Effect]:
        """The effects of a request that is answered, its verdict last."""
        verdict = verdict_of(request, answer)
        effects = self.outbox.take()
        return effects if verdict is None else [*effects, verdict]

    def run_due(self, now_ms: int) -> list[Effect]:
        """Run the held pulls that are due a second time."""
        effects: list[Effect] = []
        for request in self.held_pulls.take_due(now_ms):
            request.now_ms, request.is_again = now_ms, True
            effects += self.handle(request)
        return effects

    def begin(self, request: Request) -> Answer | Slices:
        """Run the handler of the code if the peer may send the request. RequestErrors become answers, in slices too."""
        self.now.ms = request.now_ms
        if request.command.is_response:
            self.forwards.answer(request.connection, request.command)
            return Drop()
        code = request.command.code
        handler = self.codes.get(code)
        if handler is None or (request.connection.vip and code in NOT_ON_VIP):
            remark = f" request type {code} not supported"
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        refused = access.refusal(self.live.config, code, request.connection)
        if refused is not None:
            named = resource_text(code, request.command.ext_fields)
            refused = f"{refused} ({named})" if named else refused
            self.refusals.add(code, refused)
            return request.reply(ResponseCode.NO_PERMISSION, refused)
        if request.command.is_oneway and BROKER.get(code) is Access.READ_ADMIN:
            return Drop()  # the answer is all that the request is for, and its sender wants none
        if code in NOT_ON_SLAVE and not self.live.is_master:
            remark = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        before, self.audit.cause = self.audit.cause, request
        try:
            answer = handler(request)
        except (RequestError, PlaneFullError) as error:
            return _refusal(request, error)
        finally:
            self.audit.cause = before
        return replace(answer, steps=self._guarded(request, answer.steps)) if isinstance(answer, Slices) else answer

    def _guarded(self, request: Request, steps: Steps[Answer]) -> Steps[Answer]:
        """The steps with errors as answers. Only while a step runs, the request is the cause of changes."""
        audit = self.audit
        try:
            while True:
                before, audit.cause = audit.cause, request
                try:
                    next(steps)
                finally:
                    audit.cause = before
                yield
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        except (RequestError, PlaneFullError) as error:
            return _refusal(request, error)
        finally:
            steps.close()


def _refusal(request: Request, error: RequestError | PlaneFullError) -> RemotingCommand:
    code = error.code if isinstance(error, RequestError) else ResponseCode.SYSTEM_ERROR
    return request.reply(code, str(error))
