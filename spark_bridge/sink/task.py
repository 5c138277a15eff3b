"""One task of a write: rows in, chunks out, and for a stream the notes that its commit needs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from ringmq.client import MessageQueue
from ringmq.client.connections.identity import now_ms
from ringmq.client.producer import SendResult
from ringmq.client.producing.send_request import SendRequest
from ringmq.client.producing.staged_writes import (
    BATCH_PROPERTIES,
    StagedChunk,
    StagingArea,
    find_route,
    place_of_message,
    staging_request,
)
from ringmq.native import ffi, lib
from ringmq.spark_bridge.sink.chunk_builder import Chunk, ChunkBuilder
from ringmq.spark_bridge.sink.chunk_sender import ChunkSender
from ringmq.spark_bridge.sink.delayed_rows import split_delayed
from ringmq.spark_bridge.sink.plan import WritePlan
from ringmq.spark_bridge.sink.row_targets import TopicQueues


@dataclass(frozen=True, slots=True)
class Attempt:
    """The identity of rows: one attempt at one partition of one micro-batch."""

    query_id: str
    batch_id: int
    partition: int
    attempt: int


@dataclass(slots=True)
class Written:
    """The result of a task. `chunks` are in the order of its rows, empty unless they are staged."""

    rows: int = 0
    chunks: list[StagedChunk] = field(default_factory=list)


def write_directly(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send rows straight to their topics. All are stored when this returns, some when it raises."""
    written = Written()

    def on_stored(rows: int, result: SendResult) -> None:
        written.rows += rows

    options = plan.options
    with ChunkSender(options.bootstrap, options.producer_group, options.send_timeout_ms, on_stored) as sender:
        builder = _builder(plan)
        for batch in batches:
            at_once, delayed = split_delayed(batch)
            for chunk in builder.add(at_once):
                sender.send(chunk.rows, _batch_request(chunk))
            for request in delayed(options.topic):
                sender.send(1, request)
        for chunk in builder.rest():
            sender.send(chunk.rows, _batch_request(chunk))
    return written


def stage(plan: WritePlan, area: StagingArea, of: Attempt, batches: Iterator[pa.RecordBatch]) -> Written:
    """Stage rows at `place`; nothing of them is visible until the commit of the micro-batch names them."""
    written = Written()

    def on_stored(note: tuple[int, int, int, int], result: SendResult) -> None:
        sequence, rows, body_bytes, crc = note
        at = place_of_message(result.offset_message_ids[0])
        written.chunks.append(StagedChunk(of.partition, of.attempt, sequence, at, body_bytes, crc))
        written.rows += rows

    options = plan.options
    with ChunkSender(options.bootstrap, options.producer_group, options.send_timeout_ms, on_stored) as sender:
        for sequence, chunk in enumerate(_chunks(_builder(plan), batches)):
            crc = int(lib.rmq_crc32(ffi.from_buffer(chunk.body), len(chunk.body)))
            said = StagedChunk(of.partition, of.attempt, sequence, 0, len(chunk.body), crc)
            properties = said.properties(of.query_id, of.batch_id, chunk.queue.topic, chunk.queue.queue_id)
            request = staging_request(area, of.partition + sequence, chunk.body, properties, now_ms())
            sender.send((sequence, chunk.rows, len(chunk.body), crc), request)
    return written


def _builder(plan: WritePlan) -> ChunkBuilder:
    queues = TopicQueues(partial(find_route, plan.options.bootstrap), plan.broker)
    return ChunkBuilder(plan.options.topic, queues, plan.chunk_bytes, plan.element_bytes_max)


def _chunks(builder: ChunkBuilder, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
    for batch in batches:
        yield from builder.add(batch)
    yield from builder.rest()


def _batch_request(chunk: Chunk) -> SendRequest:
    queue: MessageQueue = chunk.queue
    return SendRequest(queue.topic, chunk.body, BATCH_PROPERTIES, 0, 0, now_ms(), (), is_batch=True, queue=queue)
