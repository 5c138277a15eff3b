"""Messages by key (12) and by commit-log offset (33), never beyond the confirm offset."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.request import Answer, Request
from ringmq.broker.tables.protocols import StoreProtocol
from ringmq.remoting.client_headers import QueryMessageRequestHeader, ViewMessageRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.response_headers import QueryMessageResponseHeader

BODY_BYTES_MAX = 16_000_000
"""Bytes of messages in one answer. Messages beyond it are left out, newest first."""


class QueryRequests(Struct, frozen=True):
    """The handlers of queries, with the parts that they need."""

    live: LiveConfig
    store: StoreProtocol

    def query_message(self, request: Request) -> Answer:
        """12: the newest matches, oldest of them first. A unique-key query has its own limit."""
        header = QueryMessageRequestHeader.decode(request.command.ext_fields)
        wanted = self.live.config.default_query_max_num if header.unique_key_query else header.max_num
        limit = max(0, min(wanted, self.live.config.max_msgs_num_batch))
        found = self.store.query_by_key(header.topic, header.key, limit, header.begin_timestamp, header.end_timestamp)
        ext = QueryMessageResponseHeader(
            index_last_update_timestamp=found.index_last_update_timestamp,
            index_last_update_phyoffset=found.index_last_update_phyoffset,
        ).encode()
        messages: list[bytes] = []
        room = BODY_BYTES_MAX
        for message in reversed(found.messages):
            room -= len(message)
            if room < 0 and messages:
                break
            messages.append(message)
        if not messages:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, ext)
        return request.reply(ext_fields=ext, body=b"".join(reversed(messages)))

    def view_message(self, request: Request) -> Answer:
        """33: one stored message."""
        offset = ViewMessageRequestHeader.decode(request.command.ext_fields).offset
        message = self.store.view(offset)
        if message is None:
            remark = f"can not find message by the offset, {offset}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        return request.reply(body=message)
