"""Snapshots of POP's memory, written by a thread (`snapshot_core.py` has their order, `image_file.py` the files).

The loop of the worker never waits for the disk. It copies some pages a turn, and hands blocks of them to the thread.
The names of windows are synced before the first snapshot that may have their ids.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from ringmq.native import ffi, lib
from ringmq.pop import image_file
from ringmq.pop.image_file import (
    IMAGE,
    JOURNAL,
    PAGE,
    DiskFile,
    Header,
    ImageFullError,
    JournalFullError,
    JournalWriter,
)  # fmt: skip
from ringmq.pop.log_place import LogPlace, LogTail
from ringmq.pop.memory import PopMemory, PopMemoryError, describe
from ringmq.pop.page_changes import PageChanges
from ringmq.pop.snapshot_core import (
    INTERVAL_MS,
    AllTaken,
    Apply,
    Begin,
    Broken,
    Due,
    Effect,
    Event,
    Failed,
    Finish,
    GiveUp,
    ImageFull,
    JournalFull,
    Measure,
    Measured,
    OnDisk,
    Refuse,
    Saved,
    SnapshotCore,
    State,
)  # fmt: skip
from ringmq.store.crash_points import Step, passed

TAKEN_A_TURN = 256
"""Pages that one turn copies out: 0.1 to 0.3 ms."""
QUEUED_MAX = 64
"""Blocks that wait for the thread at most. Then only changed pages are copied out."""
KEPT_PAGES_MAX = 16_384
"""Copied pages (64 MiB) beyond which a snapshot is given up: the disk does not follow."""
FINISH_STEP_S = 0.001


class Watermarks(Protocol):
    """The words of the plane's watermark page that are read here."""

    min_offset: int
    flushed_offset: int
    append_offset: int


class SyncedNames(Protocol):
    """The part of `ringmq.pop.names.Names` that a snapshot needs."""

    def sync(self) -> None: ...


class Files:
    """The two files, opened for the thread. `open_file`: tests give one that fails. Raises PopMemoryError."""

    def __init__(self, memory: PopMemory, open_file: Callable[..., DiskFile] = DiskFile) -> None:
        try:
            self.image = open_file(memory.folder / IMAGE)
            try:
                self.journal = open_file(memory.folder / JOURNAL)
            except BaseException:
                self.image.close()
                raise
        except OSError as error:
            raise PopMemoryError(f"pop: {_failure(error)}") from error

    def close(self) -> None:
        """Close both."""
        self.journal.close()
        self.image.close()


class Snapshots:
    """`log`: a view of the log that belongs to the thread. `copies_from`: every copy in the log before this offset is
    in the entries. `used_entries`: the number of entries in use. Both are asked when a snapshot begins. `wake`: rings
    the worker, called in the thread. `changes`: notes the pages of each snapshot for slaves.
    """

    def __init__(
        self, memory: PopMemory, log: LogTail, watermarks: Watermarks, names: SyncedNames, *,
        copies_from: Callable[[], int] | None = None, used_entries: Callable[[], int] | None = None,
        wake: Callable[[], None] = lambda: None, changes: PageChanges | None = None,
        files: Files | None = None, step: Step = passed,
    ) -> None:  # fmt: skip
        self._memory, self._log, self._marks, self._names = memory, log, watermarks, names
        self._copies_from, self._used_entries, self._wake, self._step = copies_from, used_entries, wake, step
        self._changes = changes
        failed = int(memory.header.failed_errno)
        self._core = SnapshotCore(_failure(OSError(failed, "an earlier write failed")) if failed else "")
        self._files = files or Files(memory)
        self._thread = ThreadPoolExecutor(1, "pop-snapshots")
        self._tasks: deque[Future[Any]] = deque()
        self._writer: JournalWriter | None = None
        self._place: LogPlace | None = None
        self.written = self.given_up = 0
        """Counts of snapshots."""
        self.no_room = ""
        """The file for which the disk has no room, and the cause, until a snapshot is on disk."""
        self._began_ms = 0
        self.unsaved_ms = 0
        """Monotonic time of the last turn from which on the image lacks changes. 0: it has all."""
        self.saved_ms: int | None = None
        """Monotonic time of the moment that the image has. None: no snapshot is written yet."""

    @property
    def failure(self) -> str | None:
        """The reason why POP has to refuse its requests."""
        return self._core.failure or None

    @property
    def is_idle(self) -> bool:
        """True if the image has all changes."""
        return self._core.state is State.RESTS and not lib.rmq_pop_pages_is_changed(self._memory.pages)

    def has_moment(self, moment_ms: int) -> bool:
        """True if the image has all that the memory had in the turn of that monotonic time. Ask in a later turn."""
        return not self.unsaved_ms or self.unsaved_ms > moment_ms

    def turn(self, now_ms: int) -> None:
        """Do the work that is due. Called at each turn of the worker's loop, with the monotonic time."""
        core = self._core
        self.unsaved_ms = 0 if self.is_idle else self.unsaved_ms or now_ms
        match core.state:
            case State.RESTS:
                if now_ms >= core.next_ms and lib.rmq_pop_pages_is_changed(self._memory.pages):
                    self._do(Due(), now_ms)
            case State.MEASURES:
                if (task := self._done()) is not None:
                    self._place = task.result()
                    self._do(Measured(), now_ms)
            case State.TAKES:
                self._take(now_ms)
            case State.WRITES:
                if self._done() is not None and not self._tasks:
                    self._do(OnDisk(), now_ms)
            case State.WAITS:
                self._do(Due(), now_ms)
            case State.FAILED:
                pass
        if (fault := self._fault()) is not None and core.state is not State.FAILED:
            self._meet(fault, now_ms)

    def sleep_ms(self, now_ms: int) -> int:
        """Time until `turn` is due, if the thread does not ring."""
        match self._core.state:
            case State.TAKES:
                return 0 if len(self._tasks) < QUEUED_MAX else 10
            case State.RESTS if lib.rmq_pop_pages_is_changed(self._memory.pages):
                return max(0, min(INTERVAL_MS, self._core.next_ms - now_ms))
        return INTERVAL_MS

    def finish(self, timeout_ms: int) -> bool:
        """Write the last snapshot of a clean stop, marked as such. False: the image does not have all, so the segment
        has to stay. Nothing may change the memory meanwhile. A full disk is tried each second."""
        deadline = time.monotonic() + timeout_ms / 1000
        is_marked = False
        while self._core.state is not State.FAILED and time.monotonic() < deadline:
            if self._core.state is State.RESTS:
                if is_marked and self.is_idle:
                    return True
                if not is_marked:
                    self._mark_clean(1)
                    is_marked = True
                    self._core.next_ms = 0
            self.turn(time.monotonic_ns() // 1_000_000)
            time.sleep(FINISH_STEP_S)
        self._mark_clean(0)
        return False

    def _mark_clean(self, clean: int) -> None:
        self._memory.touch_header()
        self._memory.header.clean = clean

    def close(self) -> None:
        """End the thread, whatever it does. The memory stays as it is."""
        self._writer = None
        self._thread.shutdown(wait=True)
        lib.rmq_pop_pages_give_up(self._memory.pages)
        self._files.close()
        if self._changes is not None:
            self._changes.close()

    def _meet(self, fault: OSError, now_ms: int) -> None:
        """A task of the thread has failed."""
        match fault:
            case JournalFullError():
                self._no_room(JournalFull(), fault, now_ms)
            case ImageFullError():
                self._no_room(ImageFull(), fault, now_ms)
            case _:
                self._do(Failed(_failure(fault), fault.errno or errno.EIO), now_ms)

    def _no_room(self, event: JournalFull | ImageFull, fault: OSError, now_ms: int) -> None:
        """Later tasks of this snapshot do nothing. One that was running may have met the same."""
        self.no_room = describe(fault)
        self._tasks = deque(task for task in self._tasks if not _met_no_room(task))
        self._do(event, now_ms)

    # ---- effects ----

    def _do(self, event: Event, now_ms: int) -> None:
        for effect in self._core.step(event, now_ms):
            self._perform(effect, now_ms)

    def _perform(self, effect: Effect, now_ms: int) -> None:
        pages = self._memory.pages
        match effect:
            case Measure():
                self._submit(self._measure)
            case Begin():
                self._begin(now_ms)
            case Finish():
                self._submit(self._finish_file, self._writer)
            case Apply():
                self._submit(self._apply, self._writer)
            case Saved():
                lib.rmq_pop_pages_saved(pages)
                self.written += 1
                self.no_room = ""
                self.unsaved_ms = self._began_ms
                self.saved_ms = self._began_ms
            case GiveUp():
                self.given_up += 1
                self._writer = None
                lib.rmq_pop_pages_give_up(pages)
            case Refuse(number):
                self._memory.touch_header()
                self._memory.header.failed_errno = number

    def _begin(self, now_ms: int) -> None:
        """The place is stored beside that of the last snapshot, the number last, which makes it count. The words
        between hold for the memory without the snapshot, too."""
        memory, header, place = self._memory, self._memory.header, self._place
        assert place is not None, "it was measured"
        memory.touch_header()
        number = int(header.snapshot) + 1
        place.store(header.places[number % 2])
        self._step("pop-place-stored")
        if self._copies_from is not None:
            header.copies_from = max(int(header.copies_from), self._copies_from())
        self._step("pop-copies-from-stored")
        header.used_entries = 0 if self._used_entries is None else self._used_entries() + 1
        self._step("pop-used-entries-stored")
        header.snapshot = number
        image_file.seal_header(header)
        self._step("pop-snapshot-begun")
        count = int(lib.rmq_pop_pages_begin(memory.pages))
        words = Header(int(header.store_id), number, int(header.windows_max), int(header.entries_max))
        self._began_ms = now_ms
        self._writer = JournalWriter(self._files.journal, words, count, self._step)

    def _take(self, now_ms: int) -> None:
        pages = self._memory.pages
        self._done()
        if self._fault() is not None:
            return
        waiting = int(lib.rmq_pop_pages_take(pages, TAKEN_A_TURN)) if len(self._tasks) < QUEUED_MAX else 1
        if lib.rmq_pop_pages_is_broken(pages) or int(lib.rmq_pop_pages_kept(pages)) > KEPT_PAGES_MAX:
            self._do(Broken(), now_ms)
            return
        while len(self._tasks) < QUEUED_MAX and (block := lib.rmq_pop_pages_block(pages)) != ffi.NULL:
            self._submit(self._write_block, self._writer, block)
        if not waiting and not lib.rmq_pop_pages_kept(pages):
            self._do(AllTaken(), now_ms)

    # ---- in the thread ----

    def _measure(self) -> LogPlace:
        marks = self._marks
        flushed, end = int(marks.flushed_offset), int(marks.append_offset)
        return LogPlace.measure(self._log, int(marks.min_offset), min(flushed, end), end)

    def _write_block(self, writer: JournalWriter, block: Any) -> None:
        try:
            if writer is self._writer:  # else the snapshot was given up
                count = int(block.count)
                writer.add(ffi.buffer(block.numbers, 4 * count)[:], memoryview(ffi.buffer(block.data, count * PAGE)))
        finally:
            lib.rmq_pop_block_free(block)

    def _finish_file(self, writer: JournalWriter) -> None:
        self._names.sync()
        self._step("pop-names-synced")
        writer.finish(self._files.image)
        self._apply(writer)

    def _apply(self, writer: JournalWriter) -> None:
        if self._changes is not None:
            self._changes.begin(writer.numbers, writer.snapshot)
        writer.apply(self._files.image)
        if self._changes is not None:
            self._changes.end(writer.snapshot)

    # ---- tasks ----

    def _submit(self, task: Callable[..., Any], *arguments: Any) -> None:
        future = self._thread.submit(task, *arguments)
        future.add_done_callback(lambda done: self._wake())
        self._tasks.append(future)

    def _done(self) -> Future[Any] | None:
        """Remove finished tasks. Returns the last one that was removed, if none is left; None while one runs or has
        failed."""
        last = None
        while self._tasks and self._tasks[0].done() and not self._tasks[0].exception():
            last = self._tasks.popleft()
        return last if not self._tasks else None

    def _fault(self) -> OSError | None:
        for task in self._tasks:
            if task.done() and (error := task.exception()) is not None:
                if not isinstance(error, OSError):
                    raise error
                return error
        return None


def _met_no_room(task: Future[Any]) -> bool:
    return task.done() and isinstance(task.exception(), JournalFullError | ImageFullError)


def _failure(error: OSError) -> str:
    return f"the memory of POP cannot be saved: {describe(error)}"
