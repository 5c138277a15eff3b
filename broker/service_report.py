"""Notifications to the service manager while the broker runs: readiness, status, signs of life of the workers.

Ready means more than "every worker serves". The recovered records can be read, the name servers have been called, and
the broker has answered a request of its own. Signs of life follow the slowest worker that the broker needs. They stop
when that worker's loop has not turned for a quarter of the watchdog's time. The manager ends the broker when the whole
time is over. The supervisor replaces optional workers that make no progress.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.control_report import read_report
from ringmq.broker.health import Heartbeats, Readiness, readiness
from ringmq.broker.self_probe import ProbeOutcome, SelfProbe
from ringmq.ipc.notify import ServiceManager
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import is_master
from ringmq.ipc.worker import STATE_SERVING
from ringmq.ipc.worker_blocks import workers
from ringmq.native import lib

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1000
SIGNS_PER_LIMIT = 4
REASONS_SHOWN = 4
DISPATCH_LOOK_MS = 5000
"""Time between two checks of dispatch's progress. It is far shorter than the time that one sign of progress
requests.
"""
NAME_SERVERS_WAIT_MS = 3000
"""Time limit for a name server that neither accepts nor refuses."""
START_GRACE_MS = 60_000
"""Additional time of a starting worker: it opens files, and processes start slowly on a busy machine."""


class ServiceReport:
    """The notifications. The main process owns them over all openings of its store."""

    def __init__(self, manager: ServiceManager, config: BrokerConfig, address: str, place: str) -> None:
        """`address`: target of the broker's request to itself. `place`: kind and address of the broker, for the status
        line."""
        self._manager = manager
        self._config = config
        self._address = address
        self._place = place
        self._probe: SelfProbe | None = None
        self._failed: ProbeOutcome | None = None
        self._ready = False
        self._serving_ms: int | None = None
        self._stopping = False
        self._look_ms = 0
        self._sign_ms = 0
        self._dispatched = -1
        self._dispatched_ms = 0
        self._told: frozenset[str] = frozenset()
        self._beats = Heartbeats()
        self._plane: Plane | None = None

    def watch(self, plane: Plane) -> None:
        """The store has been opened or reopened."""
        self._plane = plane
        self._beats = Heartbeats()
        self._look_ms = 0

    def recovering(self, what: str) -> None:
        """Set the status to the current step of the recovery."""
        self._manager.status(f"recovering the store: {what}")

    def extended_timeouts(self) -> AbstractContextManager[None]:
        """Extend the limits during the opening of the store, which may take minutes."""
        return self._manager.extended_timeouts()

    def tick(self, now_ms: int, *, serving: bool, stopping: bool) -> None:
        """Called several times a second. `serving`: every worker serves, and all recovered records can be read."""
        if not self._manager.is_there or self._plane is None:
            return
        if stopping:
            if not self._stopping:
                self._stopping = True
                self._manager.stopping("stopping: accepted requests are appended, flushed and dispatched")
            if now_ms - self._sign_ms >= LOOK_EVERY_MS:
                self._sign_ms = now_ms
                self._manager.alive()  # workers that hang now are killed by the supervisor
            return
        self._give_sign(now_ms)
        if not self._ready:
            self._ask_for_time(now_ms)
            self._get_ready(now_ms, serving=serving)
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_EVERY_MS
            self._manager.status(self._status())

    def _ask_for_time(self, now_ms: int) -> None:
        """Extend the start-up limit. Dispatch reads the recovered records again, which can take long for a long log."""
        assert self._plane is not None
        dispatched = int(self._plane.watermarks.dispatched_offset)
        if dispatched == self._dispatched or now_ms - self._dispatched_ms < DISPATCH_LOOK_MS:
            return
        self._dispatched, self._dispatched_ms = dispatched, now_ms
        if dispatched < self._plane.header.recovered_end:
            self._manager.extend_timeout()

    def _get_ready(self, now_ms: int, *, serving: bool) -> None:
        assert self._plane is not None
        if not serving:
            return
        if self._serving_ms is None:
            self._serving_ms = now_ms
        if not self._name_servers_tried() and now_ms - self._serving_ms < NAME_SERVERS_WAIT_MS:
            return
        if self._probe is None:
            if self._failed is None or now_ms >= self._look_ms:
                self._probe = SelfProbe(self._address, may_send=is_master(self._plane.watermarks))
            return
        outcome = self._probe.outcome
        if outcome is None:
            return
        self._probe = None
        if not outcome.is_served and is_full(self._plane):
            outcome = ProbeOutcome(True, "the broker accepts no more connections")
        if outcome.is_served:
            self._ready = True
            self._manager.ready(self._status())
            log.info("ready for clients%s", f", but {outcome.text}" if outcome.text else "")
            return
        if self._failed is None or self._failed.text != outcome.text:
            log.warning("not ready: %s", outcome.text)
        self._failed = outcome

    def _name_servers_tried(self) -> bool:
        """True if control has reported the outcome of the first attempt to register."""
        assert self._plane is not None
        if not self._config.namesrv_addr:
            return True
        report = read_report(self._plane.name)
        return report is not None and all(one.registered or one.failures for one in report.name_servers)

    def _status(self) -> str:
        assert self._plane is not None
        text = status_text(self._place, readiness(self._plane, self._config), is_ready=self._ready)
        return f"{text}; {self._failed.text}" if self._failed is not None and not self._ready else text

    def _give_sign(self, now_ms: int) -> None:
        assert self._plane is not None
        limit_ms = self._manager.watchdog_ms
        self._beats.observe(self._plane, now_ms)
        if not limit_ms:
            return
        needed = [worker for worker in workers(self._plane) if worker.pid and not worker.is_optional]
        grace = {worker.name: 0 if worker.state == STATE_SERVING else START_GRACE_MS for worker in needed}
        seen = self._beats.ages_ms(now_ms)
        ages = {name: max(0, seen[name] - grace_ms) for name, grace_ms in grace.items()}
        silent = frozenset(name for name, age in ages.items() if age >= limit_ms // 2)
        for name in sorted(silent - self._told):
            log.error("%s", silence_text(name, ages[name], limit_ms))
        self._told = silent
        if is_sign_due(ages, now_ms - self._sign_ms, limit_ms):
            self._sign_ms = now_ms
            self._manager.alive()


def is_full(plane: Plane) -> bool:
    """True if no connection is accepted: the broker is near its memory limit, or a reader has all of its connections.

    Clients may take the last connections before the broker's request to itself.
    """
    if plane.header.memory.level:
        return True
    settings = plane.header.settings
    limit = min(int(settings.connections_max), int(settings.host_connections_max))
    counts = (int(plane.role(reader.role).counters[lib.RMQ_READ_CONNECTIONS]) for reader in plane.readers)
    return any(count >= limit for count in counts)


def is_sign_due(ages_ms: Mapping[str, int], since_sign_ms: int, limit_ms: int) -> bool:
    """True if the watchdog is to be fed: the slowest running worker has turned within a quarter of its limit."""
    part_ms = limit_ms // SIGNS_PER_LIMIT
    return since_sign_ms >= part_ms // 2 and max(ages_ms.values(), default=0) < part_ms


def silence_text(name: str, age_ms: int, limit_ms: int) -> str:
    """The log line before the watchdog ends the broker."""
    return (
        f"worker {name} has not turned its loop for {age_ms / 1000:.0f} s; "
        f"the service manager ends the broker after about {limit_ms / 1000:.0f} s"
    )


def status_text(place: str, state: Readiness, *, is_ready: bool) -> str:
    """The line of `systemctl status`: state and problems."""
    if not state.serving:
        word = "starting" if not is_ready else "not all workers serve"
    elif not is_ready:
        word = "probing itself"
    else:
        word = "serving" if state.writable else "serving reads"
    reasons = state.reasons[:REASONS_SHOWN]
    more = len(state.reasons) - len(reasons)
    return "; ".join([f"{word}: {place}", *reasons, *([f"and {more} more"] if more > 0 else [])])
