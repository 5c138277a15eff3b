"""A queue of records behind a scripted broker, which gives them as a test says."""

from dataclasses import replace

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt, encode_message
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey, QueueSpan, Slice
from tests.client.scripted_broker import pull_answer

TOPIC, BROKER = "Scripted", "broker-a"


class ScriptedLog:
    """Queues 0..n of `TOPIC`; `first` is the first offset that is still there, `cap` the most messages per pull."""

    def __init__(self, count: int, *, queues: int = 1, cap: int = 32, first: int = 0) -> None:
        self.count, self.cap, self.first, self.queues = count, cap, first, queues
        self.message = MessageExt(
            TOPIC,
            b"",
            {"KEYS": "k", "TAGS": "t"},
            born_host=("127.0.0.1", 1),
            store_host=("127.0.0.1", 2),
            born_timestamp_ms=1_000,
            store_timestamp_ms=2_000,
        )

    def record(self, queue_id: int, offset: int) -> bytes:
        """One stored record."""
        body = f"{queue_id}/{offset}".encode() + b"." * (offset % 50)
        return encode_message(
            replace(
                self.message,
                body=body,
                queue_id=queue_id,
                queue_offset=offset,
                commit_log_offset=200 * (self.queues * offset + queue_id),
                store_timestamp_ms=2_000 + offset,
            )
        )

    def pull(self, request: RemotingCommand) -> bytes:
        """The answer of a broker in its right mind."""
        assert request.code == RequestCode.PULL_MESSAGE
        offset, wanted = int(request.ext_fields["queueOffset"]), int(request.ext_fields["maxMsgNums"])
        queue_id = int(request.ext_fields["queueId"])
        bounds = (self.first, self.count)
        if offset < self.first:
            return pull_answer(request, 21, self.first, remark="OFFSET_TOO_SMALL", bounds=bounds)
        if offset > self.count:
            return pull_answer(request, 21, self.count, remark="OFFSET_OVERFLOW_BADLY", bounds=bounds)
        if offset == self.count:
            return pull_answer(request, 19, offset, remark="OFFSET_OVERFLOW_ONE", bounds=bounds)
        end = min(offset + min(wanted, self.cap), self.count)
        body = b"".join(self.record(queue_id, at) for at in range(offset, end))
        return pull_answer(request, 0, end, body=body, remark="FOUND", bounds=bounds)

    def slice(self, address: str, begin: int = 0, end: int | None = None) -> Slice:
        """All queues from `begin` to `end`."""
        to = self.count if end is None else end
        spans = tuple(QueueSpan(QueueKey(TOPIC, BROKER, number), begin, to) for number in range(self.queues))
        return Slice(BrokerLocation(BROKER, address), spans)
