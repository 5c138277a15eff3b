"""Decoding of pull answers: from the body to the application's messages. No IO.

Compressed bodies wait as they are stored, and are decompressed when their messages are handed out: 1.5 KB can stand for
64 MiB, and thousands of messages may wait.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ringmq.client.compression import DecompressionError, check_codec, decompress_body
from ringmq.client.errors import BodyCrcError
from ringmq.client.namespaces import without_namespace
from ringmq.remoting import properties as names
from ringmq.remoting.batch import BadBatch, decode_batch
from ringmq.remoting.flags import MessageSysFlag, without_compression
from ringmq.remoting.message import MIN_RECORD_BYTES, BadMessage, MessageExt, decode_message, has_its_crc
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import is_retry_topic
from ringmq.remoting.properties import decode_properties
from ringmq.remoting.subscription import SubscriptionData

M = TypeVar("M", bound=MessageExt)

log = logging.getLogger("ringmq.client")
# plain numbers: each message meets them, and operations on members of an IntFlag take ten times as long
_COMPRESSED = int(MessageSysFlag.COMPRESSED)
_INNER_BATCH = int(MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP)
OFFSET_MAX = 0x00FFFFFFFFFFFFFF
"""An offset beyond all queues (RMQ_QUEUE_OFFSET_MAX)."""
INNER_BATCH_MESSAGES_MAX = 32_767
"""Messages of an inner batch: a unit of a BatchConsumeQueue has 16 bits for their number."""
INNER_MESSAGE_BYTES = 512
"""Memory of a message of an inner batch beside its body."""


def read_messages(
    body: bytes, queue: MessageQueue, first_offset: int, subscription: SubscriptionData, namespace: str = ""
) -> list[MessageExt]:
    """Return the selected messages of a pull answer. See `read_answer`."""
    return read_answer(body, queue, first_offset, subscription, namespace)[0]


def read_answer(
    body: bytes,
    queue: MessageQueue,
    first_offset: int,
    subscription: SubscriptionData,
    namespace: str = "",
    *,
    check_crc: bool = False,
    split_bytes_max: int = 16 << 20,
) -> tuple[list[MessageExt], int | None]:
    """Return the selected messages of a pull answer, in queue order, and an offset to continue at or None.

    The offset is set if the rest of the answer cannot be read, or is left for the next pull because inner batches have
    grown to `split_bytes_max`. It replaces the answer's own.

    Inner batches are split, and tags compared as text (the broker compares hashes). Other compressed bodies stay as
    they are: see `unpacked`. Messages of the group's retry topic get their first topic back. Offsets below
    `first_offset` (the front of a batch that was read in part) are left out. Topics lose their `namespace`. An
    unreadable record is left out, by its size if it has one, else by its offset. With `check_crc`, messages of a body
    with a wrong CRC are marked. Raises RuntimeError if a body needs a package that is not installed.
    """
    messages: list[MessageExt] = []
    view, at, next_offset, split_bytes = memoryview(body), 0, first_offset, 0
    while at < len(view):
        if split_bytes >= split_bytes_max:
            return messages, max(next_offset, first_offset + 1)
        try:
            stored, at = decode_message(view, at)
        except BadMessage as error:
            size = int.from_bytes(view[at : at + 4], "big")
            log.error("%s: a record at or behind offset %d cannot be read: %s", queue, next_offset, error)
            if not MIN_RECORD_BYTES <= size <= len(view) - at:
                # one with readable ones before it begins the next answer, and is passed over then
                return messages, max(next_offset, first_offset + 1)
            at += size
            continue
        stored.is_body_damaged = check_crc and not has_its_crc(stored)
        check_codec(stored.sys_flag)
        unwrapped = _unwrap(stored)
        if len(unwrapped) != 1 or unwrapped[0] is not stored:
            split_bytes += sum(len(message.body) + INNER_MESSAGE_BYTES for message in unwrapped)
        next_offset = (unwrapped or (stored,))[-1].queue_offset + 1
        for message in unwrapped:
            if message.queue_offset < first_offset or not subscription.matches_tags(message.tags):
                continue
            message.broker_name = queue.broker_name
            if namespace:
                message.topic = without_namespace(namespace, message.topic)
            if is_retry_topic(queue.topic) and _came_back(message):
                message.topic = without_namespace(namespace, message.properties[names.RETRY_TOPIC])
            if message.topic != queue.topic:
                message.read_topic = queue.topic
            messages.append(message)
    return messages, None


def unpacked(message: M) -> M:
    """Return the message with its body decompressed: a copy, so that the waiting message stays small.

    A body that cannot be decompressed, or is larger than 64 MiB then, is logged and passed on as it is stored, with the
    bits of compression in `sys_flag`.
    """
    if not message.sys_flag & _COMPRESSED:
        return message
    try:
        body = decompress_body(message.body, message.sys_flag)
    except DecompressionError as error:
        log.error(
            "message %s of topic %s (%s, offset %d): its body of %d bytes cannot be decompressed and is passed on as "
            "it is stored: %s",
            message.msg_id, message.topic, queue_of(message), message.queue_offset, len(message.body), error,
        )  # fmt: skip
        return message
    return replace(message, body=body, sys_flag=without_compression(message.sys_flag))


def unpacked_front(messages: list[M], bytes_max: int) -> list[M]:
    """Return the first messages unpacked, at least one, until their bodies have `bytes_max`.

    The last message may exceed it. Without a compressed body all are returned: they are in memory as they are.
    """
    if not any(message.sys_flag & _COMPRESSED for message in messages):
        return messages
    front: list[M] = []
    size = 0
    for message in messages:
        front.append(unpacked(message))
        size += len(front[-1].body)
        if size >= bytes_max:
            break
    return front


def before_damage(messages: list[MessageExt]) -> list[MessageExt]:
    """Return the first messages of one queue, to be delivered together. A damaged message is delivered alone."""
    damaged = next((at for at, message in enumerate(messages) if message.is_body_damaged), len(messages))
    return messages[: max(damaged, 1)]


def check_body(message: MessageExt) -> None:
    """Raise `BodyCrcError` if a reader has found the body damaged."""
    if message.is_body_damaged:
        raise BodyCrcError(message)


def queue_of(message: MessageExt) -> MessageQueue:
    """Return the queue that `message` was read from.

    The read queue matters, not that of `topic`: another topic may have an open message with the same offset.
    """
    return MessageQueue(message.read_topic or message.topic, message.broker_name, message.queue_id)


def _came_back(message: MessageExt) -> bool:
    """True if a broker stored the message for a retry topic. A sender may have copied the property alone."""
    return message.reconsume_times > 0 and names.RETRY_TOPIC in message.properties


def _unwrap(stored: MessageExt) -> Sequence[MessageExt]:
    """Return the messages of an inner batch (BatchCQ topics), or the message itself."""
    if stored.sys_flag & _INNER_BATCH != _INNER_BATCH:
        return (stored,)
    try:
        elements = decode_batch(decompress_body(stored.body, stored.sys_flag), INNER_BATCH_MESSAGES_MAX)
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
            sys_flag=without_compression(stored.sys_flag) & ~_INNER_BATCH,
        )
        for index, element in enumerate(elements)
    ]
