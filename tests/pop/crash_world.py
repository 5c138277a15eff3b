"""The simulation of POP over the windows of C, in a worker process that dies at crash points.

Parent and worker map the same memory. After a death the parent has what the worker has stored, and all marks of pages.
A new worker opens this memory, and the simulation judges what consumers see then.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from plane_kit import die_with_parent

from ringmq.native import ffi, lib
from ringmq.pop.entry_twin import STATES, NoRoomError
from ringmq.pop.window_memory import WindowMemory
from ringmq.pop.window_twin import WindowTwin
from tests.pop.order_simulation import OrderWorld
from tests.pop.simulation import INVISIBLE_MS, TOPIC, WINDOWS_MAX, BrokenPromiseError, DeathError, Request
from tests.pop.window_pair import NativeWindows, in_use

PAGE: int = lib.RMQ_POP_PAGE_BYTES
NEVER = 2**63 - 1
NTH = (1, 1, 2, 3, 5, 8, 20, 60)
"""Passes of a point until the worker dies there."""
COPY_SHARE, RARE_SHARE, RESET_SHARE = 0.3, 0.15, 0.01
"""Of the events of a world that do not come from the simulation."""


class SharedMemory(WindowMemory):
    """Memory of a segment, which a forked worker shares."""

    def allocate(self, size: int) -> Any:
        self.segment = os.memfd_create("pop")
        os.ftruncate(self.segment, size)
        self._map = mmap.mmap(self.segment, size)
        return ffi.from_buffer("uint8_t[]", self._map, require_writable=True)

    def close(self) -> None:
        """Give the segment up."""
        del self._windows, self._orders, self._entries
        ffi.release(self.bytes)
        self._map.close()
        os.close(self.segment)

    def marks(self) -> bytes:
        """The marks of the pages."""
        return bytes(ffi.buffer(self.bytes + self.layout.bytes, self.layout.bytes // PAGE))


def page_of(content: bytes, page: int) -> bytes:
    """The bytes of a page."""
    return content[page * PAGE : (page + 1) * PAGE]


class ServedWindows(NativeWindows):
    """The windows of C in the worker, with snapshots."""

    def state_now(self) -> dict[str, Any]:
        """Counts, and of each place the open messages and the first of them."""
        counts = {name: int(getattr(self.counts, name)) for name, _ in ffi.typeof("struct rmq_pop_counts").fields}
        places = [place for place in range(WINDOWS_MAX) if self.memory.window(place).id]
        return {**counts, "places": [(place, self.open_messages(place), self.first_open(place)) for place in places]}

    def begin(self) -> None:
        lib.rmq_pop_pages_begin(self.pages)

    def take(self, room: int) -> None:
        lib.rmq_pop_pages_take(self.pages, room)

    def blocks(self) -> list[tuple[int, bytes]]:
        """The pages that are copied out."""
        found = []
        while (block := lib.rmq_pop_pages_block(self.pages)) != ffi.NULL:
            for index in range(block.count):
                found.append((int(block.numbers[index]), bytes(ffi.buffer(block.data + index * PAGE, PAGE))))
            lib.rmq_pop_block_free(block)
        return found

    def saved(self) -> None:
        lib.rmq_pop_pages_saved(self.pages)

    def give_up(self) -> None:
        lib.rmq_pop_pages_give_up(self.pages)


def serve(pipe: Connection, open_windows: Callable[[], ServedWindows]) -> NoReturn:
    """Do what the parent says, until it is gone."""
    try:
        windows = open_windows()
        pipe.send((None, (windows.damaged, windows.state_now())))
        while True:
            name, arguments = pipe.recv()
            try:
                answer = None, getattr(windows, name)(*arguments)
            except (NoRoomError, ValueError) as error:
                answer = type(error), None
            pipe.send(answer)
    except EOFError:
        os._exit(0)
    except BaseException as error:
        os.write(2, f"worker: {error!r}\n".encode())
        os._exit(1)


class WindowsProcess:
    """A worker with the windows of a memory. A call raises DeathError if the worker dies at its crash point.

    It has the calls of `WindowTwin`, and tells about the memory what the twin keeps in dictionaries.
    """

    def __init__(self, memory: SharedMemory, now_ms: int, mono_ms: int, crash_point: str | None = None) -> None:
        self.memory, self.crash_point = memory, crash_point
        self._pipe, there = Pipe()
        self.pid = os.fork()
        if not self.pid:
            die_with_parent()
            self._pipe.close()
            os.environ.pop("RINGMQ_CRASH_POINT", None)
            if crash_point:
                os.environ["RINGMQ_CRASH_POINT"] = crash_point
            serve(there, lambda: ServedWindows(memory, now_ms, mono_ms))
        there.close()
        self.damaged, self.state = self._answer()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._pipe.send((name, arguments))
            return self._answer()

        return call

    def _answer(self) -> Any:
        try:
            error, answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._pipe.close()
            _, status = os.waitpid(self.pid, 0)
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and self.crash_point, status
            raise DeathError from None
        if error:
            raise error
        return answer

    def end(self) -> None:
        """Kill the worker, if it has not died."""
        if not self._pipe.closed:
            self._pipe.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    @property
    def places(self) -> dict[int, int]:
        windows = ((place, int(self.memory.window(place).id)) for place in range(self.memory.windows_max))
        return {window_id: place for place, window_id in windows if window_id}

    @property
    def of_window(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {window_id: set() for window_id in self.places}
        for entry in range(self.memory.entries_max):
            if self.memory.entry(entry).state:
                found[int(self.memory.entry(entry).window)].add(entry)
        return found

    @property
    def wheel(self) -> bool:
        """True if an entry will be due."""
        return bool(self.next_due_ms() != NEVER)

    def state_of(self, entry: int) -> Any:
        return STATES[self.memory.entry(entry).state]


def state_of_twin(twin: WindowTwin) -> dict[str, Any]:
    """`ServedWindows.state_now` of a twin."""
    states = [int(twin.memory.entry(entry).state) for entries in twin.of_window.values() for entry in entries]
    open_messages = {place: twin.open_messages(place) for place in sorted(twin.places.values())}
    return {
        "windows": len(twin.places), "entries": len(states), "open": sum(open_messages.values()),
        "returned": sum(twin.open_bits(entry).bit_count() for entry in twin.again),
        "orders": len(twin.order_places),
        "reviving": states.count(lib.RMQ_POP_REVIVING), "revived": states.count(lib.RMQ_POP_REVIVED),
        "places": [(place, count, twin.first_open(place)) for place, count in open_messages.items()],
    }  # fmt: skip


class CrashWorld(OrderWorld):
    """A world whose worker dies at one crash point, and now and then at another one before."""

    entries_max = 96
    windows: Any = WindowsProcess
    memory: SharedMemory
    twin: Any

    def __init__(self, seed: int, point: str, before: list[str]) -> None:
        self.point, self.before = point, before
        self.nth = NTH[: max(2, len(NTH) - seed)]
        self.chance = random.Random(f"{point} {seed}")
        self.lives = self.hits = 0
        self.is_under_way = False
        super().__init__(seed)

    # -- lives of the worker -----------------------------------------------------------------------------------

    def new_memory(self, content: bytes | None) -> SharedMemory:
        return SharedMemory(WINDOWS_MAX, self.entries_max, content)

    def survivor(self) -> SharedMemory:
        return self.memory

    def open(self, memory: SharedMemory) -> None:
        """A start makes the same of the memory as the twin. It may die, and then the next one does."""
        if hasattr(self, "twin"):
            self.twin.end()
            if memory is not self.memory:
                self.memory.close()
        self.memory = memory
        while True:
            content = memory.content()
            try:
                self.twin = self.windows(memory, self.now_ms, self.mono_ms, self.next_point())
                break
            except DeathError:
                self.note_death()
        twin = self.twin_of(content)
        assert self.twin.damaged == twin.damaged == 0
        assert in_use(memory) == in_use(twin.memory)
        assert self.twin.state == state_of_twin(twin)

    def twin_of(self, content: bytes) -> WindowTwin:
        """A twin that starts with the content."""
        return WindowTwin(WindowMemory(WINDOWS_MAX, self.entries_max, content), self.now_ms, self.mono_ms)

    def close(self) -> None:
        """End the worker."""
        self.twin.end()
        self.memory.close()

    def next_point(self) -> str | None:
        """The crash point of the next life."""
        if not self.faults:
            return None
        self.lives += 1
        self.armed = self.chance.choice(self.before) if self.lives % 2 else self.point
        return f"{self.armed}:{self.chance.choice(self.nth)}"

    def note_death(self) -> None:
        """The worker has died at its point."""
        self.hits += self.armed == self.point
        self.counts["deaths"] += 1

    def step(self) -> None:
        self.steps += 1
        try:
            self.act()
        except DeathError:
            self.note_death()
            self.kill()
        except NoRoomError:
            pass

    def kill(self) -> None:
        """A replacement that dies while it starts gets one, too."""
        self.check_marks()
        self.pending, self.is_under_way = self.disk, False
        while True:
            try:
                super().kill()
                return
            except DeathError:
                self.note_death()

    def power_cut(self) -> None:
        self.is_under_way = False
        try:
            super().power_cut()
            return
        except DeathError:
            self.note_death()
        while True:
            try:
                self.kill()
                self.save_start()
                return
            except DeathError:
                self.note_death()

    def act(self) -> None:
        """More of what is rare in a short life: copies, power cuts, resets."""
        choice = self.random.random()
        if choice < COPY_SHARE:
            self.random.choice((self.age, self.revive, self.write, self.write, self.flush_all))()
        elif choice < COPY_SHARE + RARE_SHARE:
            self.random.choice((self.lose_record, self.fail_copy, self.fail_copy, self.cut_popped, self.snapshot))()
        elif choice < COPY_SHARE + RARE_SHARE + RESET_SHARE and self.ids:
            self.reset()
        else:
            super().act()

    def cut_popped(self) -> None:
        """A power cut behind a snapshot. It has messages as popped that the log may lose."""
        for _ in range(3):
            self.send()
            self.pop("a", 32, 400)
            self.pop_in_order(self.random.choice(TOPIC), 32, INVISIBLE_MS[0], b"")
        while not self.snapshot():
            pass
        self.power_cut()

    def age(self) -> None:
        """Messages come due."""
        self.pass_time(500)

    def flush_all(self) -> None:
        """All copies reach the disk."""
        self.log.flushed = len(self.log.records)
        self.report_flush()

    def lose_record(self) -> None:
        """Retention deletes a record before its copy is made."""
        if request := self.unwritten():
            self.perhaps_done.add((request.group, request.message))
            self.twin.copy_gone(request.due.window, request.due.queue_offset)

    def fail_copy(self) -> None:
        """A consumer acknowledges a message late, and its copy cannot be stored."""
        if request := self.unwritten():
            mark = request.due.window, request.due.queue_offset
            for held in list(self.held):
                if (self.ids[held.group, held.queue], held.offset) == mark:
                    self.ack(held)
            self.twin.copy_failed(*mark, self.mono_ms + 100, True)

    def unwritten(self) -> Request | None:
        """The next request that `write` has not taken."""
        return self.requests.pop(0) if self.requests and not self.requests[0].end else None

    def finish(self) -> None:
        self.faults = False
        self.kill()
        super().finish()
        assert self.twin.state_now() == state_of_twin(self.twin_of(self.memory.content()))

    # -- snapshots ---------------------------------------------------------------------------------------------

    def snapshot(self) -> bool:
        """Begin a snapshot, take some of its pages, give it up, or have it on disk: True then."""
        if not self.is_under_way:
            self.move_copies_from()
            self.pending = self.image()
            self.is_under_way = True
            self.twin.begin()
        elif self.random.random() < 0.2:
            self.is_under_way, self.pending = False, self.disk
            self.twin.give_up()
        elif self.random.random() < 0.5:
            self.twin.take(1)
        else:
            self.twin.take(self.memory.layout.bytes // PAGE)
            self.check_snapshot(dict(self.twin.blocks()))
            self.is_under_way, self.disk = False, self.pending
            self.twin.saved()
            return True
        return False

    def check_snapshot(self, pages: dict[int, bytes]) -> None:
        """The pages and those on disk are the memory of the moment."""
        for page in range(self.memory.layout.bytes // PAGE):
            found = pages.get(page, page_of(self.disk.content, page))
            if found != page_of(self.pending.content, page):
                raise BrokenPromiseError(f"the snapshot has not the page {page} of its moment")

    def check_marks(self) -> None:
        """A page that is not as on disk has a mark, so the next snapshot takes it."""
        content = self.memory.content()
        for page, mark in enumerate(self.memory.marks()):
            if not mark and page_of(content, page) != page_of(self.disk.content, page):
                raise BrokenPromiseError(f"page {page} has changed, and no mark says so")

    def save_start(self) -> None:
        """The main process writes the whole memory."""
        image = self.image()
        self.twin.begin()
        self.disk = self.pending = image
        self.twin.give_up()
        self.twin.saved()


def lives_at(point: str, before: list[str], *, seeds: int, steps: int, hits: int) -> int:
    """Play worlds until the worker has died so often at the point. Returns the number of these deaths."""
    found = 0
    for seed in range(seeds):
        world = CrashWorld(seed, point, before)
        try:
            for _ in range(steps):
                world.step()
            world.finish()
        finally:
            world.close()
        found += world.hits
        if found >= hits:
            break
    return found
