"""Events and effects of staged writes (`commits`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringmq.remoting.staged_writes import CommitRequest, StagedChunk
from ringmq.services.staged.commit_records import CommitRecord, DoneRecord, Piece


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """Event: a client asks for a commit. `token` names the recipient of its `Answer`. `wall_ms` is the wall clock, in
    which the log has times, at `at_ms` of the clock of `step`."""

    token: Any
    request: CommitRequest
    at_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Inspected:
    """Event: the chunks that `Inspect` named are valid, or the first of them, if the time was over."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Unsound:
    """Event: a chunk is invalid, so nothing of the request is committed."""

    code: int
    remark: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Event: the appended record is in the log. `number` is its queue offset."""

    what: Effect
    number: int
    commit_log_offset: int
    commit_log_end: int


@dataclass(frozen=True, slots=True)
class NotStored:
    """Event: write has refused the record, and nothing of it is in the log. `final`: write would refuse it again."""

    what: Effect
    code: int
    remark: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


Event = CommitRequested | Inspected | Unsound | Stored | NotStored | Tick


@dataclass(frozen=True, slots=True)
class Inspect:
    """Effect: check that these staged chunks exist and match the request."""

    request: CommitRequest
    chunks: tuple[StagedChunk, ...]


@dataclass(frozen=True, slots=True)
class AppendCommit:
    """Effect: append the decision."""

    record: CommitRecord


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: append a piece to its topic, marked as `chunk` of commit `number`, without its first `skip` messages."""

    number: int
    chunk: int
    piece: Piece
    skip: int = 0


@dataclass(frozen=True, slots=True)
class AppendDone:
    """Effect: append the record that a commit is complete."""

    record: DoneRecord


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: the answer to a `CommitRequested`."""

    token: Any
    code: int
    remark: str


@dataclass(frozen=True, slots=True)
class Log:
    """Effect: write a log line."""

    text: str


Effect = Inspect | AppendCommit | Publish | AppendDone | Answer | Log
