"""A test worker that answers with records of the log and holds polls until a message arrives.

Its test and its drill register it; the broker knows nothing of it. `poll_core.py` decides which messages it may name.
Every decision is a line of the file NOTES, by which the drill finds out what became of it.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from ringmq.ipc.answerers import AnswerRow
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.exit_status import EXIT_CLEAN
from ringmq.ipc.held_polls import HeldPolls, Poll, first_ask
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import PortRow
from ringmq.ipc.record_answers import LogRanges, records_payload
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.ipc.workers import CpuClass, StopPhase, WorkerRow
from ringmq.native import lib
from ringmq.remoting.command import decode_frame
from ringmq.services.arrivals import Arrivals
from ringmq.store.queue_reader import DeletedError, QueueReader, QueueReadError
from tests.polls.poll_core import Lane, lane_number
from tests.polls.poll_wire import ACK, AGAIN, FOUND, NOTHING, POLL, answer_head, name_of

NOTES = "POLL_WORKER_NOTES"
"""Variable with the path of the file of notes. Without it nothing is noted."""
POLLS = WorkerRow(
    "polls",
    24,
    __name__,
    StopPhase.CONTROL,
    CpuClass.SERVICE,
    is_optional=True,
    needs_master=True,
    port=PortRow("ringmq.services.arenas:republisher_bytes", lib.RMQ_PORT_ARRIVALS, weight=1),
    answers=AnswerRow(codes=(POLL, ACK), answer_bytes=1 << 16),
)
"""Its rings of answers are small, so that a read worker that stands still fills them soon."""
FULL_WORD = 1
"""A word of the role block: how often there was no room for an answer."""
FIRST_WORD = 8
"""The first word of the lanes: one more than the lowest offset that is not received."""
IDLE_MS, RETRY_MS, BLOCKED_MS = 20, 2, 1
UNACKNOWLEDGED_NS = 10_000_000_000
RECORDS_PER_TURN = DUE_PER_TURN = 512
ANSWERS_A_WAKE = 4
"""More cost the read worker fewer turns, and let it rest while this worker is busy."""
ROOM_BYTES = 1024
"""Of every answer here."""
FILES = 8


@dataclass(slots=True)
class Wish:
    """A poll at work. `poll` is None until it is held."""

    ask: Ask
    lane: Lane
    opaque: int
    connection: int
    deadline_ns: int
    again: bool
    poll: Poll | None = None


class PollShell:
    """The process of the worker between its start and its stop."""

    def __init__(self, plane: Plane, role: int, notes: Path | None) -> None:
        self._plane, self._role = plane, role
        self._generation = int(plane.role(role).generation)
        self._words = plane.role(role).counters
        self._inbox, self._polls = Inbox(plane, role), HeldPolls()
        self._reader = QueueReader(plane.struct, FILES, FILES)
        self._arrivals = Arrivals(plane, plane.port_of(role))
        self._lanes: dict[int, Lane] = {}
        self._waiting: dict[int, dict[int, Wish]] = {}
        """Held polls of each lane, by serial, the oldest first."""
        self._wishes: dict[int, Wish] = {}
        self._named: dict[int, Lane] = {}
        self._expiries: list[tuple[int, int]] = []
        self._readers = {reader.role: int(plane.role(reader.role).generation) for reader in plane.readers}
        self._unwoken = dict.fromkeys(self._readers, 0)
        """Answers that a read worker has not been woken for."""
        self._backlog: dict[int, deque[Ask]] = {reader.role: deque() for reader in plane.readers}
        self._to_give: set[int] = set()
        self._blocked, self._tick_ns = 0, 0
        self._lines: list[str] = []
        self._notes = None if notes is None else os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def begin(self) -> None:
        """Askers may ask."""
        self._inbox.begin()

    def close(self) -> None:
        """Unmap the files of the store."""
        self._reader.close()

    def turn(self) -> None:
        """Everything that is to be done now, then a sleep."""
        for role in self._readers:
            self._see(role, int(self._plane.role(role).generation))
        for asks in self._backlog.values():
            while asks and self._has_room(asks[0].role):
                self._request(asks.popleft())
        for _ in range(RECORDS_PER_TURN):
            if (ask := self._inbox.take()) is None:
                break
            self._blocked = 0
            self._take(ask)
        for slot in self._arrivals.take():
            self._to_give.update(number for number, lane in self._lanes.items() if lane.slot == slot)
        now_ns = time.monotonic_ns()
        self._free_unacknowledged(now_ns)
        for number in list(self._to_give):
            self._give(self._lanes[number])
        self._end_due(time.monotonic_ns())
        if now_ns >= self._tick_ns:
            self._tick_ns = now_ns + 1_000_000_000
            self._reader.tick()
        for role, answers in self._unwoken.items():
            if answers:
                self._wake(role)
        self._write_notes()
        self._park()

    # -- the inbox -----------------------------------------------------------------------------------------

    def _take(self, ask: Ask) -> None:
        if ask.role not in self._readers or not self._see(ask.role, ask.role_generation):
            return
        if ask.type == lib.RMQ_INBOX_CLOSED:
            self._forget(self._polls.closed(ask))
        elif ask.type == lib.RMQ_INBOX_UNSENT:
            said = self._inbox.unsent(ask)
            if said is not None:
                poll = self._polls.unsent(said)
                if poll is not None:
                    self._drop(poll.serial)
                    self._note(f"refused {time.monotonic_ns()} {said.serial} {said.reason}")
                self._free(said.serial, "unsent", said.reason)
        elif ask.type in (lib.RMQ_INBOX_COLD_FRAME, lib.RMQ_INBOX_HELD):
            if self._backlog[ask.role] or not self._has_room(ask.role):
                self._backlog[ask.role].append(ask)  # no more than the read worker may have at work here
            else:
                self._request(ask)

    def _see(self, role: int, generation: int) -> bool:
        """Look whether it is another process of the read worker. False: it is one that has died."""
        known = self._readers[role]
        if generation == known:
            return True
        if (generation - known) & 0x80000000:
            return False
        for said in self._inbox.unconsumed(role, known):
            self._free(said.serial, "reader", said.reason)
        self._forget(self._polls.see_reader(role, generation))
        self._backlog[role].clear()
        self._readers[role] = generation
        return True

    def _request(self, ask: Ask) -> None:
        if ask.role_generation != self._readers[ask.role]:
            return
        client, deadline_ns = first_ask(ask)
        command = decode_frame(client.payload)
        fields = command.ext_fields
        if command.code == ACK:
            generation, serial = name_of(fields["n"])
            if generation == self._generation:
                self._received(serial)
            self._send(ask, answer_head(FOUND, command.opaque))
            return
        lane = self._lane(fields["group"], fields["topic"], int(fields["queue"]))
        if lane is None:
            self._send(ask, answer_head(NOTHING, command.opaque))
            return
        if deadline_ns is None:
            deadline_ns = ask.received_mono_ns + int(fields["wait"]) * 1_000_000
        wish = Wish(client, lane, command.opaque, int(fields["of"]), deadline_ns, "again" in fields)
        if self._waiting[lane.number] or not self._answer(wish):
            self._hold(wish)

    def _lane(self, group: str, topic: str, queue: int) -> Lane | None:
        number = lane_number(group, queue)
        if number not in self._lanes:
            topic_id = self._plane.topic_find(topic)
            slot = None if topic_id is None else self._plane.queue_find(topic_id, queue)
            if slot is None:
                return None
            first = max(int(self._words[FIRST_WORD + number]) - 1, int(self._plane.queue(slot).min_offset))
            self._lanes[number] = Lane(number, slot, first)
            self._waiting[number] = {}
        return self._lanes[number]

    # -- polls ---------------------------------------------------------------------------------------------

    def _hold(self, wish: Wish) -> None:
        ask, nothing = wish.ask, answer_head(NOTHING, wish.opaque)
        held = self._polls.hold(ask, wish.deadline_ns, nothing)
        if held is None:
            self._send(ask, nothing)
            return
        where = ask.connection, ask.connection_generation
        assert self._inbox.answer(
            ask.role, lib.RMQ_VERDICT_HOLD, where, ask.pending, ask.role_generation, held.payload,
            serial=held.poll.serial, wakes=False,
        ), "there was room"  # fmt: skip
        self._answered(ask.role)
        wish.poll = held.poll
        self._wishes[held.poll.serial] = self._waiting[wish.lane.number][held.poll.serial] = wish
        self._to_give.add(wish.lane.number)  # a message may have come in between

    def _give(self, lane: Lane) -> None:
        """Answer held polls of the lane, as far as there are messages and room."""
        self._arrivals.want(lane.slot)
        now_ns, answered, full = time.monotonic_ns(), [], set[int]()
        for wish in self._waiting[lane.number].values():
            assert wish.poll is not None
            role = wish.ask.role
            if role in full or not self._polls.may_answer(wish.poll, now_ns):
                continue
            if not self._has_room(role):
                full.add(role)  # its polls stay, and those of other read workers go on
                if len(full) == len(self._readers):
                    break
                continue
            if not self._answer(wish):
                full.clear()
                break
            answered.append(wish.poll)
        for poll in answered:
            self._polls.end(poll)
            self._drop(poll.serial)
        if not full:
            self._to_give.discard(lane.number)

    def _answer(self, wish: Wish) -> bool:
        """Answer with the next messages of the lane. False: it has none."""
        lane, ask, poll = wish.lane, wish.ask, wish.poll
        offsets, ranges = self._next(lane)
        if not offsets and wish.again:
            lane.restart(int(self._plane.queue(lane.slot).min_offset))
            offsets, ranges = self._next(lane)
        if not offsets:
            return False
        serial = self._polls.new_serial() if poll is None else poll.serial
        head = answer_head(FOUND, wish.opaque, (self._generation, serial), ranges.size)
        payload = records_payload([head, ranges], answer_head(AGAIN, wish.opaque))
        assert self._inbox.answer(
            ask.role, lib.RMQ_VERDICT_RECORDS, (ask.connection, ask.connection_generation),
            ask.pending if poll is None else poll.slot, ask.role_generation, payload, tells=True, serial=serial,
            held=poll is not None, wakes=False,
        ), "there was room"  # fmt: skip
        self._answered(ask.role)
        now_ns = time.monotonic_ns()
        lane.name(serial, offsets)
        self._named[serial] = lane
        heappush(self._expiries, (now_ns + UNACKNOWLEDGED_NS, serial))
        if self._notes is not None:
            self._note(f"named {now_ns} {serial} {wish.connection} {lane.number} {','.join(map(str, offsets))}")
        return True

    def _next(self, lane: Lane) -> tuple[Sequence[int], LogRanges]:
        """What one answer may name, at most what a pull would have: queue offsets, and where their records lie."""
        while True:
            try:
                return self._look(lane)
            except DeletedError as gone:
                if not lane.skip_to(gone.next_offset):
                    return (), LogRanges(b"", 0)
                self._keep_low(lane)
                self._note(f"deleted {time.monotonic_ns()} {lane.number} {gone.next_offset}")

    def _look(self, lane: Lane) -> tuple[Sequence[int], LogRanges]:
        offsets: Sequence[int] = ()
        pieces, size = b"", 0
        for first, count in lane.candidates():
            try:
                found = self._reader.ranges(lane.slot, first, count, len(offsets), size)
            except QueueReadError as error:
                if isinstance(error, DeletedError) and not offsets:
                    raise
                break
            run: Sequence[int] = range(first, found.next_offset)
            if len(run) > found.messages:  # there are fillers
                units = self._reader.units(lane.slot, first, len(run)).units
                run = [unit.queue_offset for unit in units if not unit.is_filler][: found.messages]
            offsets = [*offsets, *run] if offsets else run
            pieces, size = pieces + found.pieces, size + found.size
            if found.next_offset < first + count:
                break
        return offsets, LogRanges(pieces, size)

    def _end_due(self, now_ns: int) -> None:
        for poll in self._polls.due(now_ns, DUE_PER_TURN):  # the supervisor kills a worker that does not turn
            wish = self._drop(poll.serial)
            if wish is not None and self._has_room(poll.ask.role):  # else the read worker answers
                self._send(poll.ask, answer_head(NOTHING, wish.opaque), poll)

    def _forget(self, polls: Iterable[Poll]) -> None:
        for poll in polls:
            self._drop(poll.serial)

    def _drop(self, serial: int) -> Wish | None:
        wish = self._wishes.pop(serial, None)
        if wish is not None:
            del self._waiting[wish.lane.number][serial]
        return wish

    # -- messages ------------------------------------------------------------------------------------------

    def _received(self, serial: int) -> None:
        lane = self._named.pop(serial, None)
        if lane is not None and lane.received(serial):
            self._keep_low(lane)

    def _keep_low(self, lane: Lane) -> None:
        self._words[FIRST_WORD + lane.number] = lane.low + 1

    def _free(self, serial: int, why: str, reason: int = 0) -> None:
        """Take a decision back. A notice may come behind the time of an acknowledgement."""
        lane = self._named.pop(serial, None)
        is_named = lane is not None and bool(lane.free(serial))
        if lane is not None and is_named:
            self._to_give.add(lane.number)
        if is_named or why != "expired":
            self._note(f"{why} {time.monotonic_ns()} {serial} {reason}")

    def _free_unacknowledged(self, now_ns: int) -> None:
        while self._expiries and self._expiries[0][0] <= now_ns:
            self._free(heappop(self._expiries)[1], "expired")

    # -- the rest ------------------------------------------------------------------------------------------

    def _has_room(self, role: int) -> bool:
        has_room = self._inbox.room(role) >= ROOM_BYTES
        self._words[FULL_WORD] += not has_room
        return has_room

    def _send(self, ask: Ask, frame: bytes, poll: Poll | None = None) -> None:
        where = ask.connection, ask.connection_generation
        assert self._inbox.answer(
            ask.role, lib.RMQ_VERDICT_SEND, where, ask.pending if poll is None else poll.slot, ask.role_generation,
            frame, serial=0 if poll is None else poll.serial, held=poll is not None,
            wakes=False,
        ), "there was room"  # fmt: skip
        self._answered(ask.role)

    def _answered(self, role: int) -> None:
        """Wake the read worker once for several answers, and at the end of the turn."""
        self._unwoken[role] += 1
        if self._unwoken[role] == ANSWERS_A_WAKE:
            self._wake(role)

    def _wake(self, role: int) -> None:
        self._unwoken[role] = 0
        self._inbox.wake(role)

    def _note(self, line: str) -> None:
        if self._notes is not None:
            self._lines.append(f"{self._generation} {line}\n")

    def _write_notes(self) -> None:
        if self._lines and self._notes is not None:
            os.write(self._notes, "".join(self._lines).encode())
            self._lines.clear()

    def _park(self) -> None:
        wait_ms = IDLE_MS
        if (next_ns := self._polls.next_deadline_ns) is not None:
            wait_ms = min(wait_ms, max(0, (next_ns - time.monotonic_ns()) // 1_000_000 + 1))
        if self._to_give or any(self._backlog.values()):
            wait_ms = min(wait_ms, RETRY_MS)
        plane, role = self._plane, self._role
        plane.arm(role)
        if self._arrivals.is_waiting:
            plane.disarm(role)
            return
        if self._inbox.is_blocked:  # a record has just come, or its writer is at work or dead
            self._blocked += 1
            if self._inbox.unblock() or self._blocked == 1:
                plane.disarm(role)
                return
            wait_ms = BLOCKED_MS
        else:
            self._blocked = 0
        plane.wait(role, wait_ms)


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Answer until SIGTERM."""
    notes = os.environ.get(NOTES)
    role, shell = plane.role(spec.role), PollShell(plane, spec.role, Path(notes) if notes else None)
    shell.begin()
    while not stop.is_set:
        role.progress += 1
        shell.turn()
    role.state = STATE_STOPPING
    shell.close()
    return EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
