"""The loop of a service's worker: turns of its parts, sleep, rest and stop.

In a turn each part does what is due, and waits for nothing. If no part has more to do, the worker sleeps until its bell
rings or the next turn of a part is due. A worker without work ends after a while (it rests), and later work starts it
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import follows_master, is_master
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag
from ringmq.services.kit.clocks import monotonic_ms

SLEEP_MAX_MS = 1000
"""Longest sleep. A dispatch that has died may have left an arrival without its bell."""


class Part:
    """A part of a worker. The methods here are those of a part that does nothing. No call waits, but for `close`."""

    has_worked: bool | None = None
    """True if the last turn has done work: the time of rest begins with it. None if `turn` returns just that. A part
    sets it whose work may have nothing to follow at once, or which goes on at once without work."""

    def begin(self) -> None:
        """Called once, before the worker is serving."""

    def turn(self, now_ms: int) -> bool:
        """Do the work that is due. True if more may follow at once."""
        return False

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next turn is due, if no bell rings. 0: there is work now. It is asked when the bell is armed,
        so a look at all that rings the bell misses nothing."""
        return SLEEP_MAX_MS

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight, nothing waits and everything is saved, so the worker may end."""
        return True

    def close(self, *, rests: bool) -> None:
        """End the work, because the worker ends. If it `rests`, work that comes now is left to the next process."""

    def rest(self) -> None:
        """Return memory to the system behind `close`, because the worker rests."""


class ServiceLoop:
    """Runs the parts of a worker. `turn` does one round; the caller parks between rounds.

    The worker rests after `rest_after_ms` without work, unless control holds it. None: it never rests. `wait` sleeps
    in place of `Plane.wait`: it gets the longest time in ms, and may serve requests in C meanwhile (`serving.py`).
    It ends when the broker is no master any more. `follows`: its parts work on a slave, and it ends when that is over.
    """

    def __init__(
        self, plane: Plane, role: int, parts: Sequence[Part], *, rest_after_ms: int | None = None,
        wait: Callable[[int], object] | None = None, follows: bool = False,
    ) -> None:  # fmt: skip
        self._plane, self._role, self._parts = plane, role, parts
        self._has_side, self._follows = follows_master if follows else is_master, follows
        self._rest_after_ms, self._wait = rest_after_ms, wait
        self._worked_ms = 0
        """Time of the last work, or of the last look that has found some."""

    def run(self, stop: StopFlag, now_ms: Callable[[], int] = monotonic_ms) -> int:
        """Serve until the stop, until there has been no work for a while, or until the broker changes its side. Return
        the exit status.

        Askers may give up asks to a worker that does not serve (native/src/plane/asks.h), so its state is serving to
        its end.
        """
        rests, has_side = False, True
        for part in self._parts:
            part.begin()
        self._plane.role(self._role).state = STATE_SERVING
        while not stop.is_set and (has_side := self._has_side(self._plane.watermarks)):
            if self._follows:
                self._plane.stand(self._role)  # write may give the journal to ha
            if self.turn(now_ms()):
                continue
            if rests := self.may_rest(now_ms()):
                break
            self.park(now_ms())
        for part in self._parts:
            part.close(rests=rests)
        if rests:
            for part in self._parts:
                part.rest()
        if not has_side:
            self._plane.deactivate(self._role)  # its work is that of another broker now
        self._plane.role(self._role).state = STATE_STOPPING
        return EXIT_CLEAN if has_side and not rests else EXIT_RESTED

    def turn(self, now_ms: int) -> bool:
        """Do one round of work. True if more may follow at once."""
        has_more = has_worked = False
        for part in self._parts:
            goes_on = part.turn(now_ms)
            has_more |= goes_on
            has_worked |= goes_on if part.has_worked is None else part.has_worked
        self._plane.role(self._role).progress += 1
        if has_worked or not self._worked_ms:
            self._worked_ms = now_ms
        return has_more

    def park(self, now_ms: int) -> None:
        """Sleep until the bell rings or something is due."""
        sleep(self._plane, self._role, lambda: min(part.sleep_ms(now_ms) for part in self._parts), self._wait)

    def may_rest(self, now_ms: int) -> bool:
        """True if there has been no work for a while, there is none now, and control does not hold the worker, so the
        process may end. Later work starts the worker again."""
        if self._rest_after_ms is None or now_ms - self._worked_ms < self._rest_after_ms:
            return False
        self._plane.deactivate(self._role)
        if not all(part.is_idle for part in self._parts):
            self._worked_ms = now_ms
            return False
        return not self._plane.is_held(self._role, now_ms)


def sleep(plane: Plane, role: int, sleep_ms: Callable[[], int], wait: Callable[[int], object] | None = None) -> None:
    """Sleep until the bell of `role` rings. `sleep_ms` is asked when the bell is armed: the longest sleep, 0 = none.
    `wait` sleeps in place of `Plane.wait`, and disarms the bell."""
    plane.arm(role)
    if (timeout_ms := sleep_ms()) > 0:
        wait(timeout_ms) if wait is not None else plane.wait(role, timeout_ms)
    else:
        plane.disarm(role)
