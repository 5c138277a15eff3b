"""Revival: messages whose invisible time is over come again, as copies in the retry topic of their group.

A turn takes the results of write, tells the windows how far the log is flushed, and submits a batch of copies. Each
window of a batch is decided once. Messages whose copies cannot be stored are due again later, and hold back no other
group. After a death the marks in the log say which messages have copies (`ringmq.pop.recovery`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import lib
from ringmq.pop.copies_known import CopiesKnown
from ringmq.pop.copy_batches import CopyBatches
from ringmq.pop.copy_targets import Aim, Copy, CopyTargets, Fail, Gone, Make, interval_ms, origin_topic
from ringmq.pop.log_acks import LogAcks
from ringmq.pop.questions import PopAsk, PopAsks
from ringmq.pop.revival_words import RevivalWord
from ringmq.pop.window_names import Key, WindowNames
from ringmq.remoting import names
from ringmq.remoting.errors import RequestError
from ringmq.services.kit.log_lines import LogLines
from ringmq.store.record_copy import Cause

BATCHES = 1
"""Batches of one turn: requests of clients come between them."""
DISK_MS = 2
"""Time until messages are looked at again that the kernel reads from the disk."""
SOON_MS = 100
"""Time until the next try after a cause that ends by itself."""
SOON = (lib.RMQ_CAUSE_SEGMENT_LATE, lib.RMQ_CAUSE_QUEUE_SLOT)
STORE_MS = 1000
"""Time between two batches while write stores nothing for anybody."""
OF_STORE = {
    lib.RMQ_FAULT_FSYNC: "a sync of the log has failed",
    lib.RMQ_FAULT_DISK_FULL: "the disk is full",
    lib.RMQ_FAULT_CREATE_FILE: "the next file of the log cannot be made",
    lib.RMQ_FAULT_QUEUE_IO: "a queue or index file cannot be written",
    lib.RMQ_FAULT_QUEUE_SYNC: "a sync of a queue or index file has failed",
    lib.RMQ_CAUSE_IN_SYNC_REPLICAS: "too few slaves are in sync",
    lib.RMQ_CAUSE_HELD: "the log of a slave differs",
}
"""Causes that hold for all messages. No message waits longer because of them."""
ASKING_MAX = 256
"""Messages that wait for one topic to be made. Further ones are due again soon."""
FLUSH_LOOK_MS = 20
"""Time between two looks at the flushed offset while copies wait for it."""
TICK_MS = 1000
PLACE_STEP_BYTES = 16 << 20
"""Growth of the log after which the place is kept from which a start looks for copies."""


class Memory(Protocol):
    """The memory of the windows (`ringmq.pop.memory.PopMemory`)."""

    @property
    def header(self) -> Any: ...
    def touch_header(self) -> None: ...


class Revival:
    """The copies of one worker. `on_made`: called when topics for them were made, before they have any."""

    def __init__(
        self, *, plane: Plane, port: Port, memory: Memory, windows: Any, names: WindowNames, targets: CopyTargets,
        config: Callable[[], BrokerConfig], control: PopAsks, words: Any, log_line: Callable[[str], None],
        on_made: Callable[[], None], log_acks: LogAcks,
    ) -> None:  # fmt: skip
        self._plane, self._port, self._memory, self._windows = plane, port, memory, windows
        self._names, self._targets, self._config, self._control = names, targets, config, control
        self._words, self._topics_made, self._log_acks = words, on_made, log_acks
        self._lines = LogLines(log_line)
        self._batches = CopyBatches(plane, port, windows, names.index, log_acks)
        self._native = self._batches.native
        self._aims: list[Aim] = []
        self._asking: dict[PopAsk, list[int]] = {}
        """The slots of messages that wait until control has made a topic."""
        self._stored = self._dead = 0
        """Copies that are counted."""
        self._now_ms = 0
        self._look_ms = 0
        """Time of the next batch, if all that is ready was on disk, or write stores nothing."""
        self._next_tick_ms = 0
        self._known = CopiesKnown(lambda offset: lib.rmq_pop_flushed(windows, offset))

    # ---- turns ----

    def turn(self, now_ms: int, is_held: bool = False) -> bool:
        """Do what is due. True if more may follow at once. `is_held`: no further copies go to write, and no
        acknowledgements."""
        self._now_ms = now_ms
        worked = self._take_answers() | self._log_acks.hold(is_held)
        grace_ms = self._config().pop_revive_grace_ms
        worked |= lib.rmq_pop_copies_due(self._native, now_ms - grace_ms) > 0
        if now_ms >= self._look_ms and not is_held:
            for _ in range(BATCHES):
                if not self._submit():
                    break
                worked = True
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._batches.tick()
            self._keep_place()
        return worked

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next turn is due. A completion rings the bell."""
        if self._port.has_answers:
            return 0
        next_due_ms = int(lib.rmq_pop_next_due_ms(self._windows)) + self._config().pop_revive_grace_ms
        sleep_ms = min(TICK_MS, max(0, next_due_ms - now_ms))
        if self._native.unused_count < lib.RMQ_POP_ENTRY_MESSAGES:
            sleep_ms = TICK_MS  # no row is free for due messages until a completion
        if self._native.ready_count:
            sleep_ms = min(sleep_ms, max(1, self._look_ms - now_ms))
        if self._counts.reviving:
            sleep_ms = min(sleep_ms, FLUSH_LOOK_MS)
        return sleep_ms

    @property
    def is_idle(self) -> bool:
        """True if no message waits for a copy, and no copy for the disk."""
        return not self._batches.in_flight and not self._counts.reviving

    @property
    def is_answered(self) -> bool:
        """True if no copy is with write."""
        return self._batches.is_answered

    def finish(self, now_ms: int) -> bool:
        """A turn of the stop: take the answers of write. True once each copy has one."""
        self._now_ms = now_ms
        self._take_answers()
        return self._batches.is_answered

    def close(self) -> None:
        """Unmap the files. Marks in the log name copies whose result is unknown."""
        self._batches.close()

    def _count(self, word: RevivalWord, more: int) -> None:
        self._words[word] += more

    @property
    def _counts(self) -> Any:
        return lib.rmq_pop_counts_of(self._windows)

    # ---- copies ----

    def _submit(self) -> bool:
        """Submit a batch. False if there is none, or all of it waits."""
        if not self._batches.begin():
            return False
        self._aims = [self._aim(number) for number in range(self._native.cases_count)]
        made = self._batches.submit()
        left = self._end_left()
        if not made and not left:
            self._look_ms = self._now_ms + DISK_MS
        return bool(made or left)

    def _aim(self, number: int) -> Aim:
        case = self._native.cases[number]
        named = self._names.named(case.window)
        if named is None:
            return Gone()  # the window has ended
        name, window = named
        aim = self._targets.of(name, window.queue_slot)
        if isinstance(aim, Copy):
            self._batches.copy(number, aim, origin_topic(name))
        return aim

    def _take_answers(self) -> bool:
        count = self._batches.answers()
        if count:
            dead = int(self._native.dead) - self._dead
            self._count(RevivalWord.STORED, int(self._native.stored) - self._stored - dead)
            self._count(RevivalWord.DEAD, dead)
            self._stored, self._dead = int(self._native.stored), int(self._native.dead)
        self._known.flushed(int(self._plane.watermarks.flushed_offset), has_new=count > 0)
        self._end_left()
        return count > 0

    def recovered(self, end: int) -> None:
        """A start has found the copies of dead processes below `end`."""
        self._known.found(end)

    def copies_from(self) -> int:
        """The offset of the log below which the entries know every copy. 0 while it is not known."""
        return self._known.place(self._batches.log_place)

    def _keep_place(self) -> None:
        """Keep that offset from time to time, though no snapshot is due: a start reads the log from there on."""
        header, place = self._memory.header, self.copies_from()
        if place - header.copies_from >= PLACE_STEP_BYTES:
            self._memory.touch_header()
            header.copies_from = place

    # ---- messages without a copy ----

    def _end_left(self) -> int:
        """End the rows of messages that have no copy. Returns their number."""
        count = 0
        for slot, row in self._batches.take_left():
            count += 1
            self._end(slot, row)
        return count

    def _end(self, slot: int, row: Any) -> None:
        left, name = int(row.left), self._name_of(row)
        if name is None or left == lib.RMQ_POP_LEFT_GONE:
            self._gone(slot, row)
        elif left == lib.RMQ_POP_LEFT_NO_DEAD:
            self._ask(slot, PopAsk(name.group, (names.dlq_topic(name.group),)))
        elif left == lib.RMQ_POP_LEFT_UNREADABLE:
            self._fail(slot, name, f"the unit of its queue cannot be read (error {-row.detail})")
        elif left == lib.RMQ_POP_LEFT_NO_COPY:
            self._fail(slot, name, f"the record cannot be copied ({Cause(row.detail).name})")
        elif left == lib.RMQ_POP_LEFT_REFUSED:
            self._refused(slot, name, int(row.detail))
        else:
            self._end_by(self._aims[row.case_number], slot, row, name)

    def _name_of(self, row: Any) -> Key | None:
        named = self._names.named(row.due.window)
        return None if named is None else named[0]

    def _end_by(self, aim: Aim, slot: int, row: Any, name: Key) -> None:
        match aim:
            case Make(group, topic):
                self._ask(slot, PopAsk(group, (topic,)))
            case Fail(reason):
                self._fail(slot, name, reason)
            case _:
                self._gone(slot, row)

    def _gone(self, slot: int, row: Any) -> None:
        lib.rmq_pop_copy_gone(self._windows, row.due.window, row.due.queue_offset)
        lib.rmq_pop_copies_release(self._native, slot)
        self._count(RevivalWord.GONE, 1)

    def _refused(self, slot: int, name: Key, cause: int) -> None:
        if (reason := OF_STORE.get(cause)) is not None:
            self._look_ms = self._now_ms + STORE_MS
            self._fail(slot, name, reason, STORE_MS)
        else:
            self._fail(slot, name, f"write refuses it (cause {cause})", SOON_MS if cause in SOON else 0)

    def _fail(self, slot: int, name: Key, reason: str, wait_ms: int = 0) -> None:
        """The message is due again later. Other groups do not wait for it. `wait_ms`: until then, for a cause that is
        not the message's own. It makes later tries no rarer."""
        due = self._native.rows[slot].due
        later_ms = wait_ms or interval_ms(due.attempts)
        until_ms, is_counted = self._now_ms + later_ms, not wait_ms
        lib.rmq_pop_copy_failed(self._windows, due.window, due.queue_offset, until_ms, is_counted)
        lib.rmq_pop_copies_release(self._native, slot)
        self._count(RevivalWord.FAILED, 1)
        self._lines(
            f"group {name.group}: messages of topic {name.topic} cannot come again now: {reason}; they are tried again "
            f"in {later_ms / 1000:g} s"
        )

    # ---- control ----

    def _ask(self, slot: int, asked: PopAsk) -> None:
        """Have control make a topic. Messages that need the same one share an ask."""
        waiting = self._asking.setdefault(asked, [])
        if len(waiting) >= ASKING_MAX:
            due = self._native.rows[slot].due
            lib.rmq_pop_copy_failed(self._windows, due.window, due.queue_offset, self._now_ms + SOON_MS, False)
            lib.rmq_pop_copies_release(self._native, slot)
            return
        waiting.append(slot)
        if len(waiting) == 1:
            self._control.make(asked, self._now_ms, lambda refusal: self._on_made(asked, refusal))

    def _on_made(self, asked: PopAsk, refusal: RequestError | None) -> None:
        if refusal is None:
            self._topics_made()
        for slot in self._asking.pop(asked, ()):
            name = self._name_of(self._native.rows[slot])
            if refusal is None:
                lib.rmq_pop_copies_ready(self._native, slot)
            elif name is None:
                self._gone(slot, self._native.rows[slot])
            else:
                self._fail(slot, name, str(refusal))
