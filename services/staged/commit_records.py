"""The bodies of the messages in `COMMITS_TOPIC`: a decision, or the note that all of it is published.

A commit's number is the queue offset of its message. The format is JSON, so that an operator can read the topic in the
store's files.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from ringmq.remoting import json_body
from ringmq.remoting.json_text import dump_json

CHUNK_BITS = 16
"""Bits of a mark for the chunk. `CHUNKS_MAX` needs fewer."""
PIECE_BYTES_MAX = 192
"""Bytes of a record for each piece: its numbers (19, 5, 10 and 10 digits) and a topic of 127 bytes of its own."""
HEAD_BYTES_MAX = 1024
"""Bytes of a record's head: names of fields, batch id, and a query id of 128 characters of six bytes each in JSON."""


class Piece(NamedTuple):
    """One valid staged chunk: the offset of its record, the target of its messages, and their number."""

    commit_log_offset: int
    topic: str
    queue_id: int
    messages: int


class CommitRecord(Struct, frozen=True):
    """A decision: these pieces of this micro-batch become messages, in this order."""

    query_id: str
    batch_id: int
    pieces: tuple[Piece, ...]

    def encode(self) -> bytes:
        """The message's body."""
        topics = list(dict.fromkeys(piece.topic for piece in self.pieces))
        numbers = {topic: number for number, topic in enumerate(topics)}
        value = {
            "kind": "commit",
            "queryId": self.query_id,
            "batchId": self.batch_id,
            "topics": topics,
            "chunks": [
                [piece.commit_log_offset, numbers[piece.topic], piece.queue_id, piece.messages] for piece in self.pieces
            ],
        }
        return dump_json(value)


class DoneRecord(Struct, frozen=True):
    """Every piece of commit `number` is published, except `lost` ones that never can be."""

    number: int
    lost: int = 0

    def encode(self) -> bytes:
        """The message's body."""
        return json_body.write_body({"kind": "done", "commit": self.number, "lost": self.lost})


def pieces_max(record_bytes: int) -> int:
    """The number of pieces that fit into a record of that size in any case."""
    return max(0, record_bytes - HEAD_BYTES_MAX) // PIECE_BYTES_MAX


def decode_record(body: bytes) -> CommitRecord | DoneRecord:
    """Read a message of the topic. Raises BadBody."""
    value = json_body.read_object(body, "commit record")
    kind = json_body.text(value, "kind")
    if kind == "done":
        return DoneRecord(json_body.integer(value, "commit", -1), json_body.integer(value, "lost", 0))
    if kind != "commit":
        raise json_body.bad_body(f"commit record: kind {kind[:32]!r} is not known", "kind")
    names = [str(topic) for topic in json_body.items(value, "topics")]
    try:
        pieces = tuple(
            Piece(_natural(offset), names[topic], _natural(queue), _natural(messages))
            for offset, topic, queue, messages in json_body.items(value, "chunks")
        )
    except (TypeError, ValueError, IndexError) as error:
        raise json_body.bad_body(f"commit record: chunks: {error}", "chunks") from error
    return CommitRecord(json_body.text(value, "queryId"), json_body.integer(value, "batchId"), pieces)


def _natural(value: object) -> int:
    if type(value) is int and 0 <= value < 1 << 63:
        return value
    number = json_body.as_integer(value, "chunks")
    if number < 0:
        raise ValueError(f"chunks has {number}, a negative number")
    return number


def mark_of(number: int, chunk: int) -> int:
    """The mark of the published records of a piece. It is never 0, the mark of ordinary messages."""
    return (number + 1) << CHUNK_BITS | chunk


def piece_of_mark(mark: int) -> tuple[int, int]:
    """(number of the commit, chunk) of a mark."""
    return (mark >> CHUNK_BITS) - 1, mark & (1 << CHUNK_BITS) - 1
