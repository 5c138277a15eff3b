"""Requests that look, PEEK_MESSAGE (200052) and POLLING_INFO (200055): fields, and frames of their answers."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct, field

from ringmq.broker.requests.request import Request
from ringmq.ipc.record_answers import LogRanges, records_payload
from ringmq.native import lib
from ringmq.pop.refusals import EMPTY, FOUND, NOTHING_SET, zero_fields
from ringmq.remoting.client_headers import PeekMessageRequestHeader, PollingInfoRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame, encode_parts
from ringmq.remoting.errors import RequestError

NAME_BYTES_MAX: int = lib.RMQ_POP_NAME_BYTES_MAX
HEADER_BYTES = 1024
"""Room for the header of an answer, which counts among its bytes."""


class Asked(NamedTuple):
    """The fields of a request. `queue_id` below 0: all queues."""

    group: str
    topic: str
    queue_id: int
    wanted: int = 0
    """Messages."""


class Seen(Struct):
    """The messages of an answer to PEEK."""

    wanted: int
    messages: int = 0
    size: int = 0
    """Bytes of their records."""
    rest: int = 0
    """Messages that the group has not received, of all queues that were looked at, those of the answer too."""
    pieces: list[bytes] = field(default_factory=list)
    """Their places in the log."""

    @property
    def is_full(self) -> bool:
        """True if no further message is wanted."""
        return self.messages >= self.wanted


def asked_of(request: Request) -> Asked:
    """The fields of a request. Raises RequestError for the first that is missing or beyond its limit."""
    fields = request.command.ext_fields
    if request.command.code == RequestCode.POLLING_INFO:
        info = PollingInfoRequestHeader.decode(fields)
        return Asked(*_names_of(info.consumer_group, info.topic), info.queue_id)
    header = PeekMessageRequestHeader.decode(fields)
    wanted = header.max_msg_nums
    if wanted < 0:
        remark = f"maxMsgNums = {wanted} is below 0"
        raise RequestError(remark, field="maxMsgNums", code=ResponseCode.INVALID_PARAMETER, limit=0)
    return Asked(*_names_of(header.consumer_group, header.topic), header.queue_id, wanted)


def _names_of(group: str, topic: str) -> tuple[str, str]:
    return (
        checked_name(group, "consumerGroup", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        checked_name(topic, "topic", ResponseCode.TOPIC_NOT_EXIST),
    )


def checked_name(name: str, field_name: str, code: int) -> str:
    """A name, as the plane has it: half a character becomes `?`, as in Java. Raises RequestError beyond the limit."""
    data = name.encode("utf-8", "replace")
    if len(data) > NAME_BYTES_MAX:
        remark = f"{field_name} has {len(data)} bytes, the limit is {NAME_BYTES_MAX}"
        raise RequestError(remark, field=field_name, code=code, limit=NAME_BYTES_MAX)
    return data.decode()


def polling_info(request: Request, polls: int) -> RemotingCommand:
    """The answer to POLLING_INFO."""
    return request.reply(ResponseCode.SUCCESS, NOTHING_SET, {"pollingNum": str(polls)})


def nothing_found(request: Request, rest: int) -> RemotingCommand:
    """The answer to PEEK without messages. `rest`: see Seen."""
    return request.reply(ResponseCode.PULL_NOT_FOUND, EMPTY, _fields(request, rest))


def peeked(request: Request, seen: Seen) -> bytes:
    """The answer to PEEK with messages, as a payload that names their records."""
    head, _ = encode_parts(request.reply(ResponseCode.SUCCESS, FOUND, _fields(request, seen.rest)))
    head = (len(head) - 4 + seen.size).to_bytes(4) + head[4:]
    return records_payload(
        [head, LogRanges(b"".join(seen.pieces), seen.size)], encode_frame(nothing_found(request, seen.rest))
    )


def _fields(request: Request, rest: int) -> dict[str, str]:
    """Stock answers with those of a pop, and sets one of them."""
    return {**zero_fields(request.command.code), "restNum": str(rest)}
