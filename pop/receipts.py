"""Receipts: the text by which a consumer acknowledges a message (`POP_CK`, extraInfo). Twin of `rmq_pop_receipt_read`.

Fields with a blank between them: start offset of the pop, pop time, invisible time, revive queue, topic flag, broker,
queue, offset of the message. A door may add more. An answer depends on the first four and on the broker.
"""

from __future__ import annotations

from typing import NamedTuple

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.java_numbers import INT32, INT64, java_integer

FIELDS_READ = 6
HEADER = "org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil"


class Receipt(NamedTuple):
    """The fields of a receipt on which an answer depends. Times are in ms."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    broker: str


def read_receipt(text: str) -> Receipt | None:
    """The receipt. None if C does not read it: a field is missing, empty or no number of Java's."""
    fields = text.split(" ")
    if len(fields) < FIELDS_READ or not all(fields[:FIELDS_READ]):
        return None
    try:
        start, pop_time, invisible = (java_integer(field, *INT64) for field in fields[:3])
        return Receipt(start, pop_time, invisible, java_integer(fields[3], *INT32), fields[5])
    except ValueError:
        return None


def write_receipt(receipt: Receipt, flag: int, queue_id: int, offset: int) -> str:
    """The text of a receipt for the message at a queue offset."""
    start, pop_time, invisible, revive_queue, broker = receipt
    return f"{start} {pop_time} {invisible} {revive_queue} {flag} {broker} {queue_id} {offset}"


def receipt_refusal(text: str | None) -> RequestError:
    """The error of stock for a receipt that cannot be read: it looks at the broker first, then at the numbers."""
    if text is None:
        remark = f"java.lang.IllegalArgumentException: split extraInfo is null, {HEADER}.split(ExtraInfoUtil.java:35)"
        return RequestError(remark, field="extraInfo", code=ResponseCode.SYSTEM_ERROR)
    fields = _split(text)
    for number, name, line in ((5, "getBrokerName", 102), (0, "getCkQueueOffset", 42), (1, "getPopTime", 49)):
        if len(fields) <= number:
            remark = (
                f"java.lang.IllegalArgumentException: {name} fail, extraInfoStrs length {len(fields)}, "
                f"{HEADER}.{name}(ExtraInfoUtil.java:{line})"
            )
            return RequestError(remark, field="extraInfo", code=ResponseCode.SYSTEM_ERROR)
    for number, (low, high) in ((0, INT64), (1, INT64), (2, INT64), (3, INT32)):
        try:
            java_integer(fields[number], low, high)
        except ValueError:
            remark = f'java.lang.NumberFormatException: For input string: "{fields[number][:64]}"'
            return RequestError(remark, field="extraInfo", code=ResponseCode.SYSTEM_ERROR)
    return RequestError(
        f"extraInfo {text[:64]!r} has an empty field", field="extraInfo", code=ResponseCode.SYSTEM_ERROR
    )


def _split(text: str) -> list[str]:
    """Java's split: empty fields at the end do not count."""
    fields = text.split(" ")
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields
