"""The rule of `STAGED_WRITES` by which staged writes become messages, without IO.

Every micro-batch (query id, batch id) is decided once. The first commit in the order of the log wins. A later commit of
the same or an older batch adds nothing, and its answer says so. A commit without chunks of an unknown query decides
nothing. A decision is a record in the log. Its consequences (pieces published, a done record) are repeated after any
crash until they are complete. `step(event, now) -> effects`; `writes` performs the effects.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from typing import Any

from msgspec import Struct, field, structs

from ringmq.remoting.codes import ResponseCode
from ringmq.services.staged.commit_records import CommitRecord, DoneRecord, Piece, piece_of_mark
from ringmq.services.staged.events import (
    Answer,
    AppendCommit,
    AppendDone,
    CommitRequested,
    Effect,
    Event,
    Inspect,
    Inspected,
    Log,
    NotStored,
    Publish,
    Stored,
    Unsound,
)

IN_FLIGHT_MAX = 4
"""Pieces of all commits that write has at a time."""
INSPECTED_AT_ONCE = 32
"""Chunks of one `Inspect`. Its answer may be about the first ones alone."""
ASKED_MAX = 16
"""Requests that may wait for one commit."""
OPEN_MAX = 16
"""Open commits. While there are as many, no further one is decided."""
ANSWER_WITHIN_MS = 20_000
RETRY_MS = 500
UNDER_WAY = "the commit is still under way"
BEFORE = "the batch was committed before"
QUERIES_MAX = 10_000
"""Queries whose last batch is remembered. A new one then takes the place of the query whose last commit is the oldest.
"""
REMEMBERED_HOURS = 72
"""Time after its last commit for which no other query takes a query's place. A forgotten writer that repeats its last
batch publishes it twice."""
SKIPPED_MAX = 100
SKIPPED_MS = 100
"""A query's next batch may skip SKIPPED_MAX numbers, and one more for each SKIPPED_MS since its last commit.

A writer skips batches that it has not committed here: without rows, delivered at least once, committed at another
broker, or decided in a part of the log that is cut off. They take their time. A batch far ahead of the writer would
make the broker answer the writer's own commits as older ones, without their rows.
"""
HOUR_MS = 3_600_000


class _Candidate(Struct):
    """The request that is next to be decided."""

    asked: CommitRequested
    pieces: list[Piece] = field(default_factory=list)


class _Commit(Struct):
    """A decision whose done record is not in the log yet."""

    number: int
    record: CommitRecord
    commit_log_offset: int
    commit_log_end: int
    """End of its records that are known to be stored."""
    wall_ms: int
    """Wall clock at the decision."""
    missing: deque[int]
    found: dict[int, int] = field(default_factory=dict)
    """Chunk -> number of its messages that recovery has found in the log."""
    in_flight: set[int] = field(default_factory=set)
    asked: list[CommitRequested] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    not_before_ms: int = 0
    done_asked: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.record.query_id, self.record.batch_id


class LastBatch(Struct, frozen=True):
    """The last batch of a query."""

    batch_id: int
    commit_log_end: int
    """End of the last record that was stored for it."""
    lost: int
    """Number of its chunks that never can be published."""
    wall_ms: int
    """Wall clock at its decision. 0 if a file of an older version has not named it."""

    def next_batch_max(self, wall_ms: int) -> int:
        """The highest id that the query's next batch may have."""
        return self.batch_id + 1 + SKIPPED_MAX + max(0, wall_ms - self.wall_ms) // SKIPPED_MS


class StagedCommits:
    """All decisions of one broker. It starts `recovering`, until `finish_recovery`. It gets a request only while it
    `takes_commits`."""

    def __init__(self) -> None:
        self.recovering = True
        self.dirty = False
        """True if the value of `snapshot` has changed."""
        self._last: OrderedDict[str, LastBatch] = OrderedDict()
        self._open: dict[int, _Commit] = {}
        self._next_number = 0
        self._commit_log_end = 0
        """End of the last record that is known to be stored."""
        self._record: tuple[int, ...] = ()
        """Commit-log offset and bytes of the last decision or done record."""
        self._candidate: _Candidate | None = None
        self._in_flight = 0
        self._effects: list[Effect] = []

    @property
    def is_idle(self) -> bool:
        """True if no commit is open and no request waits for one."""
        return not (self.recovering or self._candidate or self._open)

    @property
    def takes_commits(self) -> bool:
        """True if it can decide about a request. Requests wait until then, with their bodies undecoded."""
        return not self.recovering and self._candidate is None and len(self._open) < OPEN_MAX

    # ---- events ----

    def step(self, event: Event, now_ms: int, confirm_offset: int) -> list[Effect]:
        """The effects of `event`. `confirm_offset`: the end of the log that consumers may see."""
        match event:
            case CommitRequested():
                self._decide(event, confirm_offset)
            case Inspected(pieces):
                self._on_inspected(pieces)
            case Unsound(code, remark):
                self._refuse_candidate(code, remark)
            case Stored():
                self._on_stored(event)
            case NotStored():
                self._on_not_stored(event, now_ms)
        self._expire(now_ms)
        if not self.recovering:
            self._advance(now_ms, confirm_offset)
        effects, self._effects = self._effects, []
        return effects

    def abandon(self, remark: str) -> list[Effect]:
        """Answer all waiting requests, because the worker stops. The next start goes on at the end of the log."""
        waiting = [asked for commit in self._open.values() for asked in commit.asked]
        if self._candidate is not None:
            waiting.append(self._candidate.asked)
        for commit in self._open.values():
            commit.asked.clear()
        return [Answer(asked.token, ResponseCode.SERVICE_NOT_AVAILABLE, remark) for asked in waiting]

    def _on_inspected(self, pieces: tuple[Piece, ...]) -> None:
        candidate = self._candidate
        assert candidate is not None
        candidate.pieces += pieces
        self._inspect_or_append(candidate)

    def _inspect_or_append(self, candidate: _Candidate) -> None:
        request, seen = candidate.asked.request, len(candidate.pieces)
        rest = request.chunks[seen : seen + INSPECTED_AT_ONCE]
        if rest:
            self._effects.append(Inspect(request, rest))
        else:
            self._effects.append(
                AppendCommit(CommitRecord(request.query_id, request.batch_id, tuple(candidate.pieces)))
            )

    def _refuse_candidate(self, code: int, remark: str) -> None:
        candidate, self._candidate = self._candidate, None
        assert candidate is not None
        self._answer(candidate.asked, code, remark)

    def _on_stored(self, event: Stored) -> None:
        self._commit_log_end = max(self._commit_log_end, event.commit_log_end)
        if not isinstance(event.what, Publish):
            self._record = event.commit_log_offset, event.commit_log_end - event.commit_log_offset
        match event.what:
            case AppendCommit(record):
                assert self._candidate is not None
                where = event.commit_log_offset, event.commit_log_end
                commit = self._opened(event.number, record, *where, self._candidate.asked.wall_ms)
                commit.asked.append(_without_chunks(self._candidate.asked))
                self._candidate = None
            case Publish(number, chunk):
                commit = self._open[number]
                commit.in_flight.discard(chunk)
                commit.commit_log_end = max(commit.commit_log_end, event.commit_log_end)
                self._remember(commit)
                self._in_flight -= 1
            case AppendDone(done):
                self._next_number = max(self._next_number, event.number + 1)
                commit = self._open.pop(done.number)
                self._remember(commit, done.lost)

    def _on_not_stored(self, event: NotStored, now_ms: int) -> None:
        match event.what:
            case AppendCommit():
                self._refuse_candidate(event.code, event.remark)
            case Publish(number, chunk, piece):
                commit = self._open[number]
                commit.in_flight.discard(chunk)
                self._in_flight -= 1
                if event.final:
                    text = f"chunk {chunk} for topic {piece.topic}, queue {piece.queue_id}: {event.remark}"
                    commit.lost.append(text)
                    query, batch = commit.key
                    self._effects.append(Log(f"staged writes of query {query}, batch {batch}: not published: {text}"))
                else:
                    commit.missing.appendleft(chunk)
                    commit.not_before_ms = now_ms + RETRY_MS
            case AppendDone(done):
                self._open[done.number].done_asked = False
                self._open[done.number].not_before_ms = now_ms + RETRY_MS

    # ---- decisions ----

    def _decide(self, asked: CommitRequested, confirm_offset: int) -> None:
        assert self.takes_commits
        key = asked.request.query_id, asked.request.batch_id
        commit = next((commit for commit in self._open.values() if commit.key == key), None)
        last = self._last.get(key[0])
        if commit is not None and len(commit.asked) >= ASKED_MAX:
            self._answer(asked, ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{ASKED_MAX} requests wait for this commit")
        elif commit is not None and not commit.done_asked:
            commit.asked.append(_without_chunks(asked))
        elif commit is not None:
            self._answer_complete(asked, commit.commit_log_end, confirm_offset, BEFORE, len(commit.lost))
        elif last is not None and key[1] <= last.batch_id:
            lost = last.lost if key[1] == last.batch_id else 0
            self._answer_complete(asked, last.commit_log_end, confirm_offset, BEFORE, lost)
        elif last is None and not asked.request.chunks:
            self._answer(asked, ResponseCode.SUCCESS, "the batch has no chunks, and the query no batch before it")
        elif last is None and self._is_full(asked.wall_ms):
            told = f"{QUERIES_MAX} queries have committed within {REMEMBERED_HOURS} hours"
            self._answer(asked, ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{told}: no new query is accepted now")
        elif last is not None and key[1] > (limit := last.next_batch_max(asked.wall_ms)):
            told = f"batchId = {key[1]} is above {limit}, the limit behind the query's last batch {last.batch_id}"
            remark = f"{told}: commit batches in order, or begin a new query (in Spark: a new checkpoint)"
            self._answer(asked, ResponseCode.INVALID_PARAMETER, remark)
        else:
            self._candidate = _Candidate(asked)
            self._inspect_or_append(self._candidate)

    def _is_full(self, wall_ms: int) -> bool:
        """True if a new query would take the place of one that is in use."""
        if len(self._last) < QUERIES_MAX:
            return False
        query_id, last = next(iter(self._last.items()))
        if any(commit.record.query_id == query_id for commit in self._open.values()):
            return True
        return wall_ms - last.wall_ms < REMEMBERED_HOURS * HOUR_MS

    def _opened(
        self, number: int, record: CommitRecord, commit_log_offset: int, commit_log_end: int, wall_ms: int
    ) -> _Commit:
        missing = deque(range(len(record.pieces)))
        commit = _Commit(number, record, commit_log_offset, commit_log_end, wall_ms, missing)
        self._open[number] = commit
        self._next_number = max(self._next_number, number + 1)
        self._remember(commit)
        return commit

    def _remember(self, commit: _Commit, lost: int = 0) -> None:
        query_id, batch_id = commit.key
        last = self._last.get(query_id)
        if last is None or batch_id >= last.batch_id:
            self._last[query_id] = LastBatch(batch_id, commit.commit_log_end, lost, commit.wall_ms)
        self._last.move_to_end(query_id)
        while len(self._last) > QUERIES_MAX:
            self._last.popitem(last=False)
        self.dirty = True

    # ---- publication ----

    def _advance(self, now_ms: int, confirm_offset: int) -> None:
        for commit in list(self._open.values()):
            if now_ms < commit.not_before_ms:
                continue
            self._publish(commit)
            if not commit.missing and not commit.in_flight and not commit.done_asked:
                self._complete(commit, confirm_offset)

    def _publish(self, commit: _Commit) -> None:
        """Submit the next pieces. Each queue has only one piece in flight, so that a refused one keeps its position."""
        pieces = commit.record.pieces
        busy = {(pieces[chunk].topic, pieces[chunk].queue_id) for chunk in commit.in_flight}
        held: list[int] = []
        while commit.missing and self._in_flight < IN_FLIGHT_MAX and len(held) < IN_FLIGHT_MAX:
            chunk = commit.missing.popleft()
            target = pieces[chunk].topic, pieces[chunk].queue_id
            if target in busy:
                held.append(chunk)
                continue
            busy.add(target)
            commit.in_flight.add(chunk)
            self._in_flight += 1
            self._effects.append(Publish(commit.number, chunk, pieces[chunk], commit.found.get(chunk, 0)))
        commit.missing.extendleft(reversed(held))

    def _complete(self, commit: _Commit, confirm_offset: int) -> None:
        remark = commit.lost[0] if commit.lost else ""
        for asked in commit.asked:
            self._answer_complete(asked, commit.commit_log_end, confirm_offset, remark, len(commit.lost))
        commit.asked.clear()
        commit.done_asked = True
        self._effects.append(AppendDone(DoneRecord(commit.number, len(commit.lost))))

    # ---- answers ----

    def _answer(self, asked: CommitRequested, code: int, remark: str) -> None:
        self._effects.append(Answer(asked.token, code, remark))

    def _answer_complete(
        self, asked: CommitRequested, commit_log_end: int, confirm_offset: int, remark: str, lost: int = 0
    ) -> None:
        """Answer a complete commit. Published means readable; a slow disk, or replicas, may still have to store the
        messages."""
        if lost:
            stands = f"the commit is final, but {lost} chunks could not be published; the broker's log names them"
            self._answer(asked, ResponseCode.SYSTEM_ERROR, f"{stands}; {remark}")
        elif confirm_offset >= commit_log_end:
            self._answer(asked, ResponseCode.SUCCESS, remark)
        else:
            late = "the batch is committed, its messages wait for the disk or for replicas: ask again"
            self._answer(asked, ResponseCode.FLUSH_DISK_TIMEOUT, late)

    def _expire(self, now_ms: int) -> None:
        before_ms = now_ms - ANSWER_WITHIN_MS
        for commit in self._open.values():
            for asked in [asked for asked in commit.asked if asked.at_ms < before_ms]:
                commit.asked.remove(asked)
                self._answer(asked, ResponseCode.SYSTEM_BUSY, f"{UNDER_WAY}: ask again")

    # ---- recovery ----

    def load(self, value: dict[str, Any], log_end: int) -> int:
        """Apply a `snapshot`, except for entries behind `log_end`, which were lost. Returns the number of the first
        record to replay."""
        for entry in value.get("queries", ()):
            query_id, batch_id, commit_log_end = str(entry[0]), int(entry[1]), int(entry[2])
            if commit_log_end <= log_end:
                lost, wall_ms = map(int, [*entry[3:5], 0, 0][:2])  # older files have three fields or four
                self._last[query_id] = LastBatch(batch_id, commit_log_end, lost, wall_ms)
                self._commit_log_end = max(self._commit_log_end, commit_log_end)
        self._record = tuple(map(int, value.get("record", ())[:2]))
        return int(value.get("replayFrom", 0))

    def replay(
        self, number: int, record: CommitRecord | DoneRecord, commit_log_offset: int, commit_log_end: int, wall_ms: int
    ) -> None:
        """Apply a record of the log, stored at `wall_ms`. Records come in order."""
        self._commit_log_end = max(self._commit_log_end, commit_log_end)
        self._record = commit_log_offset, commit_log_end - commit_log_offset
        if isinstance(record, CommitRecord):
            self._opened(number, record, commit_log_offset, commit_log_end, wall_ms)
            return
        commit = self._open.pop(record.number, None)
        self._next_number = max(self._next_number, number + 1)
        if commit is not None:
            commit.commit_log_end = commit_log_end
            self._remember(commit, record.lost)

    def open_since(self) -> int | None:
        """Commit-log offset from which the log may hold pieces of open commits. None if there is none."""
        return min((commit.commit_log_offset for commit in self._open.values()), default=None)

    def saw_published(self, mark: int, messages: int, log_end: int) -> None:
        """Count `messages` more records below `log_end` with this mark: all of a piece's, or its first ones.

        A batch is one append. But after a kill of the whole broker or a power cut the log may end between two of its
        records.
        """
        number, chunk = piece_of_mark(mark)
        commit = self._open.get(number)
        if commit is None or chunk not in commit.missing:
            return
        commit.commit_log_end = log_end
        commit.found[chunk] = commit.found.get(chunk, 0) + messages
        if commit.found[chunk] >= commit.record.pieces[chunk].messages:
            commit.missing.remove(chunk)

    def finish_recovery(self) -> None:
        """End recovery: the whole log has been read."""
        self.recovering = False

    def snapshot(self) -> tuple[dict[str, Any], int]:
        """(the table for a file, end of the log that must be on disk before the file is written)."""
        queries = [
            [query_id, last.batch_id, last.commit_log_end, last.lost, last.wall_ms]
            for query_id, last in self._last.items()
        ]
        self.dirty = False
        replay_from = min(self._open, default=self._next_number)
        value: dict[str, Any] = {"version": 1, "replayFrom": replay_from, "queries": queries}
        if self._record:
            value["record"] = list(self._record)
        return value, self._commit_log_end


def _without_chunks(asked: CommitRequested) -> CommitRequested:
    """A copy without chunks. The decision has them, and a request that waits for publication needs only its token."""
    return structs.replace(asked, request=dataclasses.replace(asked.request, chunks=()))
