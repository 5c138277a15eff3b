"""A consumer of the tests that takes single messages, by requests of its own: pops, receipts, acknowledgements."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import CLUSTERING, CONSUME_POP, ConsumerData, HeartbeatData
from ringmq.remoting.message import MessageExt, decode_messages
from ringmq.remoting.subscription import build_subscription
from tests.raw_client import RawClient
from tests.services.late_start import ask_started

NOTHING = 210


class Taken(NamedTuple):
    """A message that a pop has given, and its receipt (POP_CK)."""

    message: MessageExt
    receipt: str

    @property
    def body(self) -> bytes:
        return bytes(self.message.body)

    @property
    def queue_id(self) -> int:
        return int(self.receipt.split()[6])

    @property
    def offset(self) -> int:
        return int(self.receipt.split()[7])

    @property
    def flag(self) -> int:
        """0: of the topic itself, 1 or 2: of a topic of retries."""
        return int(self.receipt.split()[4])


def pop_fields(
    group: str, topic: str, count: int, invisible_ms: int, queue_id: int, **more: object
) -> dict[str, object]:
    """Fields of a pop that does not wait."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "maxMsgNums": count,
        "invisibleTime": invisible_ms, "pollTime": 0, "bornTime": time.time_ns() // 1_000_000, "initMode": 0, **more,
    }  # fmt: skip


class PopClient:
    """One group at one connection."""

    def __init__(self, address: str, group: str, topic: str, broker: str = "broker-a") -> None:
        self.raw, self.group, self.topic, self._broker = RawClient(address), group, topic, broker

    def close(self) -> None:
        self.raw.socket.close()

    def join(self, client_id: str) -> None:
        """Become a member of the group, by a heartbeat."""
        subscription = build_subscription(self.topic, "*", sub_version=1)
        member = ConsumerData(self.group, CONSUME_POP, CLUSTERING, subscriptions=[subscription])
        answer = self.raw.ask(RequestCode.HEART_BEAT, {}, HeartbeatData(client_id, consumers=[member]).encode())
        assert answer.code == 0, answer.remark

    def ask_pop(
        self, count: int = 32, invisible_ms: int = 60_000, queue_id: int = -1, **more: object
    ) -> RemotingCommand:
        """The answer to a pop."""
        fields = pop_fields(self.group, self.topic, count, invisible_ms, queue_id, **more)
        return ask_started(self.raw, RequestCode.POP_MESSAGE, fields)

    def pop(self, count: int = 32, invisible_ms: int = 60_000, queue_id: int = -1, **more: object) -> list[Taken]:
        """The messages of a pop."""
        answer = self.ask_pop(count, invisible_ms, queue_id, **more)
        assert answer.code in (0, NOTHING), (answer.code, answer.remark)
        return list(self.taken(answer)) if answer.code == 0 else []

    def peek(self, count: int = 32) -> list[bytes]:
        """The bodies of the messages that a look shows."""
        fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": -1, "maxMsgNums": count}
        answer = ask_started(self.raw, RequestCode.PEEK_MESSAGE, fields)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), (answer.code, answer.remark)
        return [bytes(message.body) for message in decode_messages(answer.body)]

    def pop_all(self, **more: int) -> list[Taken]:
        """The messages of pops until one finds nothing."""
        found: list[Taken] = []
        while more_found := self.pop(**more):
            found += more_found
        return found

    def taken(self, answer: RemotingCommand) -> Iterator[Taken]:
        """Pair messages and receipts as stock's client does (`MQClientAPIImpl.processPopResponse`)."""
        fields = answer.ext_fields
        starts = {tuple(entry.split()[:2]): entry.split()[2] for entry in fields["startOffsetInfo"].split(";")}
        offsets = {
            tuple(entry.split()[:2]): entry.split()[2].split(",") for entry in fields["msgOffsetInfo"].split(";")
        }
        numbers = dict.fromkeys(offsets, 0)
        times = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
        for message in decode_messages(answer.body):
            if (receipt := message.properties.get("POP_CK")) is None:
                key = "0", str(message.queue_id)
                offset = offsets[key][numbers[key]]
                numbers[key] += 1
                receipt = f"{starts[key]} {times} 0 {self._broker} {key[1]} {offset}"
            yield Taken(message, receipt)

    def real_topic(self, taken: Taken) -> str:
        """The topic in which the message lies."""
        return {0: self.topic, 1: f"%RETRY%{self.group}_{self.topic}", 2: f"%RETRY%{self.group}+{self.topic}"}[
            taken.flag
        ]

    def _fields(self, taken: Taken) -> dict[str, object]:
        return {
            "consumerGroup": self.group, "topic": self.real_topic(taken), "queueId": taken.queue_id,
            "extraInfo": taken.receipt, "offset": taken.offset,
        }  # fmt: skip

    def ack(self, taken: Taken) -> RemotingCommand:
        """Acknowledge a message."""
        return ask_started(self.raw, RequestCode.ACK_MESSAGE, self._fields(taken))

    def change(self, taken: Taken, invisible_ms: int) -> RemotingCommand:
        """Give a message another invisible time."""
        fields = {**self._fields(taken), "invisibleTime": invisible_ms}
        return ask_started(self.raw, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
