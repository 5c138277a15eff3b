"""Request and reply over topics, as in RocketMQ. No IO.

A request names its sender and a correlation id. The reply is a message of the cluster's reply topic, which the broker
pushes to the requester over its own connection (326).
"""

import logging
import uuid
from collections.abc import Callable

from ringmq.client.compression import DecompressionError, decompress_body
from ringmq.client.producing.send_request import REPLY_TYPE
from ringmq.client.runtimes.runtime import Future, create_future
from ringmq.remoting import properties as names
from ringmq.remoting.client_headers import ReplyMessageRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.flags import MessageSysFlag, without_compression
from ringmq.remoting.message import Message, MessageExt
from ringmq.remoting.names import reply_topic
from ringmq.remoting.properties import decode_properties

log = logging.getLogger("ringmq.client")


def compose_reply(request: Message, body: bytes, properties: dict[str, str] | None = None) -> Message:
    """Return the reply to `request`, a received message. Any producer may send it.

    Raises ValueError for a message without a waiting sender.
    """
    asked = request.properties
    for name in (names.REPLY_TO_CLIENT, names.CORRELATION_ID, names.CLUSTER):
        if not asked.get(name):
            raise ValueError(f"the message is not a request: it lacks the property {name}")
    own = {
        names.MSG_TYPE: REPLY_TYPE,
        names.CORRELATION_ID: asked[names.CORRELATION_ID],
        names.REPLY_TO_CLIENT: asked[names.REPLY_TO_CLIENT],
        names.TTL: asked.get(names.TTL, "0"),
    }
    return Message(reply_topic(asked[names.CLUSTER]), body, {**(properties or {}), **own})


class WaitingRequests:
    """The requests of one producer that wait for their replies.

    `count` gets the outcome of each reply: taken, late, failed.
    """

    def __init__(self, client_id: str, count: Callable[[str], None]) -> None:
        self._client_id, self._count = client_id, count
        self._waiting: dict[str, Future[MessageExt]] = {}

    def mark(self, message: Message, timeout_ms: int) -> str:
        """Make `message` a request, and return its correlation id."""
        correlation_id = str(uuid.uuid4())
        message.properties[names.CORRELATION_ID] = correlation_id
        message.properties[names.REPLY_TO_CLIENT] = self._client_id
        message.properties[names.TTL] = str(timeout_ms)
        self._waiting[correlation_id] = create_future()
        return correlation_id

    async def reply_to(self, correlation_id: str) -> MessageExt:
        """Wait for the reply."""
        return await self._waiting[correlation_id]

    def forget(self, correlation_id: str) -> None:
        """Remove a request whose caller stopped waiting."""
        self._waiting.pop(correlation_id, None)

    def take(self, request: RemotingCommand) -> RemotingCommand:
        """Handle a reply that a broker pushes, and return the answer. A late reply is dropped, as by stock.

        The body of a late reply is not decompressed: so replies take the memory of the requests that wait, at most.
        """
        try:
            header = ReplyMessageRequestHeader.decode(request.ext_fields)
            properties = decode_properties(header.properties or "")
            waiting = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
            if waiting is None or waiting.done():
                self._count("late")
                log.info("a reply came too late: %s", properties.get(names.CORRELATION_ID))
            else:
                waiting.set_result(_reply(header, properties, request.body))
                self._count("taken")
        except (RemotingError, DecompressionError) as error:
            self._count("failed")
            log.warning("a reply cannot be decoded: %s", error)
            return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, "process reply message fail")
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS)


def _reply(header: ReplyMessageRequestHeader, properties: dict[str, str], body: bytes) -> MessageExt:
    """Return the message of a push 326. Raises DecompressionError."""
    sys_flag = header.sys_flag
    if sys_flag & MessageSysFlag.COMPRESSED:
        body, sys_flag = decompress_body(body, sys_flag), without_compression(sys_flag)
    return MessageExt(
        header.topic,
        body,
        properties,
        header.flag,
        queue_id=header.queue_id,
        sys_flag=sys_flag,
        born_timestamp_ms=header.born_timestamp,
        store_timestamp_ms=header.store_timestamp,
        reconsume_times=header.reconsume_times or 0,
    )
