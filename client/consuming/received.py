"""From the body of a pull answer to the messages that the application sees. No IO."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from ringmq.client.compression import DecompressionError, decompress_body
from ringmq.client.namespaces import without_namespace
from ringmq.remoting import properties as names
from ringmq.remoting.batch import BadBatch, decode_batch
from ringmq.remoting.flags import MessageSysFlag, without_compression
from ringmq.remoting.message import MIN_RECORD_BYTES, BadMessage, MessageExt, decode_message
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import is_retry_topic
from ringmq.remoting.properties import decode_properties
from ringmq.remoting.subscription import SubscriptionData

log = logging.getLogger("ringmq.client")
OFFSET_MAX = 0x00FFFFFFFFFFFFFF
"""No queue reaches there (RMQ_QUEUE_OFFSET_MAX)."""


def read_messages(
    body: bytes, queue: MessageQueue, first_offset: int, subscription: SubscriptionData, namespace: str = ""
) -> list[MessageExt]:
    """The messages of a pull answer that are for us; see `read_answer`."""
    return read_answer(body, queue, first_offset, subscription, namespace)[0]


def read_answer(
    body: bytes, queue: MessageQueue, first_offset: int, subscription: SubscriptionData, namespace: str = ""
) -> tuple[list[MessageExt], int | None]:
    """The messages of a pull answer that are for us, in queue order; and, when no more of it can be read, the offset to
    go on at instead of the answer's.

    Bodies are decompressed, inner batches split, tags compared as text (the broker compares hashes), and messages that
    come back from the group's retry topic carry their first topic again. Offsets below `first_offset` (the front
    of a batch that was read in part) are left out. A body that cannot be decompressed is handed over as it is, with its
    sysFlag still saying so. Topics lose their `namespace`. A record that cannot be read is left out, by its size where
    it names one, else by its offset.
    """
    messages: list[MessageExt] = []
    view, at, next_offset = memoryview(body), 0, first_offset
    while at < len(view):
        try:
            stored, at = decode_message(view, at)
        except BadMessage as error:
            size = int.from_bytes(view[at : at + 4], "big")
            log.error("%s: a record at or behind offset %d cannot be read: %s", queue, next_offset, error)
            if not MIN_RECORD_BYTES <= size <= len(view) - at:
                # one with readable ones before it begins the next answer, and is passed over then
                return messages, next_offset if next_offset > first_offset else first_offset + 1
            at += size
            continue
        unwrapped = _unwrap(stored)
        next_offset = (unwrapped or (stored,))[-1].queue_offset + 1
        for message in unwrapped:
            if message.queue_offset < first_offset or not subscription.matches_tags(message.tags):
                continue
            message.broker_name = queue.broker_name
            if namespace:
                message.topic = without_namespace(namespace, message.topic)
            if message.sys_flag & MessageSysFlag.COMPRESSED:
                _decompress(message)
            if is_retry_topic(queue.topic) and _came_back(message):
                message.topic = without_namespace(namespace, message.properties[names.RETRY_TOPIC])
            if message.topic != queue.topic:
                message.read_topic = queue.topic
            messages.append(message)
    return messages, None


def queue_of(message: MessageExt) -> MessageQueue:
    """The queue that `message` was read from. It has to be the one and no other: that of another topic may have
    an open message with the same offset."""
    return MessageQueue(message.read_topic or message.topic, message.broker_name, message.queue_id)


def _came_back(message: MessageExt) -> bool:
    """Whether a broker stored it for a retry topic; the property alone may have been copied by whoever sent it."""
    return message.reconsume_times > 0 and names.RETRY_TOPIC in message.properties


def _unwrap(stored: MessageExt) -> Sequence[MessageExt]:
    """The messages of an inner batch (BatchCQ topics), or the message itself."""
    both = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    if stored.sys_flag & both != both:
        return (stored,)
    try:
        elements = decode_batch(decompress_body(stored.body, stored.sys_flag))
        base_offset = int(stored.properties.get(names.INNER_BASE, stored.queue_offset))
        if not 0 <= base_offset <= OFFSET_MAX - len(elements):  # committed, it would end the group's reading
            raise ValueError(f"{names.INNER_BASE} = {base_offset} is outside 0..{OFFSET_MAX - len(elements)}")
    except (BadBatch, DecompressionError, ValueError) as error:
        log.error("inner batch at %d of %s cannot be split: %s", stored.commit_log_offset, stored.topic, error)
        return (stored,)
    return [
        replace(
            stored,
            body=element.body,
            flag=element.flag,
            properties=decode_properties(element.properties.decode("utf-8", "replace")),
            queue_offset=base_offset + index,
            sys_flag=without_compression(stored.sys_flag) & ~both,
        )
        for index, element in enumerate(elements)
    ]


def _decompress(message: MessageExt) -> None:
    try:
        message.body = decompress_body(message.body, message.sys_flag)
        message.sys_flag = without_compression(message.sys_flag)
    except DecompressionError as error:
        log.error("body of message %s of %s: %s", message.msg_id, message.topic, error)
