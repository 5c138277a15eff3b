"""The service that recalls timer messages (370): each request is answered when the message that deletes is stored.

A death between a submit and its answer leaves the client without an answer. The client sends the request again. A
second deletion has no effect.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.ipc.admission import Rule, RuleKind
from ringmq.remoting import properties
from ringmq.remoting.client_headers import RecallMessageRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.services.appends import Appends, Origin
from ringmq.services.kit.flight import IN_THE_LOG, Result
from ringmq.services.recall_cases import BODY, FAILED, Delete, Refuse, decide
from ringmq.services.topics import Topics

REMARK = "not set any response code"
"""Stock's remark of a success, which it forgets to clear."""


class Recall(Struct, frozen=True):
    """A request without an answer."""

    request: Request
    uniq_key: str


class RecallService:
    """See HostedService. `wall_ms`: the wall clock. At most as many requests wait as `appends` has slots."""

    name = "recall"
    codes = frozenset({int(RequestCode.RECALL_MESSAGE)})
    is_polling = False

    def __init__(
        self,
        *,
        topics: Topics,
        rules: Callable[[], tuple[Rule, ...]],
        config: Callable[[], BrokerConfig],
        appends: Appends[Recall],
        outbox: Outbox,
        wall_ms: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._rules = rules
        self._config = config
        self._appends = appends
        self._outbox = outbox
        self._wall_ms = wall_ms

    def on_request(self, request: Request) -> Answer:
        """See HostedService."""
        header = RecallMessageRequestHeader.decode(request.command.ext_fields)
        config, now_ms = self._config(), self._wall_ms()
        rule = next((rule for rule in self._rules() if rule.kind is RuleKind.TIMER and not rule.name), None)
        has_topic = self._topics.find(header.topic) is not None
        match decide(header, config, rule, has_topic, now_ms):
            case Refuse(code, remark):
                return self._reply(request, code, remark)
            case Delete() as delete if rule is not None:
                return self._store(request, delete, rule, now_ms)
        raise AssertionError("a message that deletes needs the rule of timers")

    def _store(self, request: Request, delete: Delete, rule: Rule, now_ms: int) -> Answer:
        queue = self._topics.queue_of(rule.topic_id, rule.queue_id)
        if queue is None:
            return self._reply(request, ResponseCode.SYSTEM_ERROR, f"{FAILED}: the broker has no timer topic")
        connection = request.connection
        origin = Origin(now_ms, ipaddress.ip_address(connection.host).packed, connection.port)
        request.command.body = b""
        what = Recall(request, delete.uniq_key)
        if not self._appends.append(what, queue, BODY, delete.properties, origin, is_whole=True):
            remark = "[OVERLOAD]too many recalls under way, try again later"
            return self._reply(request, ResponseCode.SYSTEM_BUSY, remark)
        return Wait()

    @property
    def has_news(self) -> bool:
        """See HostedService."""
        return self._appends.has_answers

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return not self._appends.in_flight

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        found = list(self._appends.results())
        for result in found:
            self._answer(result)
        return bool(found)

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService. Messages that write has taken may be stored without an answer."""

    def _answer(self, result: Result[Recall]) -> None:
        request = result.what.request
        if result.code in IN_THE_LOG:  # as stock, all of them are answered 0
            fields = {"msgId": result.what.uniq_key}
            answer = self._reply(request, ResponseCode.SUCCESS, REMARK, fields)
        else:
            answer = self._reply(request, ResponseCode.SYSTEM_ERROR, f"{FAILED}: cause {result.cause}")
        self._outbox.reply(request, answer)

    def _reply(
        self, request: Request, code: int, remark: str | None, fields: dict[str, str] | None = None
    ) -> RemotingCommand:
        region = {properties.MSG_REGION: self._config().region_id}
        return request.reply(code, remark, {**(fields or {}), **region})
