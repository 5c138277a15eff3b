"""Transactions of raw clients, and what the broker has stored of them."""

import time

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt, decode_messages
from tests.conformance.wire import send_fields, shortened
from tests.raw_client import SEND_V2, RawClient
from tests.staging import messages_of

HALF, OP, EXPIRED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK = 8, 12


class Transaction:
    """A half message and the ends of its transaction."""

    def __init__(self, client: RawClient, body: bytes, topic: str = "T", age_ms: int = 0, **pairs: str) -> None:
        fields = send_fields(topic, 0, {"TRAN_MSG": "true", "PGROUP": "P", **pairs})
        now_ms = time.time_ns() // 1_000_000
        sent = client.ask(SEND_V2, shortened({**fields, "bornTimestamp": now_ms - age_ms}), body)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        self._take(sent)

    @classmethod
    def of(cls, sent: RemotingCommand) -> "Transaction":
        """That of a half with this answer."""
        made = cls.__new__(cls)
        made._take(sent)
        return made

    def _take(self, sent: RemotingCommand) -> None:
        self.key = sent.ext_fields["msgId"]
        self.offset, self.position = int(sent.ext_fields["queueOffset"]), int(self.key[16:], 16)

    def fields(self, decision: int, **more: object) -> dict[str, object]:
        return {
            "producerGroup": "P", "tranStateTableOffset": self.offset, "commitLogOffset": self.position,
            "commitOrRollback": decision, "msgId": self.key, **more,
        }  # fmt: skip

    def end(self, client: RawClient, decision: int, **more: object) -> RemotingCommand:
        return client.ask(37, self.fields(decision, **more))


def bodies(broker: RunningBroker, topic: str = "T") -> list[bytes]:
    return sorted(message.body for message in messages_of(broker.address, topic, 1))


def queue_of(broker: RunningBroker, topic: str) -> list[MessageExt]:
    found: list[MessageExt] = []
    with RawClient(broker.address) as client:
        while (answer := client.pull(topic, offset=len(found))).code == ResponseCode.SUCCESS:
            found += decode_messages(answer.body)
    return found


def listed(broker: RunningBroker) -> list[int]:
    pieces = b"".join(message.body for message in queue_of(broker, OP)).split(b",")
    return sorted(int(piece) for piece in pieces if piece)
