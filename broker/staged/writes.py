"""Staged writes in control: what `staged_commits` decides, done with the log (docs/staged-writes.md).

A turn takes what write has answered and what clients have asked, and does what follows; nothing waits. Inspections run
once per turn, so that a large commit does not keep other requests waiting.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ringmq.broker.appends import Answered, Appends
from ringmq.broker.core import Broker
from ringmq.broker.requests.request import Request
from ringmq.broker.staged.bodies import StagedBodies
from ringmq.broker.staged.commit_records import mark_of
from ringmq.broker.staged.events import (
    Answer,
    AppendCommit,
    AppendDone,
    Effect,
    Event,
    Inspect,
    Inspected,
    NotStored,
    Publish,
    Stored,
    Tell,
    Tick,
    Unsound,
)
from ringmq.broker.staged.recovery import load_snapshot, replay, save_snapshot, see_published
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.staged_writes import COMMITS_TOPIC

WORK_MS = 5
"""Recovery and inspections of one turn stop after this long."""
LOST = "retention has taken the staged message before it could be published"
NO_ROOM = "no room for requests to write: try again"
GONE = "the queue is gone: its topic was deleted or changed"
IN_THE_LOG = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
"""Whether it is safe says the confirm offset alone: it moves when disk and replicas have caught up."""
REFUSALS = {
    lib.RMQ_CAUSE_IN_SYNC_REPLICAS: "in-sync replicas not enough",
    lib.RMQ_CAUSE_HELD: "a slave's log is longer than this master's, or differs: an operator has to choose",
}

PASSING = (lib.RMQ_CAUSE_SEGMENT_LATE, lib.RMQ_CAUSE_IN_SYNC_REPLICAS)
"""Refused with code 1, which clients of sends try again and those of commits do not."""


class StagedWrites:
    """Owns control's way into the log. Does nothing until the first client asks for it (`COMMITS_TOPIC` exists)."""

    def __init__(self, plane: Plane, broker: Broker, tell: Callable[[str], None]) -> None:
        self._plane = plane
        self._broker = broker
        self._tell = tell
        self._root = Path(broker.config.store_path_root_dir)
        self._core = broker.staged_commits
        self._bodies = StagedBodies(broker, int(plane.header.settings.segment_bytes))
        self._appends: Appends[Effect] | None = None
        self._recovery: Iterator[bool] | None = None
        self._events: deque[Event] = deque()
        self._unsaved: tuple[dict[str, Any], int] | None = None
        self._saved_ms = 0

    @property
    def has_news(self) -> bool:
        """Write has answered, or there is work left: control must not sleep."""
        if self._appends is None:
            return False
        return bool(self._events) or self._appends.has_answers

    def turn(self, now_ms: int) -> bool:
        """Do what there is; whether more may follow at once."""
        asked = self._broker.staged_asked
        if self._appends is None:
            if COMMITS_TOPIC not in self._broker.topics or self._broker.config.broker_role == "SLAVE":
                return False  # a slave has nobody who would append
            self._appends = Appends(self._plane)
            self._recovery = self._recover(self._appends)
        worked = self._recover_some()
        events: list[Event] = [self._event_of(answered) for answered in self._appends.answers()]
        while asked:
            events.append(asked.popleft())
        if self._events:
            events.append(self._events.popleft())
        worked = worked or bool(events)
        for event in [*events, Tick()]:
            for effect in self._core.step(event, now_ms, self._plane.confirm_offset()):
                self._perform(effect)
        return worked

    def close(self) -> None:
        """Control stops: nobody is left without an answer."""
        for effect in self._core.abandon("the broker is shutting down, the commit goes on when it is back"):
            self._perform(effect)

    def save_if_due(self, now_ms: int) -> None:
        """Write the table of queries when it changed, once the log that it speaks of is on disk. Raises OSError."""
        is_due = now_ms - self._saved_ms >= self._broker.config.flush_consumer_offset_interval
        if self._unsaved is None and self._core.dirty and not self._core.recovering and is_due:
            self._unsaved = self._core.snapshot()
        if self._unsaved is None or not is_due:
            return
        if int(self._plane.watermarks.flushed_offset) >= self._unsaved[1]:
            self._saved_ms = now_ms
            save_snapshot(self._root, self._broker.store, self._unsaved[0])
            self._unsaved = None

    # ---- recovery ----

    def _recover_some(self) -> bool:
        """Go on for a while; whether there was something to read."""
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

    def _recover(self, appends: Appends[Effect]) -> Iterator[bool]:
        """Yields True between steps, False when others have to move first."""
        while (log_end := appends.settled()) is None:
            yield False
        while int(self._plane.watermarks.dispatched_offset) < log_end:
            yield False
        first, problem = load_snapshot(self._root, self._core, self._broker.store, log_end)
        if problem is not None:
            self._tell(problem)
        yield from replay(self._broker, self._plane, self._core, first)
        since = self._core.open_since()
        if since is not None:
            segment_bytes = int(self._plane.header.settings.segment_bytes)
            yield from see_published(self._broker.store, self._core, since, log_end, segment_bytes)
        self._core.finish_recovery()

    # ---- out ----

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Inspect(request, chunks):
                found = [self._bodies.inspect(request, chunk) for chunk in chunks]
                unsound = next((one for one in found if isinstance(one, Unsound)), None)
                pieces = tuple(one for one in found if not isinstance(one, Unsound))
                self._events.append(unsound or Inspected(pieces))
            case AppendCommit(record):
                self._append_record(effect, b"TAGS\x01COMMIT\x02", record.encode())
            case AppendDone(record):
                self._append_record(effect, b"TAGS\x01DONE\x02", record.encode())
            case Publish():
                self._publish(effect)
            case Answer(token, code, remark):
                self._answer(token, code, remark)
            case Tell(text):
                self._tell(text)

    def _append_record(self, effect: Effect, properties: bytes, body: bytes) -> None:
        assert self._appends is not None
        queue = self._queue(COMMITS_TOPIC, 0)
        if queue is None or len(body) > self._appends.body_bytes_max:
            remark = f"a record of {len(body)} bytes for topic {COMMITS_TOPIC} cannot be appended"
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_ERROR, remark))
        elif not self._appends.submit(effect, queue, body, properties, self._appends.own_origin()):
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_BUSY, NO_ROOM))

    def _publish(self, effect: Publish) -> None:
        assert self._appends is not None
        piece = effect.piece
        queue = self._queue(piece.topic, piece.queue_id)
        staged = self._bodies.body(piece.commit_log_offset, effect.skip)
        if queue is None or staged is None:
            remark = GONE if queue is None else LOST
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_ERROR, remark, final=True))
            return
        if len(staged.body) > self._appends.body_bytes_max:
            remark = f"{len(staged.body)} bytes are over maxMessageSize {self._broker.config.max_message_size}"
            self._events.append(NotStored(effect, ResponseCode.MESSAGE_ILLEGAL, remark, final=True))
            return
        mark = mark_of(effect.number, effect.chunk)
        if not self._appends.submit(effect, queue, staged.body, b"", staged.origin, mark):
            self._events.append(NotStored(effect, ResponseCode.SYSTEM_BUSY, NO_ROOM))

    def _queue(self, topic: str, queue_id: int) -> tuple[int, int, int] | None:
        topic_id = self._plane.topic_find(topic)
        slot = None if topic_id is None else self._plane.queue_find(topic_id, queue_id)
        return None if topic_id is None or slot is None else (topic_id, slot, queue_id)

    def _answer(self, request: Request, code: int, remark: str) -> None:
        self._broker.outbox.reply(request, request.reply(code, remark or None))

    # ---- in ----

    def _event_of(self, answered: Answered[Effect]) -> Event:
        if answered.code in IN_THE_LOG:
            where = answered.queue_offset, answered.commit_log_offset, answered.commit_log_end
            return Stored(answered.what, *where)
        if answered.cause == lib.RMQ_CAUSE_QUEUE_SLOT:
            return NotStored(answered.what, answered.code, GONE, final=True)
        cause = REFUSALS.get(answered.cause, f"cause {answered.cause}")
        remark = f"the store refused it with code {answered.code}: {cause}"
        code = ResponseCode.SYSTEM_BUSY if answered.cause in PASSING else answered.code
        return NotStored(answered.what, code, remark, code == ResponseCode.MESSAGE_ILLEGAL)
