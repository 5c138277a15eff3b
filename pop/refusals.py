"""The answers of the desk to requests that it refuses: code, remark and fields, as stock has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ringmq.broker.requests.request import FAQ
from ringmq.native import lib
from ringmq.pop.receipts import receipt_refusal
from ringmq.remoting.codes import RequestCode, ResponseCode

INVISIBLE_MS_MAX: int = lib.RMQ_POP_INVISIBLE_MS_MAX
NOTHING_SET = "not set any response code"
"""Stock's remark where it sets none."""
FOUND, EMPTY = "FOUND", "NO_MESSAGE_IN_QUEUE"
"""Stock's remarks of an answer with messages, and of one without."""
_ZERO_OF_POP = {"invisibleTime": "0", "restNum": "0", "popTime": "0", "reviveQid": "0"}
_ZEROS: Mapping[int, Mapping[str, str]] = {
    RequestCode.POP_MESSAGE: _ZERO_OF_POP,
    RequestCode.PEEK_MESSAGE: _ZERO_OF_POP,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: {"invisibleTime": "0", "popTime": "0", "reviveQid": "0"},
    RequestCode.NOTIFICATION: {"hasMsg": "false", "pollingFull": "false"},
    RequestCode.POLLING_INFO: {"pollingNum": "0"},
}


class Refused(NamedTuple):
    """The parts of a refused request that its remark names. A field that the request lacks is empty or 0."""

    code: int
    """Of the request."""
    group: str
    topic: str
    queue_id: int
    client: str
    """address:port"""
    broker_ip: str
    read_queues: int = 0
    bounds: tuple[int, int] = (0, 0)
    """Minimum and maximum offset of the queue."""
    offset: int = 0
    committed: int = 0
    """The consumer offset of an orderly group."""
    invisible_ms: int = 0
    receipt: str | None = None
    cause: str = ""
    """The reason why POP has stopped."""


class Refusal(NamedTuple):
    """An answer."""

    code: int
    remark: str | None
    fields: dict[str, str]


def refusal(why: int, asked: Refused) -> Refusal:
    """The answer to a request that C has refused with RMQ_POP_*. KeyError for a result that is no refusal."""
    code, remark = _TEXTS[why](asked)
    return Refusal(int(code), remark, zero_fields(asked.code))


def zero_fields(code: int) -> dict[str, str]:
    """The fields of a refusal: all but acknowledgements answer with zeros."""
    return dict(_ZEROS.get(code, {}))


def _broker_unreadable(asked: Refused) -> tuple[int, str]:
    what = "pop message" if asked.code == RequestCode.POP_MESSAGE else "peeking message"
    return ResponseCode.NO_PERMISSION, f"the broker[{asked.broker_ip}] {what} is forbidden"


def _no_queue(asked: Refused) -> tuple[int, str]:
    is_of_receipt = asked.code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    return (
        ResponseCode.MESSAGE_ILLEGAL if is_of_receipt else ResponseCode.INVALID_PARAMETER,
        f"queueId[{asked.queue_id}] is illegal, topic:[{asked.topic}] topicConfig.readQueueNums:[{asked.read_queues}] "
        f"consumer:[/{asked.client}]",
    )


def _bad_offset(asked: Refused) -> tuple[int, str]:
    if asked.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
        return ResponseCode.NO_MESSAGE, NOTHING_SET
    low, high = asked.bounds
    key = f"{asked.topic}@{asked.queue_id}"
    return ResponseCode.NO_MESSAGE, f"offset is illegal, key:{key}, commit:{asked.offset}, store:{low}~{high}"


def _bad_receipt(asked: Refused) -> tuple[int, str]:
    error = receipt_refusal(asked.receipt)
    return error.code, str(error)


_TEXTS: dict[int, Callable[[Refused], tuple[int, str]]] = {
    lib.RMQ_POP_TOO_LATE: lambda asked: (
        ResponseCode.POLLING_TIMEOUT, f"the broker[{asked.broker_ip}] pop message is timeout too much"
    ),
    lib.RMQ_POP_BROKER_UNREADABLE: _broker_unreadable,
    lib.RMQ_POP_TOO_MANY: lambda asked: (
        ResponseCode.INVALID_PARAMETER,
        f"the broker[{asked.broker_ip}] pop message's num is greater than {lib.RMQ_POP_MESSAGES_MAX}",
    ),
    lib.RMQ_POP_NO_TOPIC: lambda asked: (
        ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.topic}] not exist, apply first please! {FAQ}"
    ),
    lib.RMQ_POP_TOPIC_UNREADABLE: lambda asked: (
        ResponseCode.NO_PERMISSION, f"the topic[{asked.topic}] peeking message is forbidden"
    ),
    lib.RMQ_POP_NO_QUEUE: _no_queue,
    lib.RMQ_POP_NO_GROUP: lambda asked: (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{asked.group}] does not exist, {FAQ}"
    ),
    lib.RMQ_POP_GROUP_DISABLED: lambda asked: (
        ResponseCode.NO_PERMISSION, f"subscription group no permission, {asked.group}"
    ),
    lib.RMQ_POP_BAD_EXPRESSION: lambda asked: (
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
    ),
    lib.RMQ_POP_NOT_OF_BATCH: lambda asked: (
        ResponseCode.MESSAGE_ILLEGAL,
        f"offset is illegal, key:{asked.topic}@{asked.group}@{asked.queue_id}, old:{asked.committed}, "
        f"commit:{asked.offset}, next:-1, /{asked.client}",
    ),
    lib.RMQ_POP_BAD_INVISIBLE: lambda asked: (
        ResponseCode.INVALID_PARAMETER, f"invisibleTime = {asked.invisible_ms} is outside 0..{INVISIBLE_MS_MAX}"
    ),
    lib.RMQ_POP_BAD_OFFSET: _bad_offset,
    lib.RMQ_POP_BAD_RECEIPT: _bad_receipt,
    lib.RMQ_POP_ENTRIES_USED: lambda asked: (
        ResponseCode.SYSTEM_ERROR, "too many messages are open: see ringmqPopOpenMax"
    ),
    lib.RMQ_POP_STOPPED: lambda asked: (
        ResponseCode.SYSTEM_ERROR, f"POP is stopped until the broker starts again: {asked.cause}"
    ),
}  # fmt: skip
