"""A writer of staged chunks for tests, and a reader of what became of them."""

import time
import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType

from ringmq.client.blocking import Producer
from ringmq.client.producing.send_request import BodyRules, prepare_batch
from ringmq.client.producing.staged_writes import (
    CommitRequest,
    StagedChunk,
    StagingArea,
    commit_staged,
    describe_staging,
    place_of_message,
    staging_request,
)
from ringmq.client.retry import RetryPolicy
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.message import Message, MessageExt, decode_messages
from tests.raw_client import RawClient

TOPIC_FIELDS = {
    "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
}  # fmt: skip


def make_topic(address: str, topic: str, queues: int = 2) -> None:
    """Create a topic as an operator does."""
    fields = {"topic": topic, "readQueueNums": queues, "writeQueueNums": queues, **TOPIC_FIELDS}
    with RawClient(address) as client:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0


def batch_body(rows: Sequence[bytes], pairs: Mapping[str, str] | None = None) -> bytes:
    """The body of a batch send of these rows."""
    messages = [Message("any", row, dict(pairs or {"KEYS": "k"})) for row in rows]
    return bytes(prepare_batch(messages, lambda _: "0" * 32, 0, BodyRules(compression=None)).body)


class Stager:
    """Stages chunks at a running broker and commits them. `close` it."""

    def __init__(self, broker: RunningBroker, timeout_ms: int = 20_000) -> None:
        self.namesrv = broker.namesrv
        area = describe_staging(broker.address)
        assert area is not None
        self.area: StagingArea = area
        self._producer = Producer(broker.namesrv, "stager", retry=RetryPolicy(attempts=16, budget_ms=timeout_ms))
        self._timeout_ms = timeout_ms
        self._producer.start()

    def __enter__(self) -> "Stager":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close()

    def stage(
        self, query: str, batch: int, chunks: Sequence[tuple[str, int, Sequence[bytes]]], partition: int = 0,
        attempt: int = 0,
    ) -> tuple[StagedChunk, ...]:  # fmt: skip
        """Stage (topic, queue, rows) as one attempt's chunks."""
        staged = []
        for sequence, (topic, queue, rows) in enumerate(chunks):
            body = batch_body(rows)
            said = StagedChunk(partition, attempt, sequence, 0, len(body), zlib.crc32(body) & 0x7FFFFFFF)
            properties = said.properties(query, batch, topic, queue)
            request = staging_request(self.area, sequence, body, properties, time.time_ns() // 1_000_000)
            result = self._producer.begin_request(request).result()
            at = place_of_message(result.offset_message_ids[0])
            staged.append(StagedChunk(partition, attempt, sequence, at, len(body), said.body_crc))
        return tuple(staged)

    def commit(self, query: str, batch: int, chunks: tuple[StagedChunk, ...]) -> None:
        """Commit; RingmqError when it is refused or does not come to an end."""
        commit_staged(self.namesrv, self.area.broker_name, CommitRequest(query, batch, chunks), self._timeout_ms)


def messages_of(address: str, topic: str, queues: int = 2) -> list[MessageExt]:
    """Every readable message of a topic, queue by queue."""
    found: list[MessageExt] = []
    with RawClient(address) as client:
        for queue in range(queues):
            offset = 0
            while (answer := client.pull(topic, queue, offset)).code == 0:
                messages = decode_messages(answer.body)
                offset += len(messages)
                found += messages
    return found


def bodies_of(address: str, topic: str, queues: int = 2) -> list[bytes]:
    """Their bodies."""
    return [bytes(message.body) for message in messages_of(address, topic, queues)]
