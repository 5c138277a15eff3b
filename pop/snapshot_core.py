"""The order of snapshots of POP's memory, without IO.

A snapshot begins once a second while pages change. A thread writes it while the worker goes on. A write or sync that
failed is never tried again: the kernel may have forgotten pages that are not on disk. A write for which the disk has no
room has left nothing there, and is tried again.

    RESTS --Due--> MEASURES --Measured--> TAKES --AllTaken--> WRITES --OnDisk--> RESTS
                                          TAKES --Broken--> RESTS
                                          TAKES, WRITES --JournalFull--> RESTS
    WRITES --ImageFull--> WAITS --Due--> WRITES
    RESTS, MEASURES, TAKES, WRITES --Failed--> FAILED
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
    WAITS = "the journal has the snapshot, and the disk has no room for the image"
    FAILED = "a snapshot could not be written, and POP refuses its requests"


class Due(Struct, frozen=True):
    """Pages have changed, or the image waits for room."""


class Measured(Struct, frozen=True):
    """The checksums are known."""


class AllTaken(Struct, frozen=True):
    """The thread has every page."""


class Broken(Struct, frozen=True):
    """There was no memory for the copy of a page, or too many copies wait for the disk."""


class JournalFull(Struct, frozen=True):
    """The disk has no room for the snapshot."""


class ImageFull(Struct, frozen=True):
    """The disk has no room for pages of the image. Some file systems forget that they have given it."""


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


class Apply(Struct, frozen=True):
    """Let the thread write the image again."""


class Saved(Struct, frozen=True):
    """No page of it has to be in the next snapshot."""


class GiveUp(Struct, frozen=True):
    """Forget the pages that were taken. The next snapshot has them."""


class Refuse(Struct, frozen=True):
    """Refuse requests from now on."""

    errno: int


EVENTS = (Due, Measured, AllTaken, Broken, JournalFull, ImageFull, OnDisk, Failed)
Event = Due | Measured | AllTaken | Broken | JournalFull | ImageFull | OnDisk | Failed
Effect = Measure | Begin | Finish | Apply | Saved | GiveUp | Refuse


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

    def give_up(self, event: Broken | JournalFull, now_ms: int) -> Sequence[Effect]:
        """Begin anew a second after the beginning."""
        self.state = State.RESTS
        return [GiveUp()]

    def wait(self, event: ImageFull, now_ms: int) -> Sequence[Effect]:
        """Keep the journal: a power cut may have left parts of the image."""
        self.state, self.next_ms = State.WAITS, now_ms + INTERVAL_MS
        return []

    def apply(self, event: Due, now_ms: int) -> Sequence[Effect]:
        """Write the image again, if a second is over."""
        if now_ms < self.next_ms:
            return []
        self.state = State.WRITES
        return [Apply()]

    def rest(self, event: OnDisk, now_ms: int) -> Sequence[Effect]:
        """Wait for changes."""
        self.state = State.RESTS
        return [Saved()]

    def refuse(self, event: Failed, now_ms: int) -> Sequence[Effect]:
        """End all snapshots. The write that failed may be of one that was given up."""
        self.state, self.failure = State.FAILED, event.cause
        return [GiveUp(), Refuse(event.errno)]


_IDLE = impossible("the thread has nothing to do")
_NO_PAGE = impossible("no page is taken")
TRANSITIONS: Table = transitions(
    (Due, State.RESTS, Cell(SnapshotCore.measure, "a second after the last beginning", (State.MEASURES,))),
    (Due, (State.MEASURES, State.TAKES, State.WRITES), ignored("one snapshot is under way at a time")),
    (Due, State.WAITS, Cell(SnapshotCore.apply, "the thread writes the image again", (State.WRITES,))),
    (Due, State.FAILED, ignored("a failed write is never tried again")),
    (Measured, State.MEASURES, Cell(SnapshotCore.begin, "notes the moment", (State.TAKES,))),
    (Measured, (State.RESTS, State.TAKES, State.WRITES, State.WAITS, State.FAILED), _IDLE),
    (AllTaken, State.TAKES, Cell(SnapshotCore.finish, "the thread goes on alone", (State.WRITES,))),
    (AllTaken, (State.RESTS, State.MEASURES, State.WRITES, State.WAITS, State.FAILED), _NO_PAGE),
    (Broken, State.TAKES, Cell(SnapshotCore.give_up, "the next snapshot has its pages, too", (State.RESTS,))),
    (Broken, (State.RESTS, State.MEASURES, State.WRITES, State.WAITS, State.FAILED), _NO_PAGE),
    (
        JournalFull, (State.TAKES, State.WRITES),
        Cell(SnapshotCore.give_up, "the next snapshot has its pages, too", (State.RESTS,)),
    ),
    (JournalFull, (State.RESTS, State.MEASURES), ignored("it is of the snapshot that was given up")),
    (JournalFull, (State.WAITS, State.FAILED), _IDLE),
    (ImageFull, State.WRITES, Cell(SnapshotCore.wait, "the journal stays until the image has all", (State.WAITS,))),
    (ImageFull, (State.RESTS, State.MEASURES, State.TAKES, State.WAITS, State.FAILED), _IDLE),
    (OnDisk, State.WRITES, Cell(SnapshotCore.rest, "its pages are saved", (State.RESTS,))),
    (OnDisk, (State.RESTS, State.MEASURES, State.TAKES, State.WAITS, State.FAILED), _IDLE),
    (
        Failed, (State.RESTS, State.MEASURES, State.TAKES, State.WRITES),
        Cell(SnapshotCore.refuse, "POP refuses, and nothing is tried again", (State.FAILED,)),
    ),
    (Failed, (State.WAITS, State.FAILED), _IDLE),
)  # fmt: skip
