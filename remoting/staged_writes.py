"""Staged writes: rows in a hidden topic that one request publishes together (docs/staged-writes.md).

This module holds the parts that client and broker share: names of topics and properties, limits, and the bodies of
`STAGED_WRITES`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.names import COMMITS_TOPIC, STAGED_TOPIC

__all__ = ["COMMITS_TOPIC", "STAGED_TOPIC", "CommitRequest", "StagedChunk"]

# In STAGED_TOPIC each message is a chunk: its body is that of a batch send (request 320), its properties say for whom.
# COMMITS_TOPIC holds what was decided and what of it is published; the broker alone writes it.

QUERY: Final = "RINGMQ_QUERY"
BATCH: Final = "RINGMQ_BATCH"
PARTITION: Final = "RINGMQ_PARTITION"
ATTEMPT: Final = "RINGMQ_ATTEMPT"
SEQUENCE: Final = "RINGMQ_SEQUENCE"
TARGET_TOPIC: Final = "RINGMQ_TOPIC"
TARGET_QUEUE: Final = "RINGMQ_QUEUE"

OPERATION: Final = "operation"
DESCRIBE: Final = "describe"
COMMIT: Final = "commit"

QUERY_ID_CHARS_MAX: Final = 128
CHUNKS_MAX: Final = 16_384
COMMIT_BODY_BYTES_MAX: Final = 2 << 20
COMMIT_STRINGS_MAX: Final = 40_000
"""Limit of strings and escapes in a commit's body. A partition has three. The JSON parser needs up to 0.2 us for each.
"""
COMMIT_TOLERANT_BYTES_MAX: Final = 65_536
"""Limit of a commit's body that is no standard JSON, such as one with a lone surrogate. No known writer sends one."""
COMMIT_VALUE_BYTES_MAX: Final = 64
"""Limit of the mean size of a value in a commit's body, beside the query id. A long number takes 0.1 ms."""
_QUERY_ID_BYTES_MAX: Final = 4096
CHUNKS_A_STEP: Final = 512
"""Chunks that one step of the decoder reads, in some 0.5 ms."""
CHUNK_BYTES: Final = 1 << 20
"""The recommended size limit of a chunk, so that a few chunks fit into the broker's window."""


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """One staged message as its sender knows it: its writer, its stored position, its content."""

    partition: int
    attempt: int
    sequence: int
    commit_log_offset: int
    body_bytes: int
    body_crc: int

    def properties(self, query_id: str, batch_id: int, topic: str, queue_id: int) -> dict[str, str]:
        """Return the properties of the staged message."""
        return {
            QUERY: query_id,
            BATCH: str(batch_id),
            PARTITION: str(self.partition),
            ATTEMPT: str(self.attempt),
            SEQUENCE: str(self.sequence),
            TARGET_TOPIC: topic,
            TARGET_QUEUE: str(queue_id),
        }


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """All chunks of one micro-batch: per partition those of the successful attempt, in the order of their rows."""

    query_id: str
    batch_id: int
    chunks: tuple[StagedChunk, ...]

    def encode(self) -> bytes:
        """Return the request's body."""
        partitions: dict[tuple[int, int], list[list[int]]] = {}
        for chunk in self.chunks:
            entries = partitions.setdefault((chunk.partition, chunk.attempt), [])
            entries.append([chunk.commit_log_offset, chunk.body_bytes, chunk.body_crc])
        value = {
            "queryId": self.query_id,
            "batchId": self.batch_id,
            "partitions": [
                {"partition": partition, "attempt": attempt, "chunks": entries}
                for (partition, attempt), entries in partitions.items()
            ],
        }
        return json_body.write_body(value)

    @classmethod
    def decode(cls, body: bytes, chunks_max: int = CHUNKS_MAX) -> CommitRequest:
        """Read a request's body of up to `chunks_max` chunks. Raises RequestError naming field and limit."""
        steps = cls.decode_steps(body, chunks_max)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            request: CommitRequest = end.value
            return request

    @classmethod
    def decode_steps(cls, body: bytes, chunks_max: int = CHUNKS_MAX) -> Generator[None, None, CommitRequest]:
        """`decode` in steps, for a loop with other work. The first one parses the JSON, in at most some 10 ms."""
        check_commit_size(body)
        if (strings := body.count(b'"') // 2 + body.count(b"\\")) > COMMIT_STRINGS_MAX:
            raise _over("body", f"{strings} strings and escapes", COMMIT_STRINGS_MAX)
        values = body.count(b",") + body.count(b"{")
        if len(body) > _QUERY_ID_BYTES_MAX + values * COMMIT_VALUE_BYTES_MAX:
            raise _over("body", f"{len(body)} bytes for {values} values: bytes of a value", COMMIT_VALUE_BYTES_MAX)
        value = json_body.read_request(
            body, "commit of staged writes", COMMIT_BODY_BYTES_MAX, COMMIT_TOLERANT_BYTES_MAX
        )
        query_id = json_body.text(value, "queryId")
        if not 0 < len(query_id) <= QUERY_ID_CHARS_MAX:
            raise _over("queryId", f"{len(query_id)} characters, at least 1,", QUERY_ID_CHARS_MAX)
        batch_id = _natural(value, "batchId")
        yield
        chunks: list[StagedChunk] = []
        for number, chunk in enumerate(_partitions(value), 1):
            if chunk is not None:
                chunks.append(chunk)
            if len(chunks) > chunks_max:
                raise _over("chunks", "more chunks than one commit may have", chunks_max)
            if number % CHUNKS_A_STEP == 0:
                yield
        return cls(query_id, batch_id, tuple(chunks))


def check_commit_size(body: bytes) -> None:
    """Raise RequestError if a commit's body has too many bytes."""
    if len(body) > COMMIT_BODY_BYTES_MAX:
        raise _over("body", f"{len(body)} bytes", COMMIT_BODY_BYTES_MAX)


def _partitions(value: dict[str, Any]) -> Iterator[StagedChunk | None]:
    """Yield None for each partition, and its chunks behind it."""
    partitions: set[int] = set()
    for entry in json_body.objects(value, "partitions"):
        partition, attempt = _natural(entry, "partition"), _natural(entry, "attempt")
        if partition in partitions:
            raise _bad("partition", f"partition {partition} occurs twice: one attempt of each may be committed")
        partitions.add(partition)
        yield None
        found = entry.get("chunks")
        if not isinstance(found, list):
            raise _bad("chunks", f"chunks of partition {partition} are no list")
        for sequence, numbers in enumerate(found):
            yield _chunk(partition, attempt, sequence, numbers)


def _chunk(partition: int, attempt: int, sequence: int, numbers: object) -> StagedChunk:
    if not isinstance(numbers, list) or len(numbers) != 3:
        raise _bad("chunks", f"chunk {sequence} of partition {partition} is not [commitLogOffset, bodyBytes, bodyCrc]")
    offset, size, crc = (
        number if type(number) is int and 0 <= number < 1 << 63 else json_body.as_integer(number, "chunks")
        for number in numbers
    )
    if offset < 0 or size <= 0 or crc < 0:
        raise _bad("chunks", f"chunk {sequence} of partition {partition} holds a negative number or no bytes")
    return StagedChunk(partition, attempt, sequence, offset, size, crc)


def _natural(value: dict[str, Any], field: str) -> int:
    if field not in value:
        raise _bad(field, f"{field} is missing")
    number = json_body.integer(value, field)
    if number < 0:
        raise _bad(field, f"{field} = {number} is negative")
    return number


def _bad(field: str, message: str) -> RequestError:
    return RequestError(f"commit of staged writes: {message}", field=field, code=ResponseCode.INVALID_PARAMETER)


def _over(field: str, found: str, limit: int) -> RequestError:
    message = f"commit of staged writes: {field}: {found}, the limit is {limit}"
    return RequestError(message, field=field, code=ResponseCode.INVALID_PARAMETER, limit=limit)
