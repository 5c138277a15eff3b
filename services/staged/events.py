"""What happens to staged writes, and what is to be done about them: events and effects of `staged_commits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringmq.remoting.staged_writes import CommitRequest, StagedChunk
from ringmq.services.staged.commit_records import CommitRecord, DoneRecord, Piece


@dataclass(frozen=True, slots=True)
class Asked:
    """Event: a commit was asked for. `token` is whatever `Answer` is to be sent to."""

    token: Any
    request: CommitRequest
    at_ms: int


@dataclass(frozen=True, slots=True)
class Inspected:
    """Event: the chunks that `Inspect` named are sound."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Unsound:
    """Event: one of them is not, so nothing of the request is committed."""

    code: int
    remark: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Event: what was to be appended is in the log. `number` is its queue offset."""

    what: Effect
    number: int
    commit_log_offset: int
    commit_log_end: int


@dataclass(frozen=True, slots=True)
class NotStored:
    """Event: write refused it, nothing of it is in the log. `final`: it will refuse it again."""

    what: Effect
    code: int
    remark: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


Event = Asked | Inspected | Unsound | Stored | NotStored | Tick


@dataclass(frozen=True, slots=True)
class Inspect:
    """Effect: look whether these staged chunks are there and are what they should be."""

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
    """Effect: append that a commit is complete."""

    record: DoneRecord


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: the answer to an `Asked`."""

    token: Any
    code: int
    remark: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Effect: a line for the operator."""

    text: str


Effect = Inspect | AppendCommit | Publish | AppendDone | Answer | Tell
