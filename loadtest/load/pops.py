"""Consumers that pop by raw requests: pops, acknowledgements and changes of the invisible time, with their receipts."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.remoting.client_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt, decode_messages
from ringmq.remoting.response_headers import (
    ChangeInvisibleTimeResponseHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)

ALL_QUEUES = -1
FROM_THE_FIRST = 0
TOPICS = {"0": "{topic}", "1": "%RETRY%{group}_{topic}", "2": "%RETRY%{group}+{topic}"}
"""By the flag of a receipt: the topic that holds the message (`ExtraInfoUtil.getRealTopic`)."""


def serves_pop() -> bool:
    """True in a tree whose brokers serve POP."""
    return find_spec("ringmq.pop") is not None and find_spec("ringmq.pop.worker") is not None


@dataclass(frozen=True)
class Receipt:
    """The proof of a pop: a pop gives it for a message, an acknowledgement gives it back. Times in ms."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    flag: str
    broker_name: str
    queue_id: int
    offset: int

    def text(self) -> str:
        """The receipt as the field `extraInfo` has it."""
        numbers = f"{self.start_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_queue} {self.flag}"
        return f"{numbers} {self.broker_name} {self.queue_id} {self.offset}"

    @property
    def due_ms(self) -> int:
        """The time from which on another pop may get the message, by the broker's clock."""
        return self.pop_time_ms + self.invisible_ms


@dataclass(frozen=True)
class Popped:
    """A message and its receipt."""

    message: MessageExt
    receipt: Receipt


class BadPopAnswerError(ValueError):
    """The info strings of an answer do not fit its messages."""


def _entries(text: str) -> Iterator[tuple[str, int, str]]:
    """The entries of an info string: flag, queue id, offset or offsets (`ExtraInfoUtil`)."""
    for entry in text.split(";"):
        flag, queue_id, value = entry.split(" ")
        yield flag, int(queue_id), value


def popped_of(answer: RemotingCommand, broker_name: str) -> list[Popped]:
    """The messages of a pop's answer with their receipts. Raises BadPopAnswerError."""
    header = PopMessageResponseHeader.decode(answer.ext_fields)
    starts = {entry[:2]: int(entry[2]) for entry in _entries(header.start_offset_info or "")}
    receipts = [
        Receipt(starts[flag, queue_id], header.pop_time, header.invisible_time, header.revive_qid, flag, broker_name,
                queue_id, int(offset))
        for flag, queue_id, offsets in _entries(header.msg_offset_info or "") for offset in offsets.split(",")
    ]  # fmt: skip
    messages = list(decode_messages(answer.body))
    places = [(message.queue_id, message.queue_offset) for message in messages]
    if places != [(receipt.queue_id, receipt.offset) for receipt in receipts]:
        raise BadPopAnswerError(f"messages at {places}, msgOffsetInfo {header.msg_offset_info}")
    return [Popped(message, receipt) for message, receipt in zip(messages, receipts, strict=True)]


def bit_set(bits: int) -> str:
    """A set of bits as Java's client writes it: little-endian bytes without zeros at the end, in Base64."""
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


class Popper:
    """A member of a group that pops one topic from one broker. Requests raise the client's errors."""

    def __init__(
        self, client: RemotingClient, address: Callable[[], str], broker_name: str, topic: str, group: str,
        timeout_ms: int = 5000,
    ) -> None:  # fmt: skip
        self.topic, self.group = topic, group
        self._client, self._address, self._broker_name = client, address, broker_name
        self._timeout_ms = timeout_ms

    async def _ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        request = RemotingCommand.request(code, fields, body)
        return await self._client.invoke(self._address(), request, timeout_ms=self._timeout_ms)

    def _held_by(self, receipt: Receipt) -> str:
        return TOPICS[receipt.flag].format(group=self.group, topic=self.topic)

    async def pop(self, count: int, invisible_ms: int, poll_ms: int = 0) -> list[Popped]:
        """Up to `count` messages of all queues, none if none has come within `poll_ms`."""
        return (await self.ask(count, invisible_ms, poll_ms))[1]

    async def ask(
        self, count: int, invisible_ms: int, poll_ms: int = 0, attempt: str | None = None
    ) -> tuple[int, list[Popped]]:
        """As `pop`, with the code of the answer. `attempt`: the pop is orderly, and this is its attempt ("": none)."""
        header = PopMessageRequestHeader(
            consumer_group=self.group, topic=self.topic, queue_id=ALL_QUEUES, max_msg_nums=count,
            invisible_time=invisible_ms, poll_time=poll_ms, born_time=time.time_ns() // 1_000_000,
            init_mode=FROM_THE_FIRST, exp_type="TAG", exp="*", order=None if attempt is None else True,
            attempt_id=attempt or None,
        )  # fmt: skip
        answer = await self._ask(RequestCode.POP_MESSAGE, header.encode())
        return answer.code, popped_of(answer, self._broker_name) if answer.code == ResponseCode.SUCCESS else []

    async def waiting(self) -> int | None:
        """The number of polls of all queues that wait for the group, None if the broker does not tell."""
        header = PollingInfoRequestHeader(consumer_group=self.group, topic=self.topic, queue_id=ALL_QUEUES)
        answer = await self._ask(RequestCode.POLLING_INFO, header.encode())
        if answer.code != ResponseCode.SUCCESS:
            return None
        return PollingInfoResponseHeader.decode(answer.ext_fields).polling_num

    async def ack(self, receipt: Receipt) -> bool:
        """Acknowledge one message. True if the broker answers 0."""
        header = AckMessageRequestHeader(
            consumer_group=self.group, topic=self._held_by(receipt), queue_id=receipt.queue_id,
            extra_info=receipt.text(), offset=receipt.offset,
        )  # fmt: skip
        return (await self._ask(RequestCode.ACK_MESSAGE, header.encode())).code == ResponseCode.SUCCESS

    async def ack_all(self, receipts: Sequence[Receipt]) -> bool:
        """Acknowledge messages of any pops by one request. True if the broker answers 0."""
        bits: dict[Receipt, int] = {}
        for receipt in receipts:
            place = replace(receipt, offset=receipt.start_offset)
            bits[place] = bits.get(place, 0) | 1 << (receipt.offset - receipt.start_offset)
        acks = [
            {"b": bit_set(found), "c": self.group, "it": place.invisible_ms, "pt": place.pop_time_ms,
             "q": place.queue_id, "r": place.flag, "rq": place.revive_queue, "so": place.start_offset, "t": self.topic}
            for place, found in bits.items()
        ]  # fmt: skip
        body = json.dumps({"acks": acks, "brokerName": self._broker_name}).encode()
        return (await self._ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == ResponseCode.SUCCESS

    async def change(self, receipt: Receipt, invisible_ms: int) -> Receipt | None:
        """Let the message be invisible for so long from now on. Returns the new receipt, None if it was refused."""
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self.group, topic=self._held_by(receipt), queue_id=receipt.queue_id,
            extra_info=receipt.text(), offset=receipt.offset, invisible_time=invisible_ms,
        )  # fmt: skip
        answer = await self._ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode())
        if answer.code != ResponseCode.SUCCESS:
            return None
        changed = ChangeInvisibleTimeResponseHeader.decode(answer.ext_fields)
        return replace(
            receipt, start_offset=receipt.offset, pop_time_ms=changed.pop_time, invisible_ms=changed.invisible_time,
            revive_queue=changed.revive_qid,
        )  # fmt: skip
