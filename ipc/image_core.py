"""Decides when the image of the workers is made, used and replaced: `step(event, now_ms) -> effects`, without
processes.

The image is a process that has imported what workers need, and forks them (ipc/image_process.py). `TRANSITIONS` holds
every pair of a state and an event. docs/state-machines.md draws it.

A worker that is wanted while there is no image is started by exec, in the way of a debugger. So the broker needs the
image for speed alone. Only at the broker's start, while the first image loads, do workers wait for it: an exec would
load the same modules once more for each of them.

Forked workers share the layout of their memory and the stack canary. A death by SIGSEGV, SIGBUS, SIGILL, SIGABRT or by
a broken invariant may be a failed attack. One more worker comes from that image, so that the broker serves again soon.
Then the image is made anew by exec, and the next worker has another layout.

If the package was replaced under a running broker, workers still come from the image of the old build. When that image
has died, there is no other one of that build. A worker of the new build cannot be trusted with the shared memory of the
old one. So the next death of a worker ends the broker, and its new start runs the new build.

An image that does not load or answer in time is killed, and the workers that wait for it are started by exec. So a
start takes longer then, but does not fail. Its unanswered orders are void, even if it has forked the worker: a forked
worker waits until the supervisor has heard of it (ipc/image.py). So no worker is started twice. An image that only
waits for a CPU or a disk gets BUSY_FACTOR times as long: on a busy machine an exec would take longer than the fork.
"""

import logging
from enum import Enum
from signal import SIGABRT, SIGBUS, SIGILL, SIGSEGV

from msgspec import Struct, field

from ringmq.ipc.exit_status import EXIT_INVARIANT
from ringmq.ipc.transitions import Cell, Table, ignored, transitions

LOAD_MS = 20_000
"""Time for an image to load its modules, perhaps from a cold disk."""
ANSWER_MS = 2_000
"""Time for a loaded image to answer an order. A fork takes a millisecond."""
BUSY_FACTOR = 5
"""An image that waits for a CPU or a disk has so many times LOAD_MS and ANSWER_MS."""
LONG_LIFE_MS = 60_000
"""An image that lived so long is made again at once. One that died earlier is made again after a back-off."""
BACK_OFF_FIRST_MS, BACK_OFF_MAX_MS = 1_000, 64_000
CRASHES = frozenset({-SIGSEGV, -SIGBUS, -SIGILL, -SIGABRT, EXIT_INVARIANT})
"""Exit codes of a worker that may have been attacked. Negative: ended by this signal."""


class Wanted(Struct, frozen=True):
    """A process is wanted for the worker."""

    worker: str
    may_exec_new: bool = True
    """True if its process may run another build than the broker: it has not died, or the broker runs without it."""


class Loaded(Struct, frozen=True):
    """The image has loaded its modules, or later ones. `problem`: why no image can be used in this process, or
    empty."""

    problem: str = ""
    is_replaced: bool = False
    """True if the problem is that the image is of another build: the package was replaced."""


class Answered(Struct, frozen=True):
    """The image has answered the order for this worker: it has forked, or refused."""

    worker: str
    can_exec: bool = False
    """True if it has refused: it cannot fork, or the package was replaced and it would have to load new modules beside
    its old ones."""


class Cancelled(Struct, frozen=True):
    """The order for this worker is void. An answer may still come."""

    worker: str


class Crashed(Struct, frozen=True):
    """A worker has ended with one of CRASHES."""


class Died(Struct, frozen=True):
    """The image's process has ended, or it takes no orders. `cause` ends the log line."""

    cause: str


class Tick(Struct, frozen=True):
    """Time has passed. `may_make`: the broker is not being stopped."""

    may_make: bool = True
    is_busy: bool = False
    """True if the image could run, but waits for a CPU or a disk. Needed only if the image is overdue."""


Event = Wanted | Loaded | Answered | Cancelled | Crashed | Died | Tick
EVENTS = Wanted, Loaded, Answered, Cancelled, Crashed, Died, Tick


class Make(Struct, frozen=True):
    """Make an image by exec."""


class End(Struct, frozen=True):
    """Kill the image. What it has not answered is void."""


class Order(Struct, frozen=True):
    """Have the image fork this worker."""

    worker: str


class Exec(Struct, frozen=True):
    """Start this worker by exec."""

    worker: str


class Refuse(Struct, frozen=True):
    """Start no process for this worker. The main process has to start anew, with the new build."""

    worker: str


class Log(Struct, frozen=True):
    """Write a log line with a level of `logging`."""

    text: str
    level: int = logging.WARNING


Effect = Make | End | Order | Exec | Refuse | Log


class State(Enum):
    """State of the image."""

    FIRST = "the first one is loading, workers wait for it"
    LOADING = "a later one is loading"
    READY = "ready"
    WORN = "a worker of it has crashed: it forks one more"
    RETIRING = "it takes no more orders"
    ABSENT = "absent"
    OFF = "no image can be used"
    REPLACED = "an image would be of another build"


class ImageCore(Struct):
    """The state of the image, and the workers that wait for it."""

    state: State = State.FIRST
    since_ms: int = 0
    """Time of the last start of an image."""
    _due_ms: int = 0
    """Earliest time of the next image."""
    _short_lives: int = 0  # in a row
    _waiting: list[str] = field(default_factory=list)
    _ordered_ms: dict[str, int] = field(default_factory=dict)
    """Worker -> time of its unanswered order."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of one event, in order."""
        return list(TRANSITIONS[self.state, type(event)].act(self, event, now_ms))

    # -- cells of TRANSITIONS ----------------------------------------------------------------------------

    def _wait(self, event: Wanted, now_ms: int) -> list[Effect]:
        self._waiting.append(event.worker)
        return []

    def _exec(self, event: Wanted, now_ms: int) -> list[Effect]:
        return [Exec(event.worker)]

    def _exec_new(self, event: Wanted, now_ms: int) -> list[Effect]:
        return [Exec(event.worker) if event.may_exec_new else Refuse(event.worker)]

    def _order(self, event: Wanted, now_ms: int) -> list[Effect]:
        self._ordered_ms[event.worker] = now_ms
        return [Order(event.worker)]

    def _order_last(self, event: Wanted, now_ms: int) -> list[Effect]:
        self.state = State.RETIRING
        return self._order(event, now_ms)

    def _loaded(self, event: Loaded, now_ms: int) -> list[Effect]:
        if event.problem:
            self.state = State.REPLACED if event.is_replaced else State.OFF
            text = f"workers are started by exec, which takes longer: {event.problem}"
            if event.is_replaced:
                text = f"{event.problem}: the next death of a worker ends the broker; restart it to run the new one"
            return [Log(text), End(), *self._instead()]
        self.state = State.READY
        waiting, self._waiting = self._waiting, []
        self._ordered_ms = dict.fromkeys(waiting, now_ms)
        return [Order(worker) for worker in waiting]

    def _loaded_later(self, event: Loaded, now_ms: int) -> list[Effect]:
        return self._loaded(event, now_ms) if event.problem else []

    def _answered(self, event: Answered, now_ms: int) -> list[Effect]:
        self._ordered_ms.pop(event.worker, None)
        return [Exec(event.worker)] if event.can_exec else []

    def _cancel(self, event: Cancelled, now_ms: int) -> list[Effect]:
        self._ordered_ms.pop(event.worker, None)
        self._waiting = [name for name in self._waiting if name != event.worker]
        return []

    def _wear(self, event: Crashed, now_ms: int) -> list[Effect]:
        self.state = State.WORN
        return []

    def _died(self, event: Died, now_ms: int) -> list[Effect]:
        self._short_lives = 0 if now_ms - self.since_ms >= LONG_LIFE_MS else self._short_lives + 1
        doublings = self._short_lives - 2
        delay_ms = min(BACK_OFF_MAX_MS, BACK_OFF_FIRST_MS << min(doublings, 16)) if doublings >= 0 else 0
        self.state, self._due_ms = State.ABSENT, now_ms + delay_ms
        plan = f"another one is made in {delay_ms // 1000} s" if delay_ms else "another one is made"
        text = f"the image of the workers {event.cause}; {plan}, running workers go on"
        return [Log(text), End(), *self._instead()]

    def _watch(self, event: Tick, now_ms: int) -> list[Effect]:
        cause = self._overdue(now_ms, BUSY_FACTOR if event.is_busy else 1)
        return self._died(Died(cause), now_ms) if cause else []

    def _watch_or_renew(self, event: Tick, now_ms: int) -> list[Effect]:
        if effects := self._watch(event, now_ms):
            return effects
        return self._renew(now_ms) if event.may_make and not self._ordered_ms else []

    def _make_when_due(self, event: Tick, now_ms: int) -> list[Effect]:
        return self._make(now_ms) if event.may_make and now_ms >= self._due_ms else []

    # -- helpers -----------------------------------------------------------------------------------------

    def is_overdue(self, now_ms: int) -> bool:
        """True if the image has not loaded, or not answered, within its limit."""
        return bool(self._overdue(now_ms, 1))

    def _overdue(self, now_ms: int, factor: int) -> str:
        """The cause of giving the image up, if it has so many times its limit. Empty if there is none."""
        load_ms, answer_ms = factor * LOAD_MS, factor * ANSWER_MS
        if self.state in (State.FIRST, State.LOADING) and now_ms - self.since_ms >= load_ms:
            return f"was not loaded within {load_ms // 1000} s"
        if any(now_ms - ordered_ms >= answer_ms for ordered_ms in self._ordered_ms.values()):
            return f"has not answered for {answer_ms // 1000} s"
        return ""

    def _make(self, now_ms: int) -> list[Effect]:
        self.state, self.since_ms = State.LOADING, now_ms
        return [Make()]

    def _renew(self, now_ms: int) -> list[Effect]:
        text = "the image of the workers is made anew, because a worker has crashed"
        return [Log(text, logging.INFO), End(), *self._make(now_ms)]

    def _instead(self) -> list[Effect]:
        """Start by exec what the image has not started."""
        names = [*self._waiting, *self._ordered_ms]
        self._waiting, self._ordered_ms = [], {}
        return [Exec(worker) for worker in names]


_FIRST, _LOADING, _READY, _WORN, _RETIRING, _ABSENT, _OFF, _REPLACED = State
_LIVES = _READY, _WORN, _RETIRING
_UNUSABLE = _OFF, _REPLACED
_NONE = ignored("there is no image")
TRANSITIONS: Table = transitions(
    (Wanted, _FIRST, Cell(ImageCore._wait, "the worker waits for the image")),
    (Wanted, (_LOADING, _RETIRING, _ABSENT, _OFF), Cell(ImageCore._exec, "starts the worker by exec")),
    (Wanted, _READY, Cell(ImageCore._order, "orders a fork")),
    (Wanted, _WORN, Cell(ImageCore._order_last, "orders the last fork", (_RETIRING,))),
    (Wanted, _REPLACED, Cell(ImageCore._exec_new, "starts the worker by exec, if it may be of another build")),
    (
        Loaded,
        (_FIRST, _LOADING),
        Cell(ImageCore._loaded, "orders forks, or ends an image of no use", (_READY, *_UNUSABLE)),
    ),
    (Loaded, _LIVES, Cell(ImageCore._loaded_later, "ends an image of no use", _UNUSABLE)),
    (Loaded, (_ABSENT, *_UNUSABLE), _NONE),
    (Answered, _LIVES, Cell(ImageCore._answered, "starts by exec what cannot be forked")),
    (Answered, (_FIRST, _LOADING), ignored("this image has no order yet")),
    (Answered, (_ABSENT, *_UNUSABLE), _NONE),
    (Cancelled, tuple(State), Cell(ImageCore._cancel, "forgets the order")),
    (Crashed, _READY, Cell(ImageCore._wear, "forks one more worker", (_WORN,))),
    (Crashed, (_FIRST, _LOADING), ignored("no worker of this image runs yet")),
    (Crashed, (_WORN, _RETIRING), ignored("the image is renewed already")),
    (Crashed, (_ABSENT, *_UNUSABLE), _NONE),
    (Died, (_FIRST, _LOADING, *_LIVES), Cell(ImageCore._died, "starts by exec what waits", (_ABSENT,))),
    (Died, (_ABSENT, *_UNUSABLE), _NONE),
    (Tick, (_FIRST, _LOADING, _READY, _WORN), Cell(ImageCore._watch, "ends an image that hangs", (_ABSENT,))),
    (
        Tick,
        _RETIRING,
        Cell(ImageCore._watch_or_renew, "makes another one; ends an image that hangs", (_LOADING, _ABSENT)),
    ),
    (Tick, _ABSENT, Cell(ImageCore._make_when_due, "makes one, when it is due", (_LOADING,))),
    (Tick, _UNUSABLE, _NONE),
)
