"""Decides when workers start, restart and stop: `step(event, now_ms) -> effects`, without processes.

    dormant --ActivationRequested--> starting --Serving--> serving --Exited--> waiting (back-off) --Tick--> starting ...
       ^                 |  ^                    |                  |
       |                 |  |                    +- it rests        |
       +---- it rests ---+  +--Exited five times in a row-----------+--> Finished(EXIT_CRASH_LOOP)

`TRANSITIONS` holds every pair of state and event. A worker's row (`ipc/workers.py`) gives the phase in which it stops
and whether it is optional. `ipc/supervisor.py` watches the processes, makes the events, and carries the effects out.

A worker that has served restarts at once. A worker that keeps dying soon after its start, perhaps from the same request
each time, waits longer each time. Otherwise its starts would take CPU time from the workers that serve.

A worker that its word starts ends with EXIT_RESTED when it has no work. It is dormant again; that is no death. The word
may be set again while the process ends; then the worker starts once more. The word stays set until a start clears it,
so `ActivationRequested` may be ignored in every state but dormant.

Three watches find a hung worker. An optional worker whose loop stands still is `Silent`: it is killed and replaced. A
read worker that receives nothing ends by itself with EXIT_HUNG_READER. The service manager's watchdog covers all other
workers, and restarts the broker as a whole.

A stop goes by the rows' phases. Each phase gets SIGTERM and ends before the next begins, so that all accepted requests
are answered, appended, flushed and dispatched. If a worker is down then and its work is not finished, the supervisor
starts its replacement, which finishes the work and ends. A dormant worker stays dormant, even if it is wanted. A
phase that does not end in `stop_timeout_ms` gets SIGKILL. The stop counts as unclean then (the abort marker stays).

A worker that meets a broken invariant (native/src/plane/invariant.h) restarts, as after any death. If the same line of
the sources meets such a state twice within INVARIANT_AGAIN_MS, the plane itself is broken. That holds for any worker,
an optional one too. A clean stop would work on that plane. The supervisor therefore kills all workers, and
`restart_wanted` requests that the store be reopened.

A worker that ends with EXIT_RESTART_STORE has left an order for the closed store (store/store_task.py). The supervisor
stops all workers in the same way, and `restart_wanted` requests that the store be reopened.
"""

import logging
from collections.abc import Callable, Iterable
from enum import Enum
from signal import SIGTERM

from msgspec import Struct, field

from ringmq.ipc.exit_status import (
    EXIT_CLEAN,
    EXIT_CRASH_LOOP,
    EXIT_HUNG_READER,
    EXIT_INVARIANT,
    EXIT_NOT_RESTARTABLE,
    EXIT_PACKAGE_REPLACED,
    EXIT_RESTART_STORE,
    EXIT_RESTED,
    EXIT_UNCLEAN_STOP,
)
from ringmq.ipc.workers import WORKERS, AtStop, WorkerRow, WorkerTable, is_read

BACK_OFF_FIRST_MS = 50
BACK_OFF_MAX_MS = 2_000
START_FAILURES_MAX = 5
EARLY_EXIT_MS = 1_000
EARLY_EXITS_FREE = 3
"""Deaths in a row within EARLY_EXIT_MS of the start after which the worker still restarts at once."""
CRASH_LOOP_DEATHS = 3
CRASH_LOOP_MS = 60_000
"""A worker counts as one that keeps dying after CRASH_LOOP_DEATHS deaths within this time."""
INVARIANT_AGAIN_MS = 10_000
"""If an impossible state recurs within this time, the cause is the plane, not the process that met the state."""
SILENT_MS = 20_000
"""Time without progress after which the supervisor kills and replaces an optional worker.

The service manager's watchdog covers only the other workers, because an optional worker never ends the broker.
"""
SILENT_START_MS = 60_000
"""The same limit for an optional worker that starts. Its start may read much of the store."""
NO_ROLE = 0
"""The supervisor's own number: it owns no journal."""
NOT_STARTED = 0
"""The phase while no stop is under way. Phases of a stop begin with 1 (StopPhase)."""


class Serving(Struct, frozen=True):
    """The worker reports that it serves."""

    worker: str


class Exited(Struct, frozen=True):
    """The worker's process has ended. `status`: waitpid's exit code, negative for a signal."""

    worker: str
    status: int
    line: int = 0
    """With EXIT_INVARIANT: the source line of the state."""


class ActivationRequested(Struct, frozen=True):
    """A client connects to a listener of the worker, or the worker's word is set."""

    worker: str


class Silent(Struct, frozen=True):
    """An optional worker's loop has made no progress for SILENT_MS, or its start has taken SILENT_START_MS."""

    worker: str


class Tick(Struct, frozen=True):
    """Time has passed."""


class Stop(Struct, frozen=True):
    """An operator or the service manager requests a clean stop."""


Event = Serving | Exited | ActivationRequested | Silent | Tick | Stop


class Spawn(Struct, frozen=True):
    """Start the worker's process."""

    worker: str


class Terminate(Struct, frozen=True):
    """Send SIGTERM."""

    worker: str


class Kill(Struct, frozen=True):
    """Send SIGKILL."""

    worker: str


class Log(Struct, frozen=True):
    """Write a log line with a level of `logging`."""

    text: str
    level: int = logging.WARNING


class Finished(Struct, frozen=True):
    """The supervisor exits with this status."""

    status: int


Effect = Spawn | Terminate | Kill | Log | Finished


class State(Enum):
    """State of a worker."""

    DORMANT = "dormant"
    STARTING = "starting"
    SERVING = "serving"
    WAITING = "waiting for its next start"
    ENDED = "ended"


class _Worker(Struct):
    row: WorkerRow
    state: State
    due_ms: int = 0
    """Earliest time of the next start, of a dormant worker too."""
    serving_since_ms: int = 0
    start_failures: int = 0
    early_exits: int = 0  # in a row
    idle_exits: int = 0  # in a row
    deaths: int = 0
    last_deaths_ms: tuple[int, ...] = ()

    def died(self, now_ms: int) -> int:
        """Count a death. Returns the back-off in ms."""
        self.deaths += 1
        self.last_deaths_ms = (*self.last_deaths_ms, now_ms)[-CRASH_LOOP_DEATHS:]
        if self.state is State.STARTING:
            self.start_failures += 1
            doublings = self.start_failures
        else:
            self.early_exits = self.early_exits + 1 if now_ms - self.serving_since_ms < EARLY_EXIT_MS else 0
            doublings = self.early_exits - EARLY_EXITS_FREE
        return _back_off_ms(doublings)

    def rests(self, now_ms: int) -> None:
        """The worker has ended by itself. A worker that starts again and again without work gets a back-off, too."""
        soon = self.state is State.STARTING or now_ms - self.serving_since_ms < EARLY_EXIT_MS
        self.idle_exits = self.idle_exits + 1 if soon else 0
        self.state = State.DORMANT
        self.due_ms = now_ms + _back_off_ms(self.idle_exits - EARLY_EXITS_FREE)
        self.start_failures = self.early_exits = 0

    @property
    def has_to_finish(self) -> bool:
        """True if the worker starts during a stop, to finish work before it ends."""
        at_stop = self.row.at_stop
        return at_stop is AtStop.FINISHER or (at_stop is AtStop.REPLACEMENT and self.deaths > 0)


def _back_off_ms(doublings: int) -> int:
    return min(BACK_OFF_MAX_MS, BACK_OFF_FIRST_MS << min(doublings, START_FAILURES_MAX)) if doublings > 0 else 0


class SupervisorCore(Struct):
    """The state of all workers by name."""

    names: list[str]
    stop_timeout_ms: int = 10_000
    dormant: frozenset[str] = frozenset()
    """Workers that start only when they are wanted."""
    table: WorkerTable = WORKERS
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _phase: int = NOT_STARTED
    _phase_started_ms: int = 0
    _exit_status: int = EXIT_CLEAN
    _finished: bool = False
    _impossible_ms: dict[int, int] = field(default_factory=dict)
    """Source line of an impossible state -> time when a worker last met it."""
    is_abandoned: bool = False
    """True if the plane is broken and the workers were killed."""
    replaced_only: frozenset[str] = frozenset()
    """Optional workers for which the plane has been made again once. If such a worker meets an impossible state again,
    the cause is in the store, not in the plane. The supervisor then only replaces the worker."""
    restart_wanted: bool = False
    """True if the store is to be reopened: a worker has left an order for it, or the plane is broken."""
    journal_owner: int = NO_ROLE
    """The role that owns the journal of write, as the supervisor has seen it last. It counts when a stop begins."""

    def start(self) -> list[Effect]:
        """Start every worker that is not dormant, for the first time."""
        for name in self.names:
            state = State.DORMANT if name in self.dormant else State.STARTING
            self._workers[name] = _Worker(self.table.row(name), state)
        return [Spawn(name) for name in self.names if name not in self.dormant]

    @property
    def stopping(self) -> bool:
        """True while a stop is under way."""
        return self._phase > NOT_STARTED

    @property
    def phase(self) -> int:
        """The phase of the stop that is under way, else NOT_STARTED."""
        return self._phase

    def all_serving(self) -> bool:
        """True if every worker serves or is dormant. Optional workers do not count."""
        needed = (worker for worker in self._workers.values() if not worker.row.is_optional)
        return all(worker.state in (State.SERVING, State.DORMANT) for worker in needed)

    def is_dormant(self, name: str) -> bool:
        """True if the worker has no process because it is not wanted."""
        return self._workers[name].state is State.DORMANT

    def deaths(self, name: str) -> int:
        """Deaths of the worker, without ends in a stop."""
        return self._workers[name].deaths

    def in_crash_loop(self, name: str, now_ms: int) -> bool:
        """True if the worker has died several times lately."""
        last = self._workers[name].last_deaths_ms
        return len(last) == CRASH_LOOP_DEATHS and now_ms - last[0] < CRASH_LOOP_MS

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of one event, in order."""
        if self._finished:
            return []
        match event:
            case Stop():
                return [] if self.stopping else self._next_phase(now_ms)
            case Tick():
                return self._late(now_ms) if self.stopping else self._started(self._due(now_ms))
        worker = self._workers[event.worker]
        running, stopping = TRANSITIONS[worker.state, type(event)]
        return (stopping if self.stopping else running)(self, worker, event, now_ms)

    # -- cells of TRANSITIONS ----------------------------------------------------------------------------

    def _stay(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        return []

    def _impossible(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        name = worker.row.name
        return [Log(f"{type(event).__name__} of worker {name}, which is {worker.state.value}: ignored")]

    def _wake(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        worker.state = State.WAITING  # at once, or after a back-off if it has rested soon after several starts
        return self._started(self._due(now_ms))

    def _serve(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        worker.state, worker.serving_since_ms, worker.start_failures = State.SERVING, now_ms, 0
        return []

    def _serve_in_stop(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        self._serve(worker, event, now_ms)
        its_turn = worker.has_to_finish and worker.row.stop_phase == self._phase
        return [Terminate(worker.row.name)] if its_turn else []

    def _kill(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        name = worker.row.name
        serves = worker.state is State.SERVING
        silence = "turned its loop" if serves else "come up"
        seconds = (SILENT_MS if serves else SILENT_START_MS) // 1000
        return [Log(f"worker {name} has not {silence} for {seconds} s, killing it"), Kill(name)]

    def _end(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Exited)
        row, status = worker.row, event.status
        if status == EXIT_RESTART_STORE:
            worker.state, self.restart_wanted = State.ENDED, True
            text = f"worker {row.name} asks the broker to open the store again"
            return [Log(text, logging.INFO), *self._next_phase(now_ms)]
        if status == EXIT_INVARIANT and row.name not in self.replaced_only and self._is_repeated(event.line, now_ms):
            return self._abandon(worker, now_ms)
        if status == EXIT_RESTED and row.ends_when_idle:
            worker.rests(now_ms)
            return []
        hopeless = status in EXIT_NOT_RESTARTABLE and not row.is_optional
        delay_ms = worker.died(now_ms)
        plan = _hopeless_text(status) if hopeless else _plan_text(worker, delay_ms)
        effects: list[Effect] = [Log(f"worker {row.name} {_end_text(status)}; {plan}", logging.ERROR)]
        if hopeless or (worker.start_failures >= START_FAILURES_MAX and not row.is_optional):
            self._exit_status = status if hopeless else EXIT_CRASH_LOOP
            worker.state = State.ENDED
            stop = self._next_phase(now_ms)
            return effects + (_without_answers(stop) if _is_waited_for(worker, status) else stop)
        worker.state, worker.due_ms = State.WAITING, now_ms + delay_ms
        return effects + self._started(self._due(now_ms))

    def _end_in_stop(self, worker: _Worker, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Exited)
        # A worker that has not served yet has no accepted work, so death by SIGTERM is clean.
        may_be_killed = worker.state is State.STARTING and event.status == -SIGTERM
        worker.state = State.ENDED
        effects: list[Effect] = []
        self.restart_wanted |= event.status == EXIT_RESTART_STORE
        is_clean = event.status in (EXIT_CLEAN, EXIT_RESTED, EXIT_RESTART_STORE)
        if not is_clean and not may_be_killed and not self.is_abandoned:
            self._exit_status = self._exit_status or EXIT_UNCLEAN_STOP
            text = f"worker {worker.row.name} ended with status {event.status} during the stop"
            effects.append(Log(text, logging.ERROR))
        return effects + (self._next_phase(now_ms) if self._phase_done() else [])

    # -- broken invariants ------------------------------------------------------------------------------

    def _is_repeated(self, line: int, now_ms: int) -> bool:
        last_ms = self._impossible_ms.get(line)
        self._impossible_ms[line] = now_ms
        return last_ms is not None and now_ms - last_ms < INVARIANT_AGAIN_MS

    def _abandon(self, worker: _Worker, now_ms: int) -> list[Effect]:
        """Kill all workers and end. Acknowledged messages are in the files, and a recovery finds them there. Consumer
        offsets fall back to those that control has saved last, as after a kill of all processes."""
        if worker.row.is_optional:
            self.replaced_only |= {worker.row.name}
        self.is_abandoned = self.restart_wanted = True
        self._exit_status = EXIT_UNCLEAN_STOP
        self._phase, self._phase_started_ms = self.table.last_phase, now_ms
        worker.state = State.ENDED
        text = f"worker {worker.row.name} has met the same broken invariant twice within "
        text += f"{INVARIANT_AGAIN_MS // 1000} s: all workers are killed, and the store is opened with a new plane"
        effects: list[Effect] = [Log(text, logging.CRITICAL)]
        for other in self._workers.values():
            if other.state in (State.STARTING, State.SERVING):
                effects.append(Kill(other.row.name))
            else:
                other.state = State.ENDED
        return effects if not self._phase_done() else [*effects, *self._next_phase(now_ms)]

    # -- all workers -------------------------------------------------------------------------------------

    def _due(self, now_ms: int) -> list[_Worker]:
        return [
            worker for worker in self._workers.values() if worker.state is State.WAITING and worker.due_ms <= now_ms
        ]

    def _started(self, workers: Iterable[_Worker]) -> list[Effect]:
        effects: list[Effect] = []
        for worker in workers:
            worker.state = State.STARTING
            effects.append(Spawn(worker.row.name))
        return effects

    def _late(self, now_ms: int) -> list[Effect]:
        if now_ms - self._phase_started_ms < self.stop_timeout_ms:
            return []
        self._exit_status = self._exit_status or EXIT_UNCLEAN_STOP
        self._phase_started_ms = now_ms
        late = [worker.row.name for worker in self._members() if worker.state is not State.ENDED]
        return [
            effect for name in late for effect in (Log(f"worker {name} did not stop in time, killing it"), Kill(name))
        ]

    def _members(self) -> list[_Worker]:
        return [
            worker for worker in self._workers.values() if worker.row.stop_phase == self._phase or self.is_abandoned
        ]

    def _phase_done(self) -> bool:
        return all(worker.state is State.ENDED for worker in self._members())

    def _next_phase(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if not self.stopping:  # readers wait for answers of workers that are down
            for worker in self._workers.values():
                worker.row = worker.row.beside(self.journal_owner)
            waiting = (worker for worker in self._workers.values() if worker.state is State.WAITING)
            effects = self._started([worker for worker in waiting if worker.row.at_stop is not AtStop.ENDS])
        while self._phase < self.table.last_phase:
            self._phase += 1
            self._phase_started_ms = now_ms
            for worker in self._members():
                if worker.has_to_finish and worker.state is State.STARTING:
                    continue  # it gets SIGTERM when it serves, SIGKILL when it is late
                if worker.state in (State.WAITING, State.DORMANT):
                    worker.state = State.ENDED
                elif worker.state is not State.ENDED:
                    effects.append(Terminate(worker.row.name))
            if not self._phase_done():
                return effects
        self._finished = True
        return [*effects, Finished(self._exit_status)]


_Cell = Callable[[SupervisorCore, _Worker, Event, int], list[Effect]]
_STAY, _IMPOSSIBLE = SupervisorCore._stay, SupervisorCore._impossible
TRANSITIONS: dict[tuple[State, type[Event]], tuple[_Cell, _Cell]] = {
    (State.DORMANT, ActivationRequested): (SupervisorCore._wake, _STAY),
    (State.DORMANT, Silent): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.DORMANT, Serving): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.DORMANT, Exited): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.STARTING, ActivationRequested): (_STAY, _STAY),
    (State.STARTING, Silent): (SupervisorCore._kill, _STAY),
    (State.STARTING, Serving): (SupervisorCore._serve, SupervisorCore._serve_in_stop),
    (State.STARTING, Exited): (SupervisorCore._end, SupervisorCore._end_in_stop),
    (State.SERVING, ActivationRequested): (_STAY, _STAY),
    (State.SERVING, Silent): (SupervisorCore._kill, _STAY),
    (State.SERVING, Serving): (_STAY, _STAY),
    (State.SERVING, Exited): (SupervisorCore._end, SupervisorCore._end_in_stop),
    (State.WAITING, ActivationRequested): (_STAY, _STAY),
    (State.WAITING, Silent): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.WAITING, Serving): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.WAITING, Exited): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.ENDED, ActivationRequested): (_STAY, _STAY),
    (State.ENDED, Silent): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.ENDED, Serving): (_IMPOSSIBLE, _IMPOSSIBLE),
    (State.ENDED, Exited): (_IMPOSSIBLE, _IMPOSSIBLE),
}
"""(state, event) -> the action while the broker runs, and the action during a stop. Stop and Tick are not per
worker.
"""


def _is_waited_for(worker: _Worker, status: int) -> bool:
    """True if readers would wait in a stop for answers of this worker, which never comes up again."""
    return status == EXIT_PACKAGE_REPLACED and worker.row.at_stop is AtStop.REPLACEMENT


def _without_answers(effects: list[Effect]) -> list[Effect]:
    """These effects with a kill of the readers. The stop is unclean anyway, and the broker shall serve again soon."""
    return [
        Kill(effect.worker) if isinstance(effect, Terminate) and is_read(effect.worker) else effect
        for effect in effects
    ]


def _end_text(status: int) -> str:
    if status == EXIT_HUNG_READER:
        return "received nothing for 5 s while bytes waited on its sockets"
    if status == EXIT_INVARIANT:
        return "has met a broken invariant (the line before names it)"
    if status == EXIT_PACKAGE_REPLACED:
        return "cannot be started"
    return f"ended with signal {-status}" if status < 0 else f"ended with status {status}"


def _hopeless_text(status: int) -> str:
    if status == EXIT_PACKAGE_REPLACED:
        return "the installed package was replaced, so the broker ends for a start with the new one"
    return "a restart cannot help, so the broker stops"


def _plan_text(worker: _Worker, delay_ms: int) -> str:
    when = f" in {delay_ms} ms" if delay_ms else ""
    return f"starting it again{when} (death {worker.deaths})"
