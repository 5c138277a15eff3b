"""The service that delivers replies (324, 325): each is answered once its requester has answered the push, and write
has stored it.

Both go on at the same time. The answer tells of the push (0, or 1 with the cause), and of the place of a stored record.
A death between push and answer leaves the replier without an answer. It may send the reply again, which the requester
drops.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.remoting import properties
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import without_compression
from ringmq.remoting.message_id import encode_offset_id
from ringmq.remoting.request_headers import decode_send_header
from ringmq.remoting.response_headers import SendMessageResponseHeader
from ringmq.services.appends import Appends, Origin
from ringmq.services.control_asks import ControlAsks
from ringmq.services.kit.flight import IN_THE_LOG, Result
from ringmq.services.replies.cases import Asked, Deliver, Refuse, decide
from ringmq.services.replies.counters import DELIVERED_COUNTER, FAILED_COUNTER, UNSTORED_COUNTER
from ringmq.services.replies.push import push_frame
from ringmq.services.topics import Topics

OPEN_MAX = 40
"""Replies without an answer. Each holds one of 128 places of its connection at the reader (RMQ_COLD_TOTAL).

A connection without a free place is read on when it has half of those that others leave: 40 always let it. Else the
answers of a client that is requester and replier would wait behind its own replies.
"""


class OpenReply(Struct):
    """A reply without an answer yet."""

    request: Request
    queue_id: int
    failure: str | None = None
    """The reason why the requester has not taken it. Empty: it has. None: it has not answered yet."""
    is_storing: bool = False
    stored: Result[OpenReply] | None = None


class ReplyService:
    """See HostedService. `wall_ms`: the wall clock. `words`: the counters of the worker."""

    name = "replies"
    codes = frozenset({int(RequestCode.SEND_REPLY_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE_V2)})
    is_polling = False

    def __init__(
        self,
        *,
        topics: Topics,
        config: Callable[[], BrokerConfig],
        appends: Appends[OpenReply],
        control: ControlAsks,
        outbox: Outbox,
        words: Any,
        wall_ms: Callable[[], int],
    ) -> None:
        self._topics, self._config, self._appends, self._control = topics, config, appends, control
        self._outbox, self._words, self._wall_ms = outbox, words, wall_ms
        self._open = 0

    def on_request(self, request: Request) -> Answer:
        """See HostedService."""
        header, config, now_ms = decode_send_header(request.command), self._config(), self._wall_ms()
        asked = Asked(header, len(request.command.body), request.connection.address)
        match decide(asked, config, self._topics.find(header.topic), now_ms):
            case Refuse(code, remark):
                return self._reply(request, code, remark)
            case delivered:
                return self._deliver(request, asked, delivered, config, now_ms)

    def _deliver(self, request: Request, asked: Asked, delivered: Deliver, config: BrokerConfig, now_ms: int) -> Answer:
        if self._open >= OPEN_MAX:
            remark = f"[OVERLOAD]{OPEN_MAX} replies wait for their requesters, try again later"
            return self._reply(request, ResponseCode.SYSTEM_BUSY, remark)
        reply, body = OpenReply(request, delivered.queue_id), request.command.body
        if config.store_reply_message_enable and not self._store(reply, asked, delivered, body):
            remark = "[OVERLOAD]too many replies wait to be stored, try again later"
            return self._reply(request, ResponseCode.SYSTEM_BUSY, remark)
        self._open += 1
        own = self._appends.own_origin()
        store_host = f"{ipaddress.ip_address(own.born_host)}:{own.born_port}"
        self._push(reply, delivered, push_frame(asked, delivered, body, store_host, now_ms))
        request.command.body = b""
        return Wait()

    def _store(self, reply: OpenReply, asked: Asked, delivered: Deliver, body: bytes) -> bool:
        """False if there is no room for it now."""
        queue = self._topics.queue(asked.header.topic, delivered.queue_id)
        if queue is None:  # its topic is going
            self._words[UNSTORED_COUNTER] += 1
            return True
        header, connection = asked.header, reply.request.connection
        origin = Origin(
            header.born_timestamp,
            ipaddress.ip_address(connection.host).packed,
            connection.port,
            header.flag,
            header.sys_flag & ~without_compression(header.sys_flag),
            header.reconsume_times or 0,
        )
        text = properties.encode_properties(delivered.pairs).encode("utf-8", "replace")
        reply.is_storing = self._appends.append(reply, queue, body, text, origin, is_whole=True)
        return reply.is_storing

    def _push(self, reply: OpenReply, delivered: Deliver, frame: bytes) -> None:
        client_id = delivered.client_id
        if client_id is None:
            self._pushed(reply, f"reply message properties[{properties.REPLY_TO_CLIENT}] is null")
            return

        def then(refusal: RequestError | None) -> None:
            self._pushed(reply, "" if refusal is None else str(refusal))

        try:
            self._control.reply(client_id, frame, reply.request.now_ms, then)
        except ValueError as error:
            self._pushed(reply, f"push reply message to {client_id}fail. {error}")

    def _pushed(self, reply: OpenReply, failure: str) -> None:
        reply.failure = failure
        self._words[FAILED_COUNTER if failure else DELIVERED_COUNTER] += 1
        self._answer_if_over(reply)

    @property
    def has_news(self) -> bool:
        """See HostedService."""
        return self._appends.has_answers

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return not self._open

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        found = list(self._appends.results())
        for result in found:
            reply = result.what
            reply.is_storing = False
            if result.code in IN_THE_LOG:
                reply.stored = result
            else:
                self._words[UNSTORED_COUNTER] += 1
            self._answer_if_over(reply)
        return bool(found)

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService. Replies under way may arrive without an answer to their repliers."""

    def _answer_if_over(self, reply: OpenReply) -> None:
        if reply.failure is None or reply.is_storing:
            return
        self._open -= 1
        code = ResponseCode.SYSTEM_ERROR if reply.failure else ResponseCode.SUCCESS
        answer = self._reply(reply.request, code, reply.failure or None, self._place(reply))
        self._outbox.reply(reply.request, answer)

    def _place(self, reply: OpenReply) -> dict[str, str]:
        """The fields that name the record. As stock, a reply that is pushed and not stored has zeros, one that is
        neither has none."""
        if reply.stored is not None:
            own = self._appends.own_origin()
            host = str(ipaddress.ip_address(own.born_host))
            msg_id = encode_offset_id(host, own.born_port, reply.stored.commit_log_offset)
            offset = reply.stored.queue_offset
            header = SendMessageResponseHeader(msg_id=msg_id, queue_id=reply.queue_id, queue_offset=offset)
        elif not reply.failure:
            header = SendMessageResponseHeader(msg_id="0", queue_id=reply.queue_id, queue_offset=0)
        else:
            return {}
        return header.encode()

    def _reply(
        self, request: Request, code: int, remark: str | None, fields: dict[str, str] | None = None
    ) -> RemotingCommand:
        config = self._config()
        own = {properties.MSG_REGION: config.region_id, properties.TRACE_ON: str(config.trace_on).lower()}
        return request.reply(code, remark, {**(fields or {}), **own})
