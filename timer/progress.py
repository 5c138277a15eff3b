"""The progress of timers on disk: timercheck as stock writes it, and a checkpoint of our own.

A stock broker that gets the store goes on from timercheck. The checkpoint adds the log offset from which on the copies
of the open slot lie, and a checksum of the log before its end (`services/kit/checkpoint.py`). A stock
broker writes timercheck alone, so the later time of both counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple, replace

from ringmq.services.kit.checkpoint import History, history_of, place_in_log
from ringmq.services.log_view import LogView
from ringmq.store.layout import CONFIG
from ringmq.store.markers import replace_file
from ringmq.store.sealed_files import load_sealed, persist_sealed
from ringmq.timer import timer_checkpoint
from ringmq.timer.core import Progress
from ringmq.timer.master_timers import MasterTimers
from ringmq.timer.timer_checkpoint import (
    PROGRESS_FILE,
    WRITTEN,
    Filing,
    TimerCheckpoint,
    agreed,
    contradiction,
    read_timer_checkpoint,
)
from ringmq.timer.timer_scan import ScanRange
from ringmq.timer.timer_wheel import PRECISIONS_MS


class Snapshot(Struct, frozen=True):
    """A progress. The log must be on disk up to `log_offset`, and TimerLog up to `log_position`, before it is saved."""

    progress: Progress
    log_offset: int
    log_position: int
    waits: bool = True
    """False if no message waits in the wheel."""
    waits_from: int = 0
    """See Saved."""
    coarsest_ms: int = 0
    """The largest precision that any waiting message was admitted by."""
    window_slots: int = 0
    needs_rebuild: bool = False
    """See Saved."""
    is_rebuilding: bool = False
    """True while records from before a rebuild may be in other slots than those that the window tells."""
    master: MasterTimers | None = None
    """On a slave: the progress of its master, which is that of the snapshot, too."""

    @property
    def marks_from(self) -> int | None:
        """See Saved."""
        return self.progress.marks_from if self.master is None else self.master.marks_from


class Saved(Struct, frozen=True):
    """The progress on disk."""

    open_ms: int = 0
    queue_offset: int = 0
    known_offset: int = 0
    known_ms: int = 0
    """See timer.core.Progress."""
    marks_from: int | None = None
    """None: no checkpoint is true of this log. Then copies of the open slot are looked for by their times."""
    precision_ms: int | None = None
    """Of the wheel. None if a stock broker has written it since: the units tell."""
    flushed_position: int = 0
    is_cut: bool = False
    """True if the log was cut since, behind another master, so it may lack copies of slots before `open_ms`. Records
    may have other queue offsets."""
    needs_all_marks: bool = False
    """True if only the marks of the whole log tell which messages of earlier slots are delivered."""
    waits_from: int = 0
    """Units of TimerLog before this position are of slots before `open_ms`."""
    coarsest_ms: int = PRECISIONS_MS[-1]
    """The largest precision that any waiting message was admitted by."""
    known_coarsest_ms: int = PRECISIONS_MS[0]
    """See timer.core.Progress. If no checkpoint tells, all have one precision, so the smallest tells as well."""
    window_slots: int = 0
    """The window by which all waiting messages were filed. 0: it is not known."""
    needs_rebuild: bool = False
    """True if units of a slave lie in other slots than those of its master. It matters once the slave delivers: a slot
    that its master has delivered may hold messages that still wait."""

    @property
    def scan_range(self) -> ScanRange:
        """Return its part about wheel and log. If the log was cut, `open_ms` may go back."""
        return ScanRange(self.flushed_position) if self.is_cut else ScanRange(
            self.flushed_position, self.open_ms, self.waits_from, self.precision_ms is None
        )  # fmt: skip

    @property
    def filing(self) -> Filing | None:
        """Return how the waiting messages were filed. None if it is not known."""
        return Filing.of([self.window_slots, self.precision_ms, self.coarsest_ms, self.known_coarsest_ms])


def load_saved(root: Path, log: LogView, log_end: int, log_line: Callable[[str], None] = lambda line: None) -> Saved:
    """Read the later of both files. `log_line` gets a line about a damaged one. Raises ConfigFileError, OSError."""
    timercheck = read_timer_checkpoint(root)
    own = load_sealed(root, PROGRESS_FILE)
    if fault := contradiction(timercheck, own):
        log_line(f"{timer_checkpoint.FILE}: {fault}: those of {PROGRESS_FILE} count")
    stock = agreed(timercheck, own) or TimerCheckpoint()
    match own:
        case {
            "openMs": int(open_ms), "queueOffset": int(queue_offset), "marksFrom": int() | None as marks_from,
            "precisionMs": int(precision_ms),
        } if open_ms >= 0 and (found := history_of(own, log, log_end)) is not None:  # fmt: skip
            window_slots, needs_rebuild = _number(own.get("windowSlots")), own.get("needsRebuild") is True
            if found[1] is History.OTHER:
                cut_ms = max(open_ms, stock.last_read_ms)
                return Saved(
                    cut_ms, precision_ms=precision_ms, flushed_position=stock.flushed_position, is_cut=True,
                    coarsest_ms=_precision(own.get("coarsestMs"), precision_ms), window_slots=window_slots,
                    needs_rebuild=needs_rebuild,
                )  # fmt: skip
            known_offset, known_ms = _pair(own.get("known"))
            coarsest_ms = _precision(own.get("coarsestMs"), precision_ms)
            known_coarsest_ms = _precision(own.get("knownCoarsestMs"), precision_ms)
            if is_of_stock := stock.last_read_ms > open_ms:
                known_offset, known_ms = stock.known_offset, stock.last_read_ms
                known_coarsest_ms, coarsest_ms = PRECISIONS_MS[0], PRECISIONS_MS[-1]
            # a stock broker may have gone on with the files, or with others
            waits_from = 0 if is_of_stock else own.get("waitsFrom", 0)
            return Saved(
                max(open_ms, stock.last_read_ms), max(queue_offset, stock.queue_offset), known_offset, known_ms,
                marks_from if found[1] is History.SAME else None, None if is_of_stock else precision_ms,
                stock.flushed_position, coarsest_ms=coarsest_ms, known_coarsest_ms=known_coarsest_ms,
                waits_from=waits_from if isinstance(waits_from, int) else 0,
                window_slots=0 if is_of_stock else window_slots, needs_rebuild=needs_rebuild,
            )  # fmt: skip
    return Saved(
        stock.last_read_ms, stock.queue_offset, stock.known_offset, stock.last_read_ms, None, None,
        stock.flushed_position,
    )  # fmt: skip


def of_master(saved: Saved, timers: MasterTimers | None, log_end: int) -> Saved:
    """Return the progress of a slave that becomes master: that of its master, if the log is not shorter than it was."""
    if timers is None or timers.log_offset > log_end:
        return saved
    filing = timers.filing
    return replace(
        saved, open_ms=timers.open_ms, known_offset=timers.known_offset, known_ms=timers.open_ms,
        marks_from=timers.marks_from, is_cut=False,
        coarsest_ms=PRECISIONS_MS[-1] if filing is None else filing.coarsest_ms,
        known_coarsest_ms=known_coarsest_ms(timers),
        needs_rebuild=(
            saved.needs_rebuild or filing is None or not filing.agrees(saved.filing) or timers.open_ms < saved.open_ms
        ),
    )  # fmt: skip


def known_coarsest_ms(timers: MasterTimers) -> int:
    """Return the coarsest precision by which a master has found its slots. A stock broker has one precision, so the
    smallest tells as well. Of a broker of an older version the largest loses none."""
    if timers.filing is not None:
        return timers.filing.known_coarsest_ms
    return PRECISIONS_MS[0] if timers.marks_from is None else PRECISIONS_MS[-1]


def believable(saved: Saved, queue_end: int, log_line: Callable[[str], None]) -> Saved:
    """Return the progress without offsets beyond the end of the timer topic: they are true of another log, or of one
    that has lost its end. The newest unit tells what is in the wheel, marks tell what was delivered. `log_line` gets a
    line about them."""
    beyond = {"queueOffset": saved.queue_offset, "known": saved.known_offset}
    beyond = {name: offset for name, offset in beyond.items() if offset > queue_end}
    if not beyond:
        return saved
    entries = ", ".join(f"{name} {offset}" for name, offset in beyond.items())
    log_line(
        f"{PROGRESS_FILE}, {timer_checkpoint.FILE}: {entries} left out, as the timer topic ends at {queue_end}: "
        f"TimerLog and the marks of copies tell the progress"
    )
    if "queueOffset" in beyond:
        saved = replace(saved, queue_offset=0)
    if "known" in beyond:
        saved = replace(saved, known_offset=0, known_ms=0, needs_all_marks=True)
    return saved


def _precision(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and value in PRECISIONS_MS else otherwise


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _pair(value: object) -> tuple[int, int]:
    match value:
        case [int(known_offset), int(known_ms)]:
            return known_offset, known_ms
    return 0, 0


def read_rest(root: Path) -> int:
    """Return the queue offset below which no timer message waits. Raises ConfigFileError, OSError."""
    match load_sealed(root, PROGRESS_FILE):
        case {"waits": False, "queueOffset": int(queue_offset)}:
            return queue_offset
    return 0


def save(root: Path, snapshot: Snapshot, precision_ms: int, log: LogView, now_ms: int) -> None:
    """Write both files. Raises OSError."""
    progress = snapshot.progress
    value = {
        "openMs": progress.open_ms, "queueOffset": progress.queue_offset,
        "known": [progress.known_offset, progress.known_ms], "marksFrom": snapshot.marks_from,
        "precisionMs": precision_ms, "coarsestMs": snapshot.coarsest_ms or precision_ms,
        "knownCoarsestMs": progress.known_coarsest_ms, "windowSlots": snapshot.window_slots,
        "needsRebuild": snapshot.needs_rebuild, "isRebuilding": snapshot.is_rebuilding,
        "waits": snapshot.waits, "waitsFrom": snapshot.waits_from,
        **place_in_log(log, snapshot.log_offset),
    }  # fmt: skip
    known = read_timer_checkpoint(root) or TimerCheckpoint()
    if snapshot.master is None:
        stock = replace(
            known, last_read_ms=progress.open_ms, queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset, timestamp_ms=now_ms, counter=known.counter + 1,
        )  # fmt: skip
    else:
        stock = snapshot.master.checkpoint
        stock = replace(stock, queue_offset=min(progress.queue_offset, stock.master_queue_offset))
    stock = replace(stock, flushed_position=snapshot.log_position)
    persist_sealed(root, PROGRESS_FILE, value | {WRITTEN: astuple(stock)})
    replace_file(root / CONFIG / timer_checkpoint.FILE, stock.encode_file())
