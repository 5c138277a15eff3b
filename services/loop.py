"""The loop of the worker `services`: takes requests out of its inbox, has services answer them, returns the answers.

One turn: answers that did not fit -> requests, while there is time -> slices of long requests -> the services' own work
-> timed work -> answers. Nothing waits. `TurnClock` limits the time of a turn.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests import access
from ringmq.broker.requests.intake import Intake, PlainRequests
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Connection, Outbox
from ringmq.broker.requests.runner import AnswerTimes
from ringmq.broker.requests.slow_requests import DROPPED_COUNTER, SlowRequests
from ringmq.broker.requests.turns import TurnClock
from ringmq.ipc.asks import Inbox
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.plane import Plane
from ringmq.ipc.worker import STATE_STOPPING, StopFlag
from ringmq.native import lib
from ringmq.remoting.log_throttle import LogThrottle
from ringmq.services.control_asks import ControlAsks
from ringmq.services.hosted_service import HostedService
from ringmq.services.log_view import LogView
from ringmq.services.service_requests import ServiceRequests

TICK_MS = 250
POLL_MS = 2
"""Time between two turns while a service waits for words that ring no bell."""
STORE_LOOK_MS = 10_000
"""Time for which the blocks of a deleted log file stay in use, if this process has it mapped."""
CLOSE_MS = 1000
"""Time for the turns of a stop."""
LINES_PER_MINUTE = 10
"""Limit of log lines. Any peer can send failing requests at any rate."""


class ServiceLoop:
    """Owns the services and their requests and answers. `turn` does one round; the caller parks between rounds."""

    def __init__(
        self,
        plane: Plane,
        role: int,
        inbox: Inbox,
        services: Sequence[HostedService],
        topic_creator: ControlAsks,
        outbox: Outbox,
        config: Callable[[], BrokerConfig],
        log_view: LogView,
        log: Callable[[str], None],
        *,
        rest_after_ms: int,
        replies: ReplyQueues | None = None,
        plain: PlainRequests | None = None,
    ) -> None:
        self._plane = plane
        self._role = role
        self._inbox = inbox
        self._services = services
        self._topic_creator = topic_creator
        self._config = config
        self._settings = config()
        """Those of this turn: a look at the file takes a system call."""
        self._log_view = log_view
        self._log = log
        self._rest_after_ms = rest_after_ms
        self._clock = TurnClock()
        self._replies = replies or ReplyQueues(plane.readers, inbox)
        self._refusals = access.Refusals()
        self._slow_requests = SlowRequests()
        latency = plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED]
        times = AnswerTimes(latency, self._slow_requests, lambda: self._settings.slow_request_ms)
        self._requests = ServiceRequests(
            services, outbox, self._clock, self._replies.backlog_bytes, self._refusal, times.measure, self._log_line
        )
        self._intake = Intake(
            plane,
            role,
            inbox,
            self._replies,
            self._requests,
            self._clock,
            self._log_line,
            plain=plain,
            on_plain=times.measure,
        )
        self._lines = LogThrottle(LINES_PER_MINUTE)
        self._now_ms = 0
        self._next_tick_ms = 0
        self._next_store_look_ms = 0
        self._worked_ms = 0
        """Time of the last work."""

    # ---- one round ----

    def run(self, stop: StopFlag, now_ms: Callable[[], int], rest: Callable[[], None]) -> int:
        """Serve until the stop, or until there has been no work for a while: then call `rest`. Return the exit status.

        Askers may give up asks to a worker that does not serve (native/src/plane/asks.h), so its state is serving to
        its end.
        """
        rests = False
        self._inbox.begin()
        while not stop.is_set:
            if self.turn(now_ms()):
                continue
            if rests := self.may_rest(now_ms()):
                rest()
                break
            self.park(now_ms())
        self.close(now_ms, takes_more=not rests)
        self._plane.role(self._role).state = STATE_STOPPING
        return EXIT_RESTED if rests else EXIT_CLEAN

    def turn(self, now_ms: int) -> bool:
        """Do one round of work. True if more may follow at once."""
        self._now_ms = now_ms
        self._settings = self._config()
        self._clock.begin()
        self._replies.send_waiting()
        taken = self._intake.take(now_ms)
        self._requests.turn()
        worked = self._topic_creator.turn(now_ms) or taken > 0
        for service in self._services:
            worked |= service.turn(now_ms)
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._tick(now_ms)
        self._replies.perform(self._requests.take_effects())
        self._plane.role(self._role).progress += 1
        if worked or not self._worked_ms or not self._is_idle:
            self._worked_ms = now_ms
        return worked or self._requests.is_busy

    def park(self, now_ms: int) -> None:
        """Sleep until the bell rings or something is due."""
        timeout_ms = max(0, self._next_tick_ms - now_ms)
        if any(service.is_polling for service in self._services):
            timeout_ms = min(timeout_ms, POLL_MS)
        self._intake.park(
            timeout_ms, lambda: self._topic_creator.has_news or any(service.has_news for service in self._services)
        )

    def may_rest(self, now_ms: int) -> bool:
        """True if there has been no work for a while, there is none now, and control does not hold the worker, so the
        process may end. Later work starts the worker again."""
        if now_ms - self._worked_ms < self._rest_after_ms:
            return False
        self._plane.deactivate(self._role)
        return self._is_idle and not self._plane.is_held(self._role, now_ms) and not self._inbox.is_blocked

    def close(self, now_ms: Callable[[], int], *, takes_more: bool) -> None:
        """Answer the requests in the inbox and those that wait, because the worker ends.

        Without `takes_more`, the inbox is left to the replacement, which a late ask has started. The time is limited,
        because a service may have work for minutes, such as a look at millions of half messages.
        """
        end_ms = now_ms() + CLOSE_MS
        while takes_more and (self.turn(now_ms()) or self._requests.has_work):
            self._requests.finish()
            if now_ms() >= end_ms:
                break
        for service in self._services:
            service.close()
        self._replies.perform(self._requests.take_effects())

    @property
    def _is_idle(self) -> bool:
        if self._requests.has_work or self._replies.is_waiting or self._topic_creator.is_waiting:
            return False
        return all(service.is_idle for service in self._services)

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
            self._log(line)
        self._plane.role(self._role).counters[DROPPED_COUNTER] += slow.dropped
        slow.dropped = 0

    # ---- trouble ----

    def _guard(self, what: str, action: Callable[[], object]) -> None:
        """Log failures of files and defects once and try again later. Neither may end the worker."""
        try:
            action()
        except (OSError, RuntimeError) as error:
            self._log_line(f"{what}: {error}")
        except Exception:  # a defect: the trace is for the operator
            self._log_line(f"{what}:\n{traceback.format_exc()}")

    def _log_line(self, text: str) -> None:
        line = self._lines.line(text, self._now_ms)
        if line is not None:
            self._log(line)
