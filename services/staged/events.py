"""Events and effects of staged writes (`commits`)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ringmq.remoting.staged_writes import CommitRequest, StagedChunk
from ringmq.services.staged.commit_records import CommitRecord, DoneRecord, Piece


class CommitRequested(Struct, frozen=True):
    """Event: a client asks for a commit. `token` names the recipient of its `Answer`. `wall_ms` is the wall clock, in
    which the log has times, at `at_ms` of the clock of `step`."""

    token: Any
    request: CommitRequest
    at_ms: int
    wall_ms: int


class Inspected(Struct, frozen=True):
    """Event: the chunks that `Inspect` named are valid, or the first of them, if the time was over."""

    pieces: tuple[Piece, ...]


class Unsound(Struct, frozen=True):
    """Event: a chunk is invalid, so nothing of the request is committed."""

    code: int
    remark: str


class Stored(Struct, frozen=True):
    """Event: the appended record is in the log. `number` is its queue offset."""

    what: Effect
    number: int
    commit_log_offset: int
    commit_log_end: int


class NotStored(Struct, frozen=True):
    """Event: write has refused the record, and nothing of it is in the log. `final`: write would refuse it again."""

    what: Effect
    code: int
    remark: str
    final: bool = False


class Tick(Struct, frozen=True):
    """Event: time has passed."""


Event = CommitRequested | Inspected | Unsound | Stored | NotStored | Tick


class Inspect(Struct, frozen=True):
    """Effect: check that these staged chunks exist and match the request."""

    request: CommitRequest
    chunks: tuple[StagedChunk, ...]


class AppendCommit(Struct, frozen=True):
    """Effect: append the decision."""

    record: CommitRecord


class Publish(Struct, frozen=True):
    """Effect: append a piece to its topic, marked as `chunk` of commit `number`, without its first `skip` messages."""

    number: int
    chunk: int
    piece: Piece
    skip: int = 0


class AppendDone(Struct, frozen=True):
    """Effect: append the record that a commit is complete."""

    record: DoneRecord


class Answer(Struct, frozen=True):
    """Effect: the answer to a `CommitRequested`."""

    token: Any
    code: int
    remark: str


class Log(Struct, frozen=True):
    """Effect: write a log line."""

    text: str


Effect = Inspect | AppendCommit | Publish | AppendDone | Answer | Log
