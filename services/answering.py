"""The part of a worker that answers clients: takes requests out of its inbox, has services answer them, returns the
answers.

One turn: answers that did not fit -> requests, while there is time -> slices of long requests -> the services' own work
-> timed work -> answers. `TurnClock` limits the time of a turn.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests import access
from ringmq.broker.requests.intake import Intake, PlainRequests
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Connection, Outbox, Request
from ringmq.broker.requests.runner import AnswerTimes
from ringmq.broker.requests.slow_requests import DROPPED_COUNTER, SlowRequests
from ringmq.broker.requests.turns import TurnClock
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.plane import Plane
from ringmq.native import lib
from ringmq.services.control_asks import ControlAsks
from ringmq.services.hosted_service import HostedService
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.services.kit.log_lines import LogLines
from ringmq.services.kit.loop import Part
from ringmq.services.log_view import LogView
from ringmq.services.service_requests import ServiceRequests

TICK_MS = 250
POLL_MS = 2
"""Time between two turns while a service waits for words that ring no bell."""
STORE_LOOK_MS = 10_000
"""Time for which the blocks of a deleted log file stay in use, if this process has it mapped."""
CLOSE_MS = 1000
"""Time for the turns of a stop."""


class ServedWaiting(Protocol):
    """Serves plain requests in C while the worker waits (`services/kit/serving.py`)."""

    @property
    def is_blocked(self) -> bool:
        """True if the first record of the inbox was incomplete at the last wait."""

    @property
    def has_left(self) -> bool:
        """True if the last wait has left an ask to Python, or there was none yet. Else the next wait takes all."""

    @property
    def may_serve(self) -> bool:
        """False while requests wait that have to be served first."""

    def wait(self, timeout_ms: int) -> Sequence[Request]:
        """Sleep and serve. The bell is armed, and is disarmed then. Returns requests that were slow."""


class Answering(Part):
    """Owns the services and their requests and answers.

    `others`, `on_reader_restart`, `on_closed`, `keeps_asks`: see Intake. `waiting`: serves in `wait`, which a loop
    calls in place of its sleep; asks in the inbox are no reason for a turn then.
    """

    def __init__(
        self,
        plane: Plane,
        role: int,
        inbox: Inbox,
        services: Sequence[HostedService],
        control_asks: ControlAsks,
        outbox: Outbox,
        config: Callable[[], BrokerConfig],
        log_view: LogView,
        log_line: Callable[[str], None],
        *,
        replies: ReplyQueues | None = None,
        plain: PlainRequests | None = None,
        waiting: ServedWaiting | None = None,
        others: Mapping[int, Callable[[Ask, int], None]] = MappingProxyType({}),
        on_reader_restart: Callable[[int, int], None] | None = None,
        on_closed: Callable[[Connection], None] | None = None,
        keeps_asks: bool = False,
        on_rest: Callable[[], None] = lambda: None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._plane = plane
        self._role = role
        self._inbox = inbox
        self._services = services
        self._control_asks = control_asks
        self._config = config
        self._settings = config()
        """Those of this turn: a look at the file takes a system call."""
        self._log_view = log_view
        self._log_line = log_line
        self._on_rest, self._now_ms = on_rest, now_ms
        self._waiting = waiting
        self._has_waited = False
        """True if `waiting` has served since the last turn."""
        self._clock = TurnClock()
        self._replies = replies or ReplyQueues(plane.readers, inbox)
        self._slow_requests = SlowRequests()
        self._lines = LogLines(log_line, now_ms=now_ms)
        latency = plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED]
        self._times = times = AnswerTimes(latency, self._slow_requests, lambda: self._settings.slow_request_ms)
        self._requests = ServiceRequests(
            services, outbox, self._clock, self._replies.backlog_bytes, self._refusal, times.measure, self._lines
        )
        self._intake = Intake(
            plane,
            role,
            inbox,
            self._replies,
            self._requests,
            self._clock,
            self._lines,
            others=others,
            on_reader_restart=on_reader_restart,
            plain=plain,
            on_plain=times.measure,
            on_closed=on_closed,
            keeps_asks=keeps_asks,
        )
        self._is_closing = False
        self.has_taken = False
        """True if the last turn has taken requests."""
        self._next_tick_ms = 0
        self._next_store_look_ms = 0

    # ---- Part ----

    def begin(self) -> None:
        """See Part."""
        self._inbox.begin()

    def turn(self, now_ms: int) -> bool:
        """See Part."""
        self._settings = self._config()
        self._clock.begin()
        self._replies.send_waiting()
        taken = self._intake.take(now_ms) if self._has_intake else 0
        self._has_waited = False
        self._requests.turn()
        worked = self._control_asks.turn(now_ms) or (taken > 0 and self._waiting is None)
        for service in self._services:
            worked |= service.turn(now_ms)
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._tick(now_ms)
        self._replies.perform(self._requests.take_effects())
        self.has_taken = taken > 0
        return worked or self._requests.is_busy

    def sleep_ms(self, now_ms: int) -> int:
        """See Part."""
        if self._control_asks.has_news or any(service.has_news for service in self._services):
            return 0
        timeout_ms = max(1, self._next_tick_ms - now_ms)
        if any(service.is_polling for service in self._services):
            timeout_ms = min(timeout_ms, POLL_MS)
        return timeout_ms if self._may_serve else self._intake.sleep_ms(timeout_ms)

    def wait(self, timeout_ms: int) -> None:
        """Sleep until the bell rings for a turn, at most `timeout_ms`, and serve plain requests meanwhile."""
        if self._waiting is None or not self._may_serve:
            self._plane.wait(self._role, timeout_ms)
            return
        self._has_waited = True
        for request in self._waiting.wait(timeout_ms):
            self._times.measure(request)

    def run_again(self, request: Request) -> None:
        """Run a request anew for which its service has returned `Wait`."""
        self._requests.run(request)

    @property
    def _has_intake(self) -> bool:
        """True if this turn takes requests. Under load some are always there: Python would serve most of them.

        Turns that follow one another without a wait take them: a long work of another part must not hold them back.
        """
        if self._waiting is None or not self._has_waited:
            return True
        return self._waiting.has_left or self._is_closing or not self._may_serve

    @property
    def _may_serve(self) -> bool:
        waiting = self._waiting
        if waiting is None or waiting.is_blocked or not waiting.may_serve:
            return False
        return not self._replies.is_waiting and not self._requests.has_work

    @property
    def is_idle(self) -> bool:
        """See Part."""
        if self._requests.has_work or self._replies.is_waiting or self._control_asks.is_waiting:
            return False
        return not self._inbox.is_blocked and all(service.is_idle for service in self._services)

    def close(self, *, rests: bool) -> None:
        """Answer the requests in the inbox and those that wait, because the worker ends.

        If it rests, the inbox is left to the replacement, which a late ask has started. The time is limited, because a
        service may have work for minutes, such as a look at millions of half messages.
        """
        end_ms, self._is_closing = self._now_ms() + CLOSE_MS, True
        while not rests and (self.turn(self._now_ms()) or self.has_taken or self._requests.has_work):
            self._requests.finish()
            if self._now_ms() >= end_ms:
                break
        for service in self._services:
            service.close()
        self._replies.perform(self._requests.take_effects())

    def rest(self) -> None:
        """See Part."""
        self._on_rest()

    # ---- in ----

    def _refusal(self, code: int, connection: Connection) -> str | None:
        return access.refusal(self._settings, code, connection)

    # ---- time ----

    def _tick(self, now_ms: int) -> None:
        self._intake.look_at_readers()
        for service in self._services:
            self._guard(service.name, lambda: service.save_if_due(now_ms))  # noqa: B023 (called within)
        if now_ms >= self._next_store_look_ms:
            self._next_store_look_ms = now_ms + STORE_LOOK_MS
            self._guard("files that retention took", self._log_view.refresh)
        slow = self._slow_requests
        for line in slow.due_lines(slow.own(), now_ms):
            self._log_line(line)
        self._plane.role(self._role).counters[DROPPED_COUNTER] += slow.dropped
        slow.dropped = 0

    # ---- trouble ----

    def _guard(self, what: str, action: Callable[[], object]) -> None:
        """Log failures of files and defects once and try again later. Neither may end the worker."""
        try:
            action()
        except (OSError, RuntimeError) as error:
            self._lines(f"{what}: {error}")
        except Exception:  # a defect: the trace is for the operator
            self._lines(f"{what}:\n{traceback.format_exc()}")
