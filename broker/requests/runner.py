"""Runs requests of clients, in order within a connection and long ones in slices. A defect costs one answer."""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ringmq.broker.requests.reply_queue import BACKLOG_BYTES_LARGE
from ringmq.broker.requests.request import Answer, Connection, Effect, Release, Reply, Request, Slices
from ringmq.broker.requests.slices import SliceScheduler
from ringmq.broker.requests.slow_requests import SlowRequests, slow_request
from ringmq.broker.requests.turns import TurnClock
from ringmq.native import ffi, lib
from ringmq.remoting.codes import ResponseCode

UNDONE_BYTES_MAX = 64 << 20
"""Frames of unanswered requests. Above it no record is taken, and read workers answer busy."""


class AnswerTimes:
    """The histogram `latency` of answer times, and the slow requests."""

    def __init__(self, latency: Any, slow: SlowRequests, limit_ms: Callable[[], int]) -> None:
        self._latency = ffi.addressof(latency)
        self._slow = slow
        self._limit_ms = limit_ms

    def measure(self, request: Request, *, may_be_slow: bool = True) -> None:
        """Count the time since the request was received. A slow one gets a line if it `may_be_slow`."""
        if not request.received_mono_ns:
            return
        took_ns = time.monotonic_ns() - request.received_mono_ns
        lib.rmq_latency_count(self._latency, took_ns, 1)
        limit_ms = self._limit_ms()
        if may_be_slow and limit_ms and took_ns >= limit_ms * 1_000_000:
            self._slow.add(slow_request(request, took_ns // 1000))


class Runner(ABC):
    """Runs requests. `effects`: those of answered requests, in order.

    `backlog_bytes`: the bytes of answers that wait to be sent. Large answers pause while there are many.
    """

    def __init__(self, clock: TurnClock, backlog_bytes: Callable[[], int], tell_failure: Callable[[str], None]) -> None:
        self.effects: list[Effect] = []
        self._backlog_bytes = backlog_bytes
        self._tell_failure = tell_failure
        self._works = SliceScheduler(clock, must_rest=lambda: self.backlog_bytes() > BACKLOG_BYTES_LARGE)

    @property
    def is_busy(self) -> bool:
        """True if more work is due at once."""
        return self._works.is_ready

    @property
    def has_work(self) -> bool:
        """True if some request is in slices, or waits behind one."""
        return len(self._works) > 0

    @property
    def is_full(self) -> bool:
        """True if so much is unanswered that no more should be taken."""
        return self._works.undone_bytes > UNDONE_BYTES_MAX

    def run(self, request: Request) -> None:
        """Answer a request, now or after the earlier requests of its connection."""
        self._works.add(_Work(self, request, request.connection, request.frame_bytes))

    def end(self, connection: Connection) -> None:
        """Drop the work of a closed connection."""
        self._works.end(connection)

    def begin_next(self) -> None:
        """Begin a request that has waited behind another one."""
        self._works.begin_next()

    def turn(self) -> None:
        """Continue long requests."""
        self._works.turn()

    def finish(self) -> None:
        """Answer all requests, because the worker stops."""
        self._works.finish()

    def take_effects(self) -> list[Effect]:
        """The effects so far."""
        taken, self.effects = self.effects, []
        return taken

    def backlog_bytes(self) -> int:
        """The bytes of answers that are not sent yet."""
        return self._backlog_bytes()

    @abstractmethod
    def begin(self, request: Request) -> Answer | Slices:
        """Start a request. Returns the answer, or the steps to it."""

    @abstractmethod
    def complete(self, request: Request, answer: Answer, mark: int) -> None:
        """Accept the answer to a request. `mark`: that of its begin."""

    def mark(self) -> int:
        """A value that is read before `begin` and given to `complete`."""
        return 0

    def fail(self, request: Request, error: Exception) -> None:
        """Answer a request with a defect: it costs one answer, not the worker. The trace is logged."""
        self.report_failure(f"request {request.command.code} failed", error)
        if request.command.is_oneway or request.command.is_response:
            self.effects.append(Release(request.connection, request.pending))
            return
        response = request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        self.effects.append(Reply(request.connection, request.pending, response))

    def report_failure(self, what: str, error: Exception) -> None:
        """Log the trace of a defect."""
        self._tell_failure(f"{what}:\n{''.join(traceback.format_exception(error))}")


class _Work(Struct):
    runner: Runner
    request: Request
    connection: Connection
    size_bytes: int
    mark: int = 0

    def begin(self) -> Answer | Slices:
        self.mark = self.runner.mark()
        return self.runner.begin(self.request)

    def complete(self, answer: Answer) -> None:
        self.runner.complete(self.request, answer, self.mark)

    def fail(self, error: Exception) -> None:
        self.runner.fail(self.request, error)
