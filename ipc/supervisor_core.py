"""Decides when workers start, restart and stop: `step(event, now_ms) -> effects`, no processes in here.

    down --Spawn--> starting --Serving--> serving --Exited--> waiting (back-off) --Tick--> starting ...
                     ^  |                                        |
    dormant --Wanted-+  +--Exited five times in a row------------+--> Finished(EXIT_WORKER_KEEPS_DYING)

Who served is started again at once. Only one that keeps dying soon after it came up, of the same request perhaps, waits
longer each time: it must not take the processors from those that serve.

Stop goes in phases (readers, control, write or a slave's ha, flush, dispatch, a master's ha, name server): each phase
gets SIGTERM and ends before the next begins, so that what was taken in is answered, appended, flushed and dispatched.
Who is down then and has an unfinished predecessor is started for that: it comes up, finishes its work and ends.
A phase that does not end in `stop_timeout_ms` gets SIGKILL and the stop counts as unclean (the abort marker stays).

A worker that ends with EXIT_RESTART_STORE has left an order for the closed store (store/store_order.py): everybody is
stopped in the same way, and `restart_wanted` says that the store is to be opened again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from signal import SIGTERM

from ringmq.ipc.exit_status import (
    EXIT_CLEAN,
    EXIT_DEAF_READER,
    EXIT_NOT_RESTARTABLE,
    EXIT_RESTART_STORE,
    EXIT_UNCLEAN_STOP,
    EXIT_WORKER_KEEPS_DYING,
)

BACK_OFF_FIRST_MS = 50
BACK_OFF_MAX_MS = 2_000
START_FAILURES_MAX = 5
SOON_MS = 1_000
SOON_DEATHS_FREE = 3
"""So many deaths within SOON_MS of coming up are followed by a start at once."""
LAST_PHASE = 6
OPTIONAL = ("metrics",)
"""Workers whose death, however often, does not end the broker."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The worker says that it serves."""

    worker: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The worker's process ended; `status` as waitpid's exit code, negative for a signal."""

    worker: str
    status: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody knocks at a listener of the worker, which may be dormant."""

    worker: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Someone wants a clean stop."""


Event = Serving | Exited | Wanted | Tick | Stop


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the worker's process."""

    worker: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send SIGTERM."""

    worker: str


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL."""

    worker: str


@dataclass(frozen=True, slots=True)
class Log:
    """Tell the operator."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """All is over; the supervisor exits with this status."""

    status: int


Effect = Spawn | Terminate | Kill | Log | Finished


@dataclass(slots=True)
class _Worker:
    state: str = "down"  # down, dormant, starting, serving, waiting, ended
    due_ms: int = 0
    serving_since_ms: int = 0
    start_failures: int = 0
    soon_deaths: int = 0  # in a row
    deaths: int = 0

    def died(self, now_ms: int) -> int:
        """Count it; returns the back-off in ms."""
        self.deaths += 1
        if self.state == "starting":
            self.start_failures += 1
            doublings = self.start_failures
        else:
            self.soon_deaths = self.soon_deaths + 1 if now_ms - self.serving_since_ms < SOON_MS else 0
            doublings = self.soon_deaths - SOON_DEATHS_FREE
        return min(BACK_OFF_MAX_MS, BACK_OFF_FIRST_MS << min(doublings, START_FAILURES_MAX)) if doublings > 0 else 0


FINISHERS = ("flush", "dispatch")
"""A clean stop needs them, also one that is just being started: they finish what the others have left."""
HEIRS = (*FINISHERS, "write", "control", "ha-slave")
"""Who follows a dead one comes up before it ends: nobody else finishes a batch begun or saves what was committed."""


def stop_phase(worker: str) -> int:
    """Order of stopping: what takes work in ends first."""
    phases = {"control": 1, "write": 2, "ha-slave": 2, "flush": 3, "dispatch": 4, "ha": 5, "namesrv": 6}
    return phases.get(worker, 0)


@dataclass(slots=True)
class SupervisorCore:
    """State of all workers by name."""

    names: list[str]
    stop_timeout_ms: int = 10_000
    dormant: frozenset[str] = frozenset()
    """Workers that start only when they are wanted."""
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _phase: int = -1
    _phase_started_ms: int = 0
    _exit_status: int = EXIT_CLEAN
    _finished: bool = False
    restart_wanted: bool = False
    """A worker has left an order for the closed store."""

    def start(self) -> list[Effect]:
        """First start of everybody who is not dormant."""
        for name in self.names:
            self._workers[name] = _Worker("dormant" if name in self.dormant else "starting")
        return [Spawn(name) for name in self.names if name not in self.dormant]

    @property
    def stopping(self) -> bool:
        """A stop is under way."""
        return self._phase >= 0

    def all_serving(self) -> bool:
        """Every worker serves, or has not been wanted yet."""
        needed = (worker for name, worker in self._workers.items() if name not in OPTIONAL)
        return all(worker.state in ("serving", "dormant") for worker in needed)

    def is_dormant(self, name: str) -> bool:
        """The worker has not been wanted yet."""
        return self._workers[name].state == "dormant"

    def deaths(self, name: str) -> int:
        """How often the worker died without being asked to."""
        return self._workers[name].deaths

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event, return what is to be done, in order."""
        if self._finished:
            return []
        match event:
            case Serving(worker=name):
                if self._workers[name].state == "starting":
                    self._workers[name].state = "serving"
                    self._workers[name].serving_since_ms = now_ms
                    self._workers[name].start_failures = 0
                    if self.stopping and self._has_to_finish(name) and stop_phase(name) == self._phase:
                        return [Terminate(name)]
                return []
            case Exited(worker=name, status=status):
                return self._exited(name, status, now_ms)
            case Wanted(worker=name):
                if self.stopping or not self.is_dormant(name):
                    return []
                self._workers[name] = _Worker("starting")
                return [Spawn(name)]
            case Stop():
                return [] if self.stopping else self._next_phase(now_ms)
            case Tick():
                return self._tick(now_ms)

    def _exited(self, name: str, status: int, now_ms: int) -> list[Effect]:
        worker = self._workers[name]
        failed_start = worker.state == "starting"
        if self.stopping:
            worker.state = "ended"
            # A worker that had not come up yet had taken nothing in: SIGTERM may end it in any way.
            told: list[Effect] = []
            self.restart_wanted |= status == EXIT_RESTART_STORE
            if status not in (EXIT_CLEAN, EXIT_RESTART_STORE) and not (failed_start and status == -SIGTERM):
                self._exit_status = self._exit_status or EXIT_UNCLEAN_STOP
                told.append(Log(f"worker {name} ended with status {status} while stopping"))
            return told + (self._next_phase(now_ms) if self._phase_done() else [])
        if status == EXIT_RESTART_STORE:
            worker.state, self.restart_wanted = "ended", True
            return [Log(f"worker {name} asks for the store to be opened again"), *self._next_phase(now_ms)]
        delay_ms = worker.died(now_ms)
        effects: list[Effect] = [Log(f"worker {name} {_end_text(status)}; {_plan_text(worker, status, delay_ms)}")]
        hopeless = status in EXIT_NOT_RESTARTABLE
        if name not in OPTIONAL and (hopeless or worker.start_failures >= START_FAILURES_MAX):
            self._exit_status = status if hopeless else EXIT_WORKER_KEEPS_DYING
            worker.state = "ended"
            return effects + self._next_phase(now_ms)
        worker.state, worker.due_ms = "waiting", now_ms + delay_ms
        return effects + self._tick(now_ms)

    def _tick(self, now_ms: int) -> list[Effect]:
        if self.stopping:
            if now_ms - self._phase_started_ms < self.stop_timeout_ms:
                return []
            self._exit_status = self._exit_status or EXIT_UNCLEAN_STOP
            self._phase_started_ms = now_ms
            late = [name for name in self._members() if self._workers[name].state != "ended"]
            return [
                effect
                for name in late
                for effect in (Log(f"worker {name} did not stop in time, killing it"), Kill(name))
            ]
        due = [name for name, w in self._workers.items() if w.state == "waiting" and w.due_ms <= now_ms]
        return self._started(due)

    def _started(self, names: Iterable[str]) -> list[Effect]:
        effects: list[Effect] = []
        for name in names:
            self._workers[name].state = "starting"
            effects.append(Spawn(name))
        return effects

    def _members(self) -> list[str]:
        return [name for name in self._workers if stop_phase(name) == self._phase]

    def _phase_done(self) -> bool:
        return all(self._workers[name].state == "ended" for name in self._members())

    def _has_to_finish(self, name: str) -> bool:
        return name in FINISHERS or (name in HEIRS and self._workers[name].deaths > 0)

    def _next_phase(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if not self.stopping:  # readers wait for answers of who is down
            effects = self._started(name for name, w in self._workers.items() if w.state == "waiting" and name in HEIRS)
        while self._phase < LAST_PHASE:
            self._phase += 1
            self._phase_started_ms = now_ms
            for name in self._members():
                worker = self._workers[name]
                if self._has_to_finish(name) and worker.state == "starting":
                    continue  # it is told to end when it serves, or killed when it is late
                if worker.state in ("waiting", "down", "dormant"):
                    worker.state = "ended"
                elif worker.state != "ended":
                    effects.append(Terminate(name))
            if not self._phase_done():
                return effects
        self._finished = True
        return [*effects, Finished(self._exit_status)]


def _end_text(status: int) -> str:
    if status == EXIT_DEAF_READER:
        return "received nothing for 5 s while bytes waited on its sockets"
    return f"ended with signal {-status}" if status < 0 else f"ended with status {status}"


def _plan_text(worker: _Worker, status: int, delay_ms: int) -> str:
    if status in EXIT_NOT_RESTARTABLE:
        return "starting it again cannot help, the broker stops"
    when = f" in {delay_ms} ms" if delay_ms else ""
    return f"starting it again{when} (death {worker.deaths})"
