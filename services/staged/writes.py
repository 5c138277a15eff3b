"""The service of staged writes: performs the effects of `commits` on the log (docs/staged-writes.md).

A turn takes the answers of write, decodes a slice of one commit, and performs the effects. Nothing waits. Each turn
does at most one inspection, so that a large commit does not delay other requests.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Answer as RequestAnswer
from ringmq.broker.requests.request import Outbox, Request
from ringmq.broker.requests.turns import TurnClock
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.staged_writes import COMMITS_TOPIC
from ringmq.services.appends import Appends
from ringmq.services.kit.flight import IN_THE_LOG, Result
from ringmq.services.log_view import LogView
from ringmq.services.staged.bodies import StagedBodies
from ringmq.services.staged.commit_records import Piece, mark_of
from ringmq.services.staged.commits import UNDER_WAY, StagedCommits
from ringmq.services.staged.events import (
    Answer,
    AppendCommit,
    AppendDone,
    Effect,
    Event,
    Inspect,
    Inspected,
    Log,
    NotStored,
    Publish,
    Stored,
    Tick,
    Unsound,
)
from ringmq.services.staged.recovery import load_snapshot, replay, save_snapshot, see_published
from ringmq.services.staged.requests import StagedRequests
from ringmq.services.topic_creator import TopicCreator
from ringmq.services.topics import Topics

WORK_MS = 5
"""Time limit of recovery in one turn."""
INSPECT_MS = 2
"""Time after which no further chunk is inspected in one turn."""
READING = "the broker is still reading its log"
LOST = "retention has taken the staged message before it could be published"
NO_ROOM = "no room for requests to write: try again"
GONE = "the queue is gone: its topic was deleted or changed"
REFUSALS = {
    lib.RMQ_CAUSE_IN_SYNC_REPLICAS: "in-sync replicas not enough",
    lib.RMQ_CAUSE_HELD: "a slave's log is longer than this master's, or differs: an operator has to choose",
}

PASSING = (lib.RMQ_CAUSE_SEGMENT_LATE, lib.RMQ_CAUSE_IN_SYNC_REPLICAS)
"""Refusals with code 1 that pass. Clients retry such a send, but not such a commit."""


class StagedWrites:
    """The service. It reads the log once `COMMITS_TOPIC` exists, so not before the first request of a client."""

    name = "staged writes"
    codes = frozenset({int(RequestCode.STAGED_WRITES)})

    def __init__(
        self,
        *,
        plane: Plane,
        log: LogView,
        topics: Topics,
        config: Callable[[], BrokerConfig],
        appends: Appends[Effect],
        topic_creator: TopicCreator,
        outbox: Outbox,
        log_line: Callable[[str], None],
        wall_ms: Callable[[], int],
        core: StagedCommits | None = None,
    ) -> None:
        self._plane = plane
        self._log = log
        self._topics = topics
        self._config = config
        self._appends = appends
        self._outbox = outbox
        self._log_line = log_line
        self._root = Path(config().store_path_root_dir)
        self._core = StagedCommits() if core is None else core
        self._requests = StagedRequests(config, topics, topic_creator, outbox, wall_ms, log_line)
        self._clock = TurnClock()
        self._bodies = StagedBodies(log, topics, config, plane.header.settings)
        self._recovery: Iterator[bool] | None = None
        self._is_open = False
        self._events: deque[Event] = deque()
        self._unsaved: tuple[dict[str, Any], int] | None = None
        self._saver = ThreadPoolExecutor(1, "staged-saver")
        self._saving: Future[None] | None = None
        self._saved_ms = 0

    def on_request(self, request: Request) -> RequestAnswer:
        """See HostedService."""
        return self._requests.on_request(request)

    @property
    def has_news(self) -> bool:
        """See HostedService."""
        return self._is_open and (bool(self._events) or self._appends.has_answers)

    @property
    def is_polling(self) -> bool:
        """See HostedService."""
        return self._recovery is not None

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        if not self._requests.is_idle:
            return False
        if not self._is_open:
            return not self._requests.has_decisions
        is_saved = self._unsaved is None and not self._core.dirty
        return is_saved and not self._events and self._core.is_idle

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        if not self._is_open:
            if not self._requests.has_decisions:
                self._requests.refuse_without_topic()
                return False
            self._is_open = True
            self._recovery = self._recover()
        worked = self._recover_some()
        events: list[Event] = [self._event_of(result) for result in self._appends.results()]
        if self._events:
            events.append(self._events.popleft())
        if self._core.takes_commits and self._requests.has_commits:
            worked = True
            if (commit := self._requests.next_commit()) is not None:
                events.append(commit)
        self._requests.refuse_late(now_ms, READING if self._core.recovering else UNDER_WAY)
        worked = worked or bool(events)
        for event in [*events, Tick()]:
            for effect in self._core.step(event, now_ms, self._plane.confirm_offset()):
                self._perform(effect)
        return worked

    def close(self) -> None:
        """See HostedService."""
        remark = "the broker is shutting down: commit the batch again when it is back"
        self._requests.refuse_all(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        for effect in self._core.abandon(remark):
            self._perform(effect)

    def save_if_due(self, now_ms: int) -> None:
        """Write the table of queries after a change, once the part of the log that it names is on disk. A thread does
        it, because a slow disk takes long to sync. Raises OSError."""
        if self._saving is not None:
            if not self._saving.done():
                return
            saving, self._saving = self._saving, None
            saving.result()
            self._unsaved = None
        is_due = now_ms - self._saved_ms >= self._config().flush_consumer_offset_interval
        if self._unsaved is None and self._core.dirty and not self._core.recovering and is_due:
            self._unsaved = self._core.snapshot()
        if self._unsaved is None or not is_due:
            return
        if int(self._plane.watermarks.flushed_offset) >= self._unsaved[1]:
            self._saved_ms = now_ms
            self._saving = self._saver.submit(save_snapshot(self._root, self._log, self._unsaved[0]))

    # ---- recovery ----

    def _recover_some(self) -> bool:
        """Continue recovery for a while. True if there was something to read."""
        if self._recovery is None:
            return False
        deadline = time.monotonic() + WORK_MS / 1000
        for moved in self._recovery:
            if not moved:
                return False
            if time.monotonic() >= deadline:
                return True
        self._recovery = None
        return True

    def _recover(self) -> Iterator[bool]:
        """Yields True between steps, False while other processes have to progress first."""
        while (log_end := self._appends.port.settled_end) is None:
            yield False
        while int(self._plane.watermarks.dispatched_offset) < log_end:
            yield False
        first, problem = load_snapshot(self._root, self._core, self._log, log_end)
        if problem is not None:
            self._log_line(problem)
        yield from replay(self._log, self._topics, self._core, first)
        since = self._core.open_since()
        if since is not None:
            segment_bytes = int(self._plane.header.settings.segment_bytes)
            yield from see_published(self._log, self._core, since, log_end, segment_bytes)
        self._core.finish_recovery()

    # ---- out ----

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Inspect():
                self._events.append(self._inspect(effect))
            case AppendCommit(record):
                self._append_record(effect, b"TAGS\x01COMMIT\x02", record.encode())
            case AppendDone(record):
                self._append_record(effect, b"TAGS\x01DONE\x02", record.encode())
            case Publish():
                self._publish(effect)
            case Answer(token, code, remark):
                self._answer(token, code, remark)
            case Log(text):
                self._log_line(text)

    def _inspect(self, effect: Inspect) -> Inspected | Unsound:
        """Inspect the chunks in order until INSPECT_MS are over. A chunk of 4 MiB takes as long."""
        pieces = list[Piece]()
        self._clock.begin()
        try:
            for chunk in effect.chunks:
                found = self._bodies.inspect(effect.request, chunk)
                if isinstance(found, Unsound):
                    return found
                pieces.append(found)
                if not self._clock.is_within(INSPECT_MS):
                    break
        except Exception as error:  # a defect that a client's bytes have shown costs one commit
            self._log_line(f"a staged message could not be inspected:\n{traceback.format_exc()}")
            return Unsound(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        return Inspected(tuple(pieces))

    def _append_record(self, effect: Effect, properties: bytes, body: bytes) -> None:
        queue = self._topics.queue(COMMITS_TOPIC, 0)
        if queue is None or len(body) > self._appends.body_bytes_max:
            remark = f"a record of {len(body)} bytes for topic {COMMITS_TOPIC} cannot be appended"
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_ERROR, remark))
        elif not self._appends.append(effect, queue, body, properties, self._appends.own_origin()):
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_BUSY, NO_ROOM))

    def _publish(self, effect: Publish) -> None:
        piece = effect.piece
        queue = self._topics.queue(piece.topic, piece.queue_id)
        staged = self._bodies.body(piece.commit_log_offset, effect.skip)
        if queue is None or staged is None:
            remark = GONE if queue is None else LOST
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_ERROR, remark, final=True))
            return
        if len(staged.body) > self._appends.body_bytes_max:
            remark = f"{len(staged.body)} bytes are over maxMessageSize {self._config().max_message_size}"
            self._events.append(NotStored(effect, ResponseCode.MESSAGE_ILLEGAL, remark, final=True))
            return
        mark = mark_of(effect.number, effect.chunk)
        if not self._appends.append(effect, queue, staged.body, b"", staged.origin, mark):
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_BUSY, NO_ROOM))

    def _answer(self, request: Request, code: int, remark: str) -> None:
        self._outbox.reply(request, request.reply(code, remark or None))

    # ---- in ----

    def _event_of(self, result: Result[Effect]) -> Event:
        if result.code in IN_THE_LOG:  # and safe below the confirm offset, which moves when disk and replicas have it
            where = result.queue_offset, result.commit_log_offset, result.commit_log_end
            return Stored(result.what, *where)
        if result.cause == lib.RMQ_CAUSE_QUEUE_SLOT:
            return NotStored(result.what, result.code, GONE, final=True)
        cause = REFUSALS.get(result.cause, f"cause {result.cause}")
        remark = f"the store refused it with code {result.code}: {cause}"
        code = ResponseCode.SYSTEM_BUSY if result.cause in PASSING else result.code
        return NotStored(result.what, code, remark, code == ResponseCode.MESSAGE_ILLEGAL)
