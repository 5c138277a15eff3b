"""The intake of a worker that answers clients: takes records out of its inbox, and sleeps between its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from ringmq.broker.requests.records import connection_of, request_of
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Connection, Effect, Hangup, Release, Reply, Request
from ringmq.broker.requests.runner import Runner
from ringmq.broker.requests.turns import INTAKE_MS, TurnClock
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError, UnreadableHeader
from ringmq.remoting.protocol_detection import describe

RECORDS_PER_TURN = 512
BACKLOG_RETRY_MS = 1
INCOMPLETE_RETRY_MS = 1


class PlainRequests(Protocol):
    """Takes requests that a C loop can read, from the front of the inbox. No service may answer these in slices."""

    def take(self, room: int, reader_of: Callable[[int, int], int | None], now_ms: int) -> tuple[int, list[Request]]:
        """Take at most `room` records, and hand the requests to their service, which answers them later.

        `reader_of(role, generation)`: port of a read worker, None for one that has died. It may be kept. Returns the
        number of records, and the requests.
        """


class Intake:
    """Takes records out of the inbox of one worker.

    `on_junk` gets a line about bytes of a peer that are no request. `others`: type of a record without a connection ->
    its handler. `before_request` is called before a request is decoded. `on_reader_restart` gets port and generation of
    a read worker that was started again: its connections of earlier generations are gone. `plain` takes a batch before
    each record that is taken alone; `on_plain` gets each request of the batch. `on_closed` gets connections that are
    closed. `keeps_asks`: requests keep their frames, so that read workers may hold them.
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
        plain: PlainRequests | None = None,
        on_plain: Callable[[Request], None] | None = None,
        on_closed: Callable[[Connection], None] | None = None,
        keeps_asks: bool = False,
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
        self._plain, self._on_plain = plain, on_plain
        self._on_closed, self._keeps_asks = on_closed, keeps_asks
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
            if self._plain is not None and (plain := self._take_plain(self._plain, RECORDS_PER_TURN - taken, now_ms)):
                taken += plain
                continue
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
        plane.arm(role)
        has_work = has_news is not None and has_news()
        if not has_work and (sleep_ms := self.sleep_ms(timeout_ms)) > 0:
            plane.wait(role, sleep_ms)
        else:
            plane.disarm(role)

    def sleep_ms(self, timeout_ms: int) -> int:
        """Longest sleep, at most `timeout_ms`, for a caller that has armed the bell. 0: there is work now."""
        if not self._inbox.is_blocked:
            self._blocked_parks = 0
            return BACKLOG_RETRY_MS if self._replies.is_waiting else timeout_ms
        # A record has just come, or the first record is incomplete. Its writer runs, is stopped, or has died. A dead
        # writer's record is freed here.
        self._blocked_parks += 1
        is_new = self._inbox.unblock() or self._blocked_parks == 1
        return 0 if is_new else INCOMPLETE_RETRY_MS

    def _take_plain(self, plain: PlainRequests, room: int, now_ms: int) -> int:
        count, requests = plain.take(room, self._reader_of, now_ms)
        if self._on_plain is not None:
            for request in requests:
                self._on_plain(request)
        return count

    def _reader_of(self, role: int, generation: int) -> int | None:
        """Port of the read worker that has put a record. None if it has died since."""
        reader = self._ports.get(role)
        if reader is None or generation < self._generations.get(reader, 0):
            return None
        self._see_generation(reader, generation)
        return reader

    def _on_record(self, record: Ask, now_ms: int) -> None:
        other = self._others.get(record.type)
        if other is not None:
            other(record, now_ms)
            return
        reader = self._reader_of(record.role, record.role_generation)
        if reader is None:
            return
        connection = connection_of(record, reader)
        if record.type == lib.RMQ_INBOX_CLOSED:
            self._requests.end(connection)
            self._replies.end(connection)
            if self._on_closed is not None:
                self._on_closed(connection)
        elif record.type == lib.RMQ_INBOX_JUNK:
            frame_bytes_max = int(self._plane.header.settings.frame_bytes_max)
            self._on_junk(f"junk from {connection.host}: {describe(record.payload, frame_bytes_max)}")
        elif record.type in (lib.RMQ_INBOX_COLD_FRAME, lib.RMQ_INBOX_HELD):
            if self._before_request is not None:
                self._before_request(now_ms)
            request = self._decode(record, connection, now_ms)
            if request is not None:
                self._requests.run(request)

    def _decode(self, record: Ask, connection: Connection, now_ms: int) -> Request | None:
        try:
            return request_of(record, connection, now_ms, keeps_ask=self._keeps_asks)
        except UnreadableHeader as error:
            self._on_junk(f"junk from {connection.host}: {error}")
            self._requests.effects.append(_refusal(error, record, connection))
            return None
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


def _refusal(error: UnreadableHeader, record: Ask, connection: Connection) -> Effect:
    """The answer to a request whose header cannot be read, if it waits for one."""
    request = RemotingCommand.unreadable(error)
    if request.is_oneway or request.is_response:
        return Release(connection, record.pending)
    return Reply(connection, record.pending, RemotingCommand.response_to(request, error.code, str(error)))
