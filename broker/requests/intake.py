"""The intake of a worker that answers clients: takes records out of its inbox, and sleeps between its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ringmq.broker.requests.records import connection_of, request_of
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Connection, Hangup, Request
from ringmq.broker.requests.runner import Runner
from ringmq.broker.requests.turns import INTAKE_MS, TurnClock
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.protocol_detection import describe

RECORDS_PER_TURN = 512
BACKLOG_RETRY_MS = 1
INCOMPLETE_RETRY_MS = 1


class Intake:
    """Takes records out of the inbox of one worker.

    `on_junk` gets a line about bytes of a peer that are no request. `others`: type of a record without a connection ->
    its handler. `before_request` is called before a request is decoded. `on_reader_restart` gets port and generation of
    a read worker that was started again: its connections of earlier generations are gone.
    """

    def __init__(
        self,
        plane: Plane,
        role: int,
        inbox: Inbox,
        replies: ReplyQueues,
        requests: Runner,
        clock: TurnClock,
        on_junk: Callable[[str], None],
        *,
        others: Mapping[int, Callable[[Ask, int], None]] = MappingProxyType({}),
        before_request: Callable[[int], None] | None = None,
        on_reader_restart: Callable[[int, int], None] | None = None,
    ) -> None:
        self._plane = plane
        self._role = role
        self._inbox = inbox
        self._replies = replies
        self._requests = requests
        self._clock = clock
        self._on_junk = on_junk
        self._others = others
        self._before_request = before_request
        self._on_reader_restart = on_reader_restart
        self._generations: dict[int, int] = {}
        """Port of each read worker that has sent a record -> its generation."""
        self._ports = {reader.role: reader.port for reader in plane.readers}
        self._blocked_parks = 0

    def take(self, now_ms: int) -> int:
        """Take records in while the turn has time for them. Returns the number of records."""
        requests, inbox = self._requests, self._inbox
        taken = 0
        while taken < RECORDS_PER_TURN and self._clock.is_within(INTAKE_MS):
            requests.begin_next()
            if self._replies.is_full or requests.is_full:
                break
            record = inbox.take()
            if record is None:
                break
            taken += 1
            self._on_record(record, now_ms)
        if taken:
            self._blocked_parks = 0
        return taken

    def look_at_readers(self) -> None:
        """Detect read workers that were started again and have sent nothing since."""
        plane = self._plane
        for reader in plane.readers:
            generation = int(plane.role(reader.role).generation)
            if generation:
                self._see_generation(reader.port, generation)

    def park(self, timeout_ms: int, has_news: Callable[[], bool] | None = None) -> None:
        """Sleep until the bell rings or `timeout_ms` have passed. `has_news` is called after the bell is armed."""
        plane, role = self._plane, self._role
        if self._replies.is_waiting:
            timeout_ms = BACKLOG_RETRY_MS
        plane.arm(role)
        if has_news is not None and has_news():
            plane.disarm(role)
            return
        if self._inbox.is_blocked:
            # A record has just come, or the first record is incomplete. Its writer runs, is stopped, or has died. A
            # dead writer's record is freed here.
            self._blocked_parks += 1
            if self._inbox.unblock() or self._blocked_parks == 1:
                plane.disarm(role)
                return
            timeout_ms = INCOMPLETE_RETRY_MS
        else:
            self._blocked_parks = 0
        plane.wait(role, timeout_ms)

    def _on_record(self, record: Ask, now_ms: int) -> None:
        other = self._others.get(record.type)
        if other is not None:
            other(record, now_ms)
            return
        reader = self._ports.get(record.role)
        if reader is None or record.role_generation < self._generations.get(reader, 0):
            return  # a request of a reader that has died
        self._see_generation(reader, record.role_generation)
        connection = connection_of(record, reader)
        if record.type == lib.RMQ_INBOX_CLOSED:
            self._requests.end(connection)
            self._replies.end(connection)
        elif record.type == lib.RMQ_INBOX_JUNK:
            frame_bytes_max = int(self._plane.header.settings.frame_bytes_max)
            self._on_junk(f"junk from {connection.host}: {describe(record.payload, frame_bytes_max)}")
        elif record.type == lib.RMQ_INBOX_COLD_FRAME:
            if self._before_request is not None:
                self._before_request(now_ms)
            request = self._decode(record, connection, now_ms)
            if request is not None:
                self._requests.run(request)

    def _decode(self, record: Ask, connection: Connection, now_ms: int) -> Request | None:
        try:
            return request_of(record, connection, now_ms)
        except Exception as error:  # a defect of the decoder costs one connection, as junk does
            cause = str(error) if isinstance(error, RemotingError) else f"{type(error).__name__}: {error}"
        self._on_junk(f"junk from {connection.host}: {cause}")
        self._requests.effects.append(Hangup(connection, record.pending))
        return None

    def _see_generation(self, reader: int, generation: int) -> None:
        """Update the generation of a read worker. A restarted one has none of its old connections."""
        known = self._generations.get(reader)
        if known == generation:
            return
        self._generations[reader] = generation
        self._replies.start_anew(reader, generation)
        if known is not None and self._on_reader_restart is not None:
            self._on_reader_restart(reader, generation)
