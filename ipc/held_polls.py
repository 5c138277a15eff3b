"""Polls that read workers hold for an answerer: the answerer's side (native/src/reader/held.h is the reader's).

The core takes asks, notices and the time. It gives no poll that may not be answered any more, and forgets what a dead
read worker has held. A service with polls does not rest.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator

from msgspec import Struct

from ringmq.ipc.answerers import ANSWER_BYTES
from ringmq.ipc.asks import Ask, Unsent
from ringmq.native import ffi, lib

_HOLD = struct.Struct("=IIIIq")
_AGAIN = struct.Struct("=q")
PAYLOAD_BYTES_MAX: int = ANSWER_BYTES // 4 - ffi.sizeof("struct rmq_verdict")
"""`Inbox.chunk_bytes` of a ring with ANSWER_BYTES."""
FRAME_BYTES_MIN = 8
DUE_MAX = 1024
"""Polls that one turn ends. Clients choose their deadlines, and may give 65,536 of a reader the same one."""
DEADLINES_LEFT = 64
"""Deadlines of polls that are over, beside one for each poll that is not."""


class Poll(Struct):
    """A poll in a slot of a read worker."""

    ask: Ask
    """Its payload is that of the first ask, also when a predecessor has held it."""
    slot: int
    serial: int
    deadline_ns: int
    """Of the monotonic clock."""


class Held(Struct, frozen=True):
    """The verdict that holds a poll: `Inbox.answer` with kind RMQ_VERDICT_HOLD, this serial and payload."""

    poll: Poll
    payload: bytes


class _Reader(Struct):
    generation: int
    free: list[int]
    used: int = 0
    """Slots from here on have never been taken."""
    polls: dict[int, Poll] = {}
    connections: dict[tuple[int, int], set[int]] = {}


def _is_at_most(generation: int, other: int) -> bool:
    """Generations count on beyond 32 bits."""
    return (other - generation) & 0xFFFFFFFF < 1 << 31


def first_ask(ask: Ask) -> tuple[Ask, int | None]:
    """An ask as the client's, and its deadline if a predecessor has held it (RMQ_INBOX_HELD)."""
    if ask.type != lib.RMQ_INBOX_HELD:
        return ask, None
    (deadline_ns,) = _AGAIN.unpack_from(ask.payload)
    fields = {name: getattr(ask, name) for name in ask.__struct_fields__}
    fields |= {"type": lib.RMQ_INBOX_COLD_FRAME, "payload": ask.payload[_AGAIN.size :]}
    return Ask(**fields), int(deadline_ns)


class HeldPolls:
    """The polls of one answerer. `per_reader`: slots that it uses of each read worker. `payload_bytes_max`:
    `Inbox.chunk_bytes` of its rings."""

    def __init__(self, per_reader: int = lib.RMQ_HELD_SLOTS, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self._per_reader = min(per_reader, int(lib.RMQ_HELD_SLOTS))
        self._payload_bytes_max = payload_bytes_max
        self._readers: dict[int, _Reader] = {}
        self._serial = 0
        self._serials: dict[int, Poll] = {}
        self._deadlines: list[tuple[int, int, int, int, int]] = []

    def __len__(self) -> int:
        return sum(len(reader.polls) for reader in self._readers.values())

    @property
    def is_idle(self) -> bool:
        """True if the answerer may rest."""
        return not len(self)

    def see_reader(self, role: int, generation: int) -> list[Poll]:
        """Forget the polls of an older process of the read worker, and return them. Call it before messages are given
        to any poll of the role."""
        reader = self._readers.get(role)
        if reader is not None and _is_at_most(generation, reader.generation):
            return []
        self._readers[role] = _Reader(generation, [])
        gone = list(reader.polls.values()) if reader else []
        for poll in gone:
            del self._serials[poll.serial]
        self._drop_deadlines()
        return gone

    def new_serial(self) -> int:
        """The number of an answer that is given at once and tells: none of a poll, so UNSENT of it ends no poll."""
        self._serial = self._serial % 0xFFFFFFFF + 1
        return self._serial

    def hold(self, ask: Ask, deadline_ns: int, answer: bytes) -> Held | None:
        """Give the poll a slot. None if there is none, its frame is too large for the ring, or its read worker is dead:
        answer it at once. `answer`: the frame for the deadline. Raises ValueError if that is no frame.

        Look for messages once more afterwards: one that has come in between finds the poll, or is found.
        """
        if len(answer) < FRAME_BYTES_MIN:
            raise ValueError(f"the answer for the deadline has {len(answer)} bytes, a frame at least {FRAME_BYTES_MIN}")
        self.see_reader(ask.role, ask.role_generation)
        reader = self._readers[ask.role]
        has_slot = reader.free or reader.used < self._per_reader
        is_large = _HOLD.size + len(ask.payload) + len(answer) > self._payload_bytes_max
        if not has_slot or is_large or reader.generation != ask.role_generation:
            return None
        if reader.free:
            slot = reader.free.pop()
        else:
            slot, reader.used = reader.used, reader.used + 1
        poll = Poll(ask, slot, self.new_serial(), deadline_ns)
        reader.polls[slot] = self._serials[poll.serial] = poll
        reader.connections.setdefault((ask.connection, ask.connection_generation), set()).add(slot)
        heapq.heappush(self._deadlines, (deadline_ns, poll.serial, ask.role, ask.role_generation, slot))
        head = _HOLD.pack(slot, len(ask.payload), len(answer), 0, deadline_ns)
        return Held(poll, head + ask.payload + answer)

    def may_answer(self, poll: Poll, now_ns: int) -> bool:
        """True if the read worker still waits for an answer. Look for room in its ring (`Inbox.room`) before you decide
        on one: if there is none, the poll stays where it is."""
        return self._of(poll) is poll and now_ns < poll.deadline_ns

    def end(self, poll: Poll) -> None:
        """The poll is answered, or given up: its slot is free."""
        if self._of(poll) is not poll:
            return
        reader = self._readers[poll.ask.role]
        del reader.polls[poll.slot], self._serials[poll.serial]
        reader.free.append(poll.slot)
        key = (poll.ask.connection, poll.ask.connection_generation)
        reader.connections[key].discard(poll.slot)
        if not reader.connections[key]:
            del reader.connections[key]
        self._drop_deadlines()

    def closed(self, ask: Ask) -> list[Poll]:
        """Forget the polls of the connection that a record RMQ_INBOX_CLOSED names, and return them."""
        reader = self._readers.get(ask.role)
        if reader is None or reader.generation != ask.role_generation:
            return []
        slots = reader.connections.get((ask.connection, ask.connection_generation), ())
        gone = [reader.polls[slot] for slot in slots]
        for poll in gone:
            self.end(poll)
        return gone

    def unsent(self, said: Unsent) -> Poll | None:
        """The poll that a notice names, which is over: the read worker does not hold it (any more). None for others,
        such as an answer to another ask whose serial is the same number."""
        poll = self._serials.get(said.serial)
        if poll is None or (poll.ask.role, poll.ask.role_generation) != (said.role, said.asker_generation):
            return None
        if said.pending != (poll.slot if said.is_held else poll.ask.pending):
            return None
        self.end(poll)
        return poll

    def due(self, now_ns: int, most: int = DUE_MAX) -> Iterator[Poll]:
        """At most `most` polls whose deadline is over, the earliest first; they are over here, too. Their answerer
        answers them, or their read worker does RMQ_HELD_GRACE_MS later."""
        while most > 0 and self._deadlines and self._deadlines[0][0] <= now_ns:
            _, serial, role, generation, slot = heapq.heappop(self._deadlines)
            reader = self._readers[role]
            poll = reader.polls.get(slot) if reader.generation == generation else None
            if poll is not None and poll.serial == serial:
                self.end(poll)
                most -= 1
                yield poll

    @property
    def next_deadline_ns(self) -> int | None:
        """The time of the next call of `due`, or earlier. None: there is none."""
        return self._deadlines[0][0] if self._deadlines else None

    def _drop_deadlines(self) -> None:
        """Most polls end long before their deadline, and clients choose how many there are."""
        if len(self._deadlines) > 2 * len(self._serials) + DEADLINES_LEFT:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._serials]
            heapq.heapify(self._deadlines)

    def _of(self, poll: Poll) -> Poll | None:
        reader = self._readers.get(poll.ask.role)
        return reader.polls.get(poll.slot) if reader and reader.generation == poll.ask.role_generation else None
