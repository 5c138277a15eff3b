"""Fields and bodies of the requests of a consumer that pops, as RocketMQ's client encodes them. No IO.

Names are those of the wire: real topics and batches have the namespace inside their names, so `RemotingClient` cannot
add it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.namespaces import with_namespace
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.popping.receipts import Receipt, topic_of
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.subscription import SubscriptionData

POP_MESSAGES_MAX = 32
ALL_QUEUES = "-1"
BATCH_GROUPS_MAX = 500
"""Pops of single queues in a batch of acknowledgements. RingMQ takes 1,024."""
BATCH_BYTES_MAX = 500_000
"""The pops of a batch in bytes. RingMQ takes 512 KiB, and 500 pops with long bit maps would have 800 KB."""
BITS_MAX = 8192
"""Messages behind the first one of a pop that a batch can name. Those behind are acknowledged one by one."""
_BEGIN = {ConsumeFrom.FIRST: "0", ConsumeFrom.LAST: "1"}


def pop_fields(
    group: str, subscription: SubscriptionData, consume_from: ConsumeFrom, *, ordered: bool
) -> dict[str, str]:
    """Return the fields that all pops of a subscription have.

    The time of birth is left to the broker: its clock may differ from that of the client.
    """
    fields = {
        "consumerGroup": group,
        "topic": subscription.topic,
        "queueId": ALL_QUEUES,
        "initMode": _BEGIN[consume_from],
        "bornTime": "0",
        "expType": subscription.expression_type,
        "exp": subscription.sub_string,
    }
    return fields | {"order": "true"} if ordered else fields


def with_numbers(
    fields: dict[str, str], count: int, invisible_ms: int, poll_ms: int, attempt_id: str | None
) -> dict[str, str]:
    """Return the fields of one pop."""
    made = fields | {"maxMsgNums": str(count), "invisibleTime": str(invisible_ms), "pollTime": str(poll_ms)}
    if attempt_id is not None:
        made["attemptId"] = attempt_id
    return made


@dataclass(frozen=True, slots=True)
class WireGroup:
    """A group and its namespace ("" for none)."""

    group: str
    namespace: str

    def ack_fields(self, message: PoppedMessage) -> dict[str, str]:
        """Return the fields of ACK_MESSAGE."""
        receipt, names = message.receipt, self._names(message)
        return {
            "consumerGroup": names[0],
            "topic": topic_of(receipt.flag, *names),
            "queueId": str(receipt.queue_id),
            "extraInfo": receipt.text(),
            "offset": str(receipt.offset),
        }

    def change_fields(self, message: PoppedMessage, invisible_ms: int) -> dict[str, str]:
        """Return the fields of CHANGE_MESSAGE_INVISIBLETIME."""
        return self.ack_fields(message) | {"invisibleTime": str(invisible_ms)}

    def batch_bodies(self, messages: Iterable[PoppedMessage]) -> Iterator[tuple[bytes, list[PoppedMessage]]]:
        """Yield bodies of BATCH_ACK_MESSAGE for messages of one broker, each with its messages.

        An empty body stands for a message that no batch can name.
        """
        pops: dict[tuple[str, Receipt], list[PoppedMessage]] = {}
        for message in messages:
            receipt = message.receipt
            if not 0 <= receipt.offset - receipt.start_offset < BITS_MAX:
                yield b"", [message]
                continue
            key = message.topic, receipt._replace(offset=receipt.start_offset)
            pops.setdefault(key, []).append(message)
        acks: list[bytes] = []
        acked: list[PoppedMessage] = []
        size = 0
        for (_, receipt), found in pops.items():
            ack = dump_json(self._ack(receipt, found))
            if acks and (len(acks) == BATCH_GROUPS_MAX or size + len(ack) > BATCH_BYTES_MAX):
                yield _batch(acks, acked), acked
                acks, acked, size = [], [], 0
            acks.append(ack)
            acked += found
            size += len(ack)
        if acks:
            yield _batch(acks, acked), acked

    def _ack(self, pop: Receipt, messages: Sequence[PoppedMessage]) -> dict[str, object]:
        bits = 0
        for message in messages:
            bits |= 1 << message.receipt.offset - pop.start_offset
        group, topic = self._names(messages[0])
        return {
            "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
            "c": group,
            "it": pop.invisible_ms,
            "pt": pop.pop_time_ms,
            "q": pop.queue_id,
            "r": pop.flag,
            "rq": pop.revive_queue,
            "so": pop.start_offset,
            "t": topic,
        }

    def _names(self, message: PoppedMessage) -> tuple[str, str]:
        return with_namespace(self.namespace, self.group), with_namespace(self.namespace, message.topic)


def _batch(acks: Sequence[bytes], messages: Sequence[PoppedMessage]) -> bytes:
    return b'{"acks":[%b],"brokerName":%b}' % (b",".join(acks), dump_json(messages[0].receipt.broker_name))
