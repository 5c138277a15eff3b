"""Batches of acknowledgements (200151): the JSON body, in every shape that stock reads.

Twin: native/src/pop/pop_batch_acks.c. C reads the regular shape. This module reads the others: long names, bit maps as
lists, fields that are missing.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from ringmq.native import lib
from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import BadBody, RequestError
from ringmq.remoting.java_numbers import INT32, INT64

BITS_BYTES_MAX: int = lib.RMQ_POP_BITS_BYTES_MAX
"""Of a bit map. The messages of a pop lie closer together."""
BYTES_MAX: int = lib.RMQ_POP_BATCH_BYTES_MAX
GROUPS_MAX: int = lib.RMQ_POP_BATCH_GROUPS_MAX
"""Of a batch. The worker reads so many in some 20 ms, and other consumers wait for that."""
NAME_BYTES_MAX: int = lib.RMQ_POP_NAME_BYTES_MAX
_LONG_NAMES = {
    "c": "consumerGroup", "t": "topic", "r": "retry", "so": "startOffset", "q": "queueId", "rq": "reviveQueueId",
    "pt": "popTime", "it": "invisibleTime", "b": "bitSet",
}  # fmt: skip


class AckGroup(NamedTuple):
    """Acknowledgements of one receipt. Bit i of `bits`, byte i / 8, is for the offset start_offset + i."""

    group: str
    topic: str
    flag: str
    """As in the request: 0, 1 or 2 in a sound one."""
    queue_id: int
    start_offset: int
    pop_time_ms: int
    revive_queue: int
    bits: bytes


class BatchAck(NamedTuple):
    """The body of a request."""

    broker: str
    acks: tuple[AckGroup, ...]


def read_batch_ack(body: bytes) -> BatchAck:
    """Read the body. Raises BadBody for what is no such body, or beyond a limit."""
    value = json_body.read_request(body, "batch of acknowledgements", BYTES_MAX)
    items = json_body.items(value, "acks")
    if len(items) > GROUPS_MAX:
        raise _too_long(f"acks has {len(items)} groups", GROUPS_MAX)
    return BatchAck(str(value.get("brokerName") or ""), tuple(_group(item, n) for n, item in enumerate(items)))


def checked_flag(ack: AckGroup) -> int:
    """The topic flag. Raises RequestError as stock does."""
    if ack.flag not in ("0", "1", "2"):
        raise RequestError(
            "java.lang.IllegalArgumentException: getRetry fail, format is wrong, "
            "org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil.getRealTopic(ExtraInfoUtil.java:89)",
            field="r", code=ResponseCode.SYSTEM_ERROR,
        )  # fmt: skip
    return int(ack.flag)


def _group(item: Any, number: int) -> AckGroup:
    where = f"acks[{number}]"
    if not isinstance(item, dict):
        raise BadBody(f"{where} is no object", field="acks", code=ResponseCode.SYSTEM_ERROR)
    found = {short: item.get(short, item.get(name)) for short, name in _LONG_NAMES.items()}
    names = [str(found[name] or "") for name in ("c", "t")]
    for short, name in zip(("c", "t"), names, strict=True):
        if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
            raise _too_long(f"{where}: {short} has {len(name.encode('utf-8', 'replace'))} bytes", NAME_BYTES_MAX)
    queue_id, start_offset, pop_time_ms, revive_queue = (
        _number(found, short, bounds, where)
        for short, bounds in (("q", INT32), ("so", INT64), ("pt", INT64), ("rq", INT32))
    )
    bits = _bits(found["b"], where)
    group, topic = names
    return AckGroup(group, topic, str(found["r"]), queue_id, start_offset, pop_time_ms, revive_queue, bits)


def _number(found: dict[str, Any], short: str, bounds: tuple[int, int], where: str) -> int:
    value = found[short]
    if value is None:
        return 0
    try:
        number = value if type(value) is int else int(str(value))
    except ValueError:
        raise BadBody(
            f"{where}: {short} = {str(value)[:64]!r} is no whole number", field="acks", code=ResponseCode.SYSTEM_ERROR
        ) from None
    if not bounds[0] <= number <= bounds[1]:
        raise BadBody(
            f"{where}: {short} is outside {bounds[0]}..{bounds[1]}", field="acks", code=ResponseCode.SYSTEM_ERROR
        )
    return number


def _bits(value: Any, where: str) -> bytes:
    if isinstance(value, list) and len(value) > BITS_BYTES_MAX:  # before the loop over its numbers
        raise _too_long(f"{where}: b has {len(value)} bytes", BITS_BYTES_MAX)
    try:
        if isinstance(value, list):
            bits = bytes(int(byte) & 0xFF for byte in value)
        else:
            bits = base64.b64decode(str(value or ""), validate=True)
    except (ArithmeticError, ValueError, TypeError, binascii.Error):  # 1e999 is infinite
        raise BadBody(f"{where}: b is no bit map", field="acks", code=ResponseCode.SYSTEM_ERROR) from None
    if len(bits) > BITS_BYTES_MAX:
        raise _too_long(f"{where}: b has {len(bits)} bytes", BITS_BYTES_MAX)
    return bits


def _too_long(found: str, limit: int) -> BadBody:
    message = f"{found}, the limit is {limit}"
    return BadBody(message, field="acks", code=ResponseCode.SYSTEM_ERROR, limit=limit)
