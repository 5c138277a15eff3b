"""The order of snapshots of POP's memory, without IO.

A snapshot begins once a second while pages change. A thread writes it while the worker goes on. A write or sync that
failed is never tried again: the kernel may have forgotten pages that are not on disk.

    RESTS --Due--> MEASURES --Measured--> TAKES --AllTaken--> WRITES --OnDisk--> RESTS
                                          TAKES --Broken--> RESTS
    MEASURES, TAKES, WRITES --Failed--> FAILED
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from ringmq.ipc.transitions import Cell, Table, ignored, impossible, transitions

INTERVAL_MS = 1000
"""Time between the beginnings of two snapshots. A power cut takes what was done since the last one."""


class State(Enum):
    """The step of the snapshot under way."""

    RESTS = "no snapshot is under way"
    MEASURES = "the thread computes checksums of the log's tail"
    TAKES = "the worker copies pages out, the thread writes them"
    WRITES = "all pages are taken; the thread syncs the journal and writes the image"
    FAILED = "a snapshot could not be written, and POP refuses its requests"


class Due(Struct, frozen=True):
    """Pages have changed, and it is time."""


class Measured(Struct, frozen=True):
    """The checksums are known."""


class AllTaken(Struct, frozen=True):
    """The thread has every page."""


class Broken(Struct, frozen=True):
    """There was no memory for the copy of a page, or too many copies wait for the disk."""


class OnDisk(Struct, frozen=True):
    """The image has the snapshot."""


class Failed(Struct, frozen=True):
    """The thread could not read, write or sync."""

    cause: str
    errno: int


class Measure(Struct, frozen=True):
    """Let the thread compute the checksums."""


class Begin(Struct, frozen=True):
    """Note the moment, and start to take pages."""


class Finish(Struct, frozen=True):
    """Let the thread end the journal and write the image."""


class Saved(Struct, frozen=True):
    """No page of it has to be in the next snapshot."""


class GiveUp(Struct, frozen=True):
    """Forget the pages that were taken. The next snapshot has them."""


class Refuse(Struct, frozen=True):
    """Refuse requests from now on."""

    errno: int


EVENTS = (Due, Measured, AllTaken, Broken, OnDisk, Failed)
Event = Due | Measured | AllTaken | Broken | OnDisk | Failed
Effect = Measure | Begin | Finish | Saved | GiveUp | Refuse


class SnapshotCore:
    """The state. Times are milliseconds of a monotonic clock."""

    def __init__(self, failure: str = "") -> None:
        self.state = State.FAILED if failure else State.RESTS
        self.failure = failure
        """The reason why there are no snapshots any more, else ""."""
        self.next_ms = 0
        """The next snapshot begins no sooner."""

    def step(self, event: Event, now_ms: int) -> Sequence[Effect]:
        """Take an event, return the effects."""
        return TRANSITIONS[self.state, type(event)].act(self, event, now_ms)

    def measure(self, event: Due, now_ms: int) -> Sequence[Effect]:
        """Begin, if a second is over."""
        if now_ms < self.next_ms:
            return []
        self.state, self.next_ms = State.MEASURES, now_ms + INTERVAL_MS
        return [Measure()]

    def begin(self, event: Measured, now_ms: int) -> Sequence[Effect]:
        """Note the moment."""
        self.state = State.TAKES
        return [Begin()]

    def finish(self, event: AllTaken, now_ms: int) -> Sequence[Effect]:
        """Let the thread go on alone."""
        self.state = State.WRITES
        return [Finish()]

    def give_up(self, event: Broken, now_ms: int) -> Sequence[Effect]:
        """Begin anew a second after the beginning."""
        self.state = State.RESTS
        return [GiveUp()]

    def rest(self, event: OnDisk, now_ms: int) -> Sequence[Effect]:
        """Wait for changes."""
        self.state = State.RESTS
        return [Saved()]

    def refuse(self, event: Failed, now_ms: int) -> Sequence[Effect]:
        """End all snapshots."""
        self.state, self.failure = State.FAILED, event.cause
        return [GiveUp(), Refuse(event.errno)]


_IDLE = impossible("the thread has nothing to do")
TRANSITIONS: Table = transitions(
    (Due, State.RESTS, Cell(SnapshotCore.measure, "a second after the last beginning", (State.MEASURES,))),
    (Due, (State.MEASURES, State.TAKES, State.WRITES), ignored("one snapshot is under way at a time")),
    (Measured, State.MEASURES, Cell(SnapshotCore.begin, "notes the moment", (State.TAKES,))),
    (Measured, (State.RESTS, State.TAKES, State.WRITES, State.FAILED), _IDLE),
    (AllTaken, State.TAKES, Cell(SnapshotCore.finish, "the thread goes on alone", (State.WRITES,))),
    (AllTaken, (State.RESTS, State.MEASURES, State.WRITES, State.FAILED), impossible("no page is taken")),
    (Broken, State.TAKES, Cell(SnapshotCore.give_up, "the next snapshot has its pages, too", (State.RESTS,))),
    (Broken, (State.RESTS, State.MEASURES, State.WRITES, State.FAILED), impossible("no page is taken")),
    (OnDisk, State.WRITES, Cell(SnapshotCore.rest, "its pages are saved", (State.RESTS,))),
    (OnDisk, (State.RESTS, State.MEASURES, State.TAKES, State.FAILED), _IDLE),
    (
        Failed, (State.MEASURES, State.TAKES, State.WRITES),
        Cell(SnapshotCore.refuse, "POP refuses, and nothing is tried again", (State.FAILED,)),
    ),
    (Failed, (State.RESTS, State.FAILED), _IDLE),
    (Due, State.FAILED, ignored("a failed write is never tried again")),
)  # fmt: skip
