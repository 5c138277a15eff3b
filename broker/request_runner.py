"""Requests of clients, from a record of the inbox to effects: in order within a connection, long ones in slices."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ringmq.broker.announcements import Announcements
from ringmq.broker.core import Broker
from ringmq.broker.handlers.table import CHANGES_TABLES, TOLD_FIRST, HandlerTable
from ringmq.broker.requests.outlets import BACKLOG_BYTES_LARGE
from ringmq.broker.requests.request import Answer, Connection, Drop, Effect, Release, Reply, Request, Run, Slices
from ringmq.broker.requests.slices import SlicedWorks
from ringmq.broker.requests.slow_requests import SlowRequests, slow_request
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.broker.table_saves import TableSaves
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.remoting.codes import ResponseCode

UNDONE_BYTES_MAX = 64 << 20
"""Frames of requests that are not answered yet; beyond it control takes no record in, and read workers answer busy."""


class RequestRunner:
    """Runs requests over the core. `effects`: those of answered requests, in order, for the shell."""

    def __init__(
        self,
        plane: Plane,
        broker: Broker,
        handlers: HandlerTable,
        announcements: Announcements,
        slow: SlowRequests,
        tell_failure: Callable[[str], None],
        clock: TurnClock,
        saves: TableSaves,
        backlog_bytes: Callable[[], int],
    ) -> None:
        self.broker = broker
        self.handlers = handlers
        self.clock = clock
        self.effects: list[Effect] = []
        self._announcements = announcements
        self._slow = slow
        self._tell_failure = tell_failure
        self._latency = plane.header.latency[lib.RMQ_ROLE_CONTROL][lib.RMQ_CONTROL_LATENCY_ANSWERED]
        self._saves = saves
        self._backlog_bytes = backlog_bytes
        self._unsent_bytes = 0
        """Bodies in `effects`."""
        self._works = SlicedWorks(clock, must_rest=self._must_rest)

    @property
    def is_busy(self) -> bool:
        """There is more to do at once."""
        return self._works.is_ready

    @property
    def has_work(self) -> bool:
        """Some request is not answered yet."""
        return len(self._works) > 0

    @property
    def is_choked(self) -> bool:
        """So much is not answered yet that no more should be taken in."""
        return self._works.undone_bytes > UNDONE_BYTES_MAX

    def run(self, request: Request) -> None:
        """Answer a request, now or after the earlier requests of its connection."""
        self._works.add(_RequestWork(self, request, request.connection, request.frame_bytes))

    def end(self, connection: Connection) -> None:
        """The connection is closed."""
        self._works.end(connection)
        self._works.add(_EndWork(self, connection))

    def begin_next(self) -> None:
        """Begin a request that has waited for one before it."""
        self._works.begin_next()

    def turn(self) -> None:
        """Go on with long requests."""
        self._works.turn()

    def finish(self) -> None:
        """Answer everything: control stops."""
        self._works.finish()

    def take_effects(self) -> list[Effect]:
        """The effects so far."""
        taken, self.effects = self.effects, []
        self._unsent_bytes = 0
        return taken

    def _must_rest(self) -> bool:
        return self._backlog_bytes() + self._unsent_bytes > BACKLOG_BYTES_LARGE

    @property
    def table_changes(self) -> int:
        """The number of changes of topics and groups since the start."""
        return self.broker.topics.changes + self.broker.groups.changes

    def complete(self, request: Request, answer: Answer, changes_before: int) -> None:
        """The answer of a request is there. `changes_before`: `table_changes` when it was begun."""
        code = request.command.code
        effects = self.handlers.effects_of(request, answer)
        verdict = effects[-1] if effects else None
        if isinstance(verdict, Reply):
            self._unsent_bytes += len(verdict.command.body)
        release = self.effects_out
        if code in TOLD_FIRST and isinstance(verdict, Reply):
            change = self._announcements.announce()
            if change is not None:
                release = partial(self._hold_last, change, request.now_ms)
        if code in CHANGES_TABLES or self.table_changes != changes_before:
            self._saves.hold(effects, release, is_change=code in CHANGES_TABLES)
        else:
            release(effects)
        self._measure(request, verdict)

    def effects_out(self, effects: list[Effect]) -> None:
        """Let effects go out."""
        self.effects += effects

    def _hold_last(self, change: int, now_ms: int, effects: list[Effect]) -> None:
        """Let all go out but the answer, which waits until the name servers know `change`."""
        self.effects += effects[:-1]
        self._announcements.hold(effects[-1], change, now_ms)

    def fail(self, request: Request, error: Exception) -> None:
        """A defect of ours must cost one answer, not the broker; the trace is for the operator."""
        self.report_failure(f"request {request.command.code} failed", error)
        self.effects += self.broker.outbox.take()
        if request.command.is_oneway or request.command.is_response:
            self.effects.append(Release(request.connection, request.pending))
            return
        response = request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        self.effects.append(Reply(request.connection, request.pending, response))

    def report_failure(self, what: str, error: Exception) -> None:
        """The trace of a defect, for the operator."""
        self._tell_failure(f"{what}:\n{''.join(traceback.format_exception(error))}")

    def _measure(self, request: Request, verdict: Effect | None) -> None:
        if not request.received_mono_ns:
            return
        took_ns = time.monotonic_ns() - request.received_mono_ns
        lib.rmq_latency_count(ffi.addressof(self._latency), took_ns, 1)
        limit_ms = self.broker.config.slow_request_ms
        if limit_ms and took_ns >= limit_ms * 1_000_000 and not isinstance(verdict, Run):
            self._slow.add(slow_request(request, took_ns // 1000))  # the reader logs requests that run again


@dataclass(slots=True)
class _RequestWork:
    runner: RequestRunner
    request: Request
    connection: Connection
    size_bytes: int
    changes_before: int = 0

    def begin(self) -> Answer | Slices:
        self.changes_before = self.runner.table_changes
        return self.runner.handlers.begin(self.request)

    def complete(self, answer: Answer) -> None:
        self.runner.complete(self.request, answer, self.changes_before)

    def fail(self, error: Exception) -> None:
        self.runner.fail(self.request, error)


@dataclass(frozen=True, slots=True)
class _EndWork:
    """The end of a connection: its client leaves all groups."""

    runner: RequestRunner
    connection: Connection
    size_bytes: int = 0

    def begin(self) -> Slices:
        return Slices(self._steps())

    def _steps(self) -> Steps[Answer]:
        yield from self.runner.broker.membership.closing(self.connection)
        return Drop()

    def complete(self, answer: Answer) -> None:
        self.runner.effects += self.runner.broker.outbox.take()

    def fail(self, error: Exception) -> None:
        self.runner.report_failure(f"the end of connection {self.connection.address} failed", error)
