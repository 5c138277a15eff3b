"""The request that brings a reply to its requester (326)."""

from __future__ import annotations

from ringmq.remoting import properties
from ringmq.remoting.client_headers import ReplyMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.services.replies.cases import Asked, Deliver


def push_frame(asked: Asked, delivered: Deliver, body: bytes, store_host: str, now_ms: int) -> bytes:
    """The frame of a reply's 326. `store_host`: ip:port of the broker. It names the queue as the replier did, with -1
    for any."""
    header = asked.header
    pushed = ReplyMessageRequestHeader(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        properties=properties.encode_properties({**delivered.pairs, properties.PUSH_REPLY_TIME: str(now_ms)}),
        reconsume_times=header.reconsume_times,
        unit_mode=bool(header.unit_mode),
        born_host=asked.sender,
        store_host=store_host,
        store_timestamp=now_ms,
    )
    return encode_frame(RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed.encode(), body))
