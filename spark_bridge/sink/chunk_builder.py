"""Rows into chunks: one batch body per target, sent when it is full."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ringmq.client import MessageQueue
from ringmq.spark_bridge.sink.row_encoder import EncodableRows, RowEncoder
from ringmq.spark_bridge.sink.row_targets import ANY_QUEUE, Target, TopicQueues, rows_by_target, spread

OPEN_CHUNKS_MAX = 32
"""The most targets that a task fills at a time. One more target makes the fullest chunk leave early."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The body of a batch send, ready, and its queue."""

    queue: MessageQueue
    body: memoryview
    rows: int


@dataclass(slots=True)
class _OpenChunk:
    buffer: bytearray
    used: int = 0
    rows: int = 0


class ChunkBuilder:
    """Fills chunks of up to `chunk_bytes`. A larger row gets a chunk of its own, up to `element_bytes_max`."""

    def __init__(self, topic: str | None, queues: TopicQueues, chunk_bytes: int, element_bytes_max: int) -> None:
        self._topic = topic
        self._queues = queues
        self._chunk_bytes = min(chunk_bytes, element_bytes_max)
        self._element_bytes_max = element_bytes_max
        self._encoder = RowEncoder()
        self._open: dict[Target, _OpenChunk] = {}
        self._number = int.from_bytes(os.urandom(2), "big")  # keeps tasks from marching in step

    def add(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        """Add the batch's rows and yield the full chunks. Raises RowError and RouteError."""
        rows = EncodableRows(batch, self._element_bytes_max)
        self._encoder.start_batch()
        for target, index in rows_by_target(batch, self._topic, self._queues):
            yield from self._fill(target, rows, index)

    def rest(self) -> Iterator[Chunk]:
        """Yield the unfinished chunks after the last row."""
        for target in list(self._open):
            yield from self._close(target)

    def _fill(self, target: Target, rows: EncodableRows, index: NDArray[np.int32]) -> Iterator[Chunk]:
        size = self._chunk_bytes
        while len(index):
            if target not in self._open:
                if len(self._open) >= OPEN_CHUNKS_MAX:
                    yield from self._close(max(self._open, key=lambda other: self._open[other].used))
                self._open[target] = _OpenChunk(bytearray(size))
            chunk = self._open[target]
            done = self._encoder.encode(rows, index, chunk.buffer, chunk.used)
            chunk.used = done.bytes_used
            chunk.rows += done.rows
            index = np.ascontiguousarray(index[done.rows :])
            size = max(self._chunk_bytes, done.room_needed)
            if len(index):
                yield from self._close(target)

    def _close(self, target: Target) -> Iterator[Chunk]:
        chunk = self._open.pop(target)
        if not chunk.rows:
            return
        queues = self._queues.of(target.topic)
        if target.queue == ANY_QUEUE:
            queue = spread(queues, self._number)
            self._number += 1
        else:
            queue = queues[target.queue]
        yield Chunk(queue, memoryview(chunk.buffer)[: chunk.used], chunk.rows)
