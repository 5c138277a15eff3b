"""Decoding of answers to pops: from the body and its info strings to messages with receipts. No IO.

The rules are those of RocketMQ's client (`MQClientAPIImpl.processPopResponse`). A message that came again has its
receipt among its properties. The others get theirs from the answer's header.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ringmq.client.errors import BrokerError
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.popping.receipts import NORMAL, BadReceipt, Receipt, flag_of, topic_of
from ringmq.remoting import properties as names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MIN_RECORD_BYTES, BadMessage, decode_message

log = logging.getLogger("ringmq.client")

EMPTY_CODES = frozenset({ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})
"""Codes of answers without a message that are no errors."""


class PopTarget(NamedTuple):
    """A topic's queues at one master."""

    topic: str
    broker_name: str
    address: str


def read_popped(
    answer: RemotingCommand, target: PopTarget, group: str, received_at: float, *, ordered: bool
) -> list[PoppedMessage]:
    """Return the messages of an answer that came at the monotonic time `received_at`. Bodies stay compressed.

    An unreadable record is left out with a log line: it comes again. Raises `BrokerError` for any other code than those
    of a pop, and for an answer that does not fit together.
    """
    if answer.code != ResponseCode.SUCCESS:
        if answer.code in EMPTY_CODES:
            return []
        raise BrokerError(target.address, answer.code, answer.remark)
    try:
        return _messages(answer, target, group, received_at, ordered=ordered)
    except (BadReceipt, ValueError, KeyError) as error:
        text = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BrokerError(target.address, answer.code, f"answer to a pop of {target.topic}: {text}") from error


def _messages(
    answer: RemotingCommand, target: PopTarget, group: str, received_at: float, *, ordered: bool
) -> list[PoppedMessage]:
    fields = answer.ext_fields
    times = int(fields["popTime"]), int(fields["invisibleTime"])
    revive_queue, expires_at = int(fields["reviveQid"]), received_at + times[1] / 1000
    starts = _by_queue(fields.get("startOffsetInfo", ""))
    counts = _by_queue(fields.get("orderCountInfo", "")) if ordered else {}
    has_starts = bool(starts)
    messages: list[PoppedMessage] = []
    view, at = memoryview(answer.body), 0
    while at < len(view):
        try:
            message, at = decode_message(view, at, kind=PoppedMessage)
        except BadMessage as error:
            size = int.from_bytes(view[at : at + 4], "big")
            log.error("%s of %s: a popped record cannot be read: %s", target.topic, target.broker_name, error)
            if not MIN_RECORD_BYTES <= size <= len(view) - at:
                break
            at += size
            continue
        given = message.properties.pop(names.POP_CK, None)
        if given is not None:
            receipt = Receipt.parse(given)
        else:
            flag = flag_of(message.topic)
            key = f"{flag} {message.queue_id}"
            start = starts[key] if has_starts else starts.setdefault(key, message.queue_offset)
            receipt = Receipt(
                start, *times, revive_queue, flag, target.broker_name, message.queue_id, message.queue_offset
            )
            if counts:
                own = counts.get(f"{flag} qo{message.queue_id}%{message.queue_offset}", counts.get(key, 0))
                message.reconsume_times = own or message.reconsume_times
        message.receipt, message.expires_at = receipt, expires_at
        message.topic, message.broker_name = target.topic, target.broker_name
        if receipt.flag != NORMAL:
            message.read_topic = topic_of(receipt.flag, group, target.topic)
        messages.append(message)
    return messages


def _by_queue(text: str) -> dict[str, int]:
    """Return flag and queue (with a blank between) -> number, of an info string such as "0 3 120;1 0 7"."""
    found: dict[str, int] = {}
    for entry in text.split(";") if text else ():
        key, _, number = entry.rpartition(" ")
        if key.count(" ") != 1 or key in found:
            raise ValueError(f"entry {entry[:64]!r} of {text[:64]!r} is no new one of three fields")
        found[key] = int(number)
    return found
