"""The end of POP at a broker before an older version gets its store (270008): `ringmq pop drain`.

No message is given from the request on, so what is open gets less: consumers acknowledge, or messages come again in the
topic of retries. Consumers may go on to run, and pull. Once nothing is open, or at once if the operator wants it, the
way back is gone (`ringmq.pop.way_back`). It ends with the broker, or when the operator takes it back.

The operator's command asks again each second, and a broker that it leaves alone before the end gives messages again.
A word of the role block says that the way is gone. It outlives this process as the plane does, and ends with the run of
the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.broker.requests.request import Answer, Request
from ringmq.native import lib
from ringmq.pop.check_points import HandOverError
from ringmq.pop.record_log import Steps
from ringmq.pop.revival_words import Gauge
from ringmq.remoting import pop_bodies
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.pop_bodies import CLOSING, DRAINED, SERVING, WAITING, PopDrainRequestHeader
from ringmq.services.kit.clocks import monotonic_ms

LEASE_MS = 30_000
"""Time behind the operator's last request after which messages are given again."""
TURN_MS = 5
"""Time of a turn for records. Requests of consumers come between."""
WAIT_MS = 10_000
"""Time for which the way back waits for write, control or the disk, and nothing changes. Acknowledgements of messages
with check points wait as long."""


class PopDrain:
    """Implements HostedService. `words`: of the role block. `way_back`: its steps. `on_resume`: messages are given
    again."""

    name = "drain of pop"
    codes = frozenset({int(RequestCode.POP_DRAIN)})
    has_news = False
    is_polling = False

    def __init__(
        self, windows: Any, words: Any, way_back: Callable[[], Steps], on_resume: Callable[[], None],
        log_line: Callable[[str], None], now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:  # fmt: skip
        self._windows, self._words, self._way_back, self._on_resume = windows, words, way_back, on_resume
        self._log_line, self._clock_ms = log_line, now_ms
        self._state = DRAINED if words[Gauge.DRAINED] else SERVING
        self._steps: Steps | None = None
        self._until_ms = self._changed_ms = 0
        self._progress = self._failure = ""

    # ---- states ----

    @property
    def gives_none(self) -> bool:
        """True if no message may be given."""
        return self._state != SERVING

    @property
    def is_drained(self) -> bool:
        """True if a stop may write no check point."""
        return self._state == DRAINED

    @property
    def needs_port(self) -> bool:
        """True if no copy may be submitted: `run` is due once write has answered all that are."""
        return self._state == CLOSING

    @property
    def has_begun(self) -> bool:
        """True between two calls of `run`: its records may be with write."""
        return self._steps is not None

    def run(self) -> bool:
        """Go on with the records for TURN_MS. True if more may follow at once."""
        began_ms = self._clock_ms()
        if self._steps is None:
            self._steps, self._changed_ms = self._way_back(), began_ms
        try:
            if began_ms >= self._changed_ms + WAIT_MS:
                self._changed_ms = began_ms
                self._steps.throw(HandOverError(f"{self._progress}, and nothing has changed for {WAIT_MS // 1000} s"))
            for progress in self._steps:
                now_ms = self._clock_ms()
                if not progress or progress != self._progress:
                    self._changed_ms = now_ms
                self._progress = progress or self._progress
                if progress or now_ms >= began_ms + TURN_MS:
                    return not progress
        except (HandOverError, OSError) as error:
            self._failure = str(error)
            self._enter(WAITING, f"POP is not drained: {error}")
        else:
            self._words[Gauge.DRAINED] = 1
            self._enter(DRAINED, f"POP is drained, {self._open} messages are open; a stop writes no records of them")
        return True

    def _enter(self, state: str, line: str) -> None:
        self._state, self._steps, self._progress = state, None, ""
        self._log_line(f"pop: {line}")

    @property
    def _open(self) -> int:
        """Messages that end by an acknowledgement or a copy. Those that no consumer has received wait for a pop."""
        counts = lib.rmq_pop_counts_of(self._windows)
        return int(counts.open - counts.returned)

    # ---- HostedService ----

    def on_request(self, request: Request) -> Answer:
        """See HostedService. Raises RequestError."""
        choice = PopDrainRequestHeader.decode(request.command.ext_fields).choice
        if choice not in pop_bodies.CHOICES:
            remark = f"choice = {choice[:32]!r} is none of {', '.join(pop_bodies.CHOICES)}"
            raise RequestError(remark, field="choice", code=ResponseCode.INVALID_PARAMETER)
        if choice == pop_bodies.RESUME:
            self._resume("an operator has taken the drain of POP back")
        elif choice != pop_bodies.LOOK:
            self._drain(is_now=choice == pop_bodies.DRAIN_NOW)
        answer = pop_bodies.PopDrain(self._state, self._open, self._progress, self._failure)
        return request.reply(body=answer.encode())

    def _drain(self, *, is_now: bool) -> None:
        self._until_ms = self._clock_ms() + LEASE_MS
        if self._state == SERVING:
            self._failure = ""
            self._enter(WAITING, f"an operator drains POP: no message is given, {self._open} are open")
        if self._state == WAITING and not self._failure and (is_now or not self._open):
            self._state = CLOSING

    def _resume(self, cause: str) -> None:
        if self._state in (WAITING, DRAINED):
            self._words[Gauge.DRAINED] = 0
            self._enter(SERVING, f"{cause}; messages are given again")
            self._on_resume()

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return self._state in (SERVING, DRAINED)

    def turn(self, now_ms: int) -> bool:
        """See HostedService."""
        if self._state == WAITING and self._clock_ms() >= self._until_ms:
            self._resume(f"no operator has asked for {LEASE_MS // 1000} s for the drain of POP")
        return False

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService. A stop goes its own way."""
