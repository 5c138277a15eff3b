"""Asks: questions of one role to another, and their answers (native/src/plane/asks.h; the protocol is in layout.h).

An answerer has an `Inbox`. A Python role that asks has an `Asker` for each answerer. Read workers and dispatch ask in
C.
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum
from functools import cached_property
from typing import Any

from msgspec import Struct

from ringmq.ipc.plane import NONE, Plane
from ringmq.native import ffi, lib


class RedoRule(IntEnum):
    """Rules of a send that a read worker runs again: the topic of its message (native/src/reader/redo_rules.c)."""

    UNCHANGED = lib.RMQ_REDO_UNCHANGED
    DEAD_LETTER = lib.RMQ_REDO_DEAD_LETTER
    """A send to a retry topic goes to the dead letters of the group."""


class Ask(Struct, frozen=True):
    """One record of an inbox. `payload` is a copy."""

    type: int
    """RMQ_INBOX_*."""
    role: int
    """The asker's role."""
    role_generation: int
    connection: int
    connection_generation: int
    pending: int
    """The asker's token."""
    frame_length: int
    peer_host: bytes
    peer_port: int
    listener: int
    received_mono_ns: int
    payload: bytes


class Unsent(Struct, frozen=True):
    """An answer of which the client has received no byte: its answerer takes back what it has decided with it."""

    role: int
    asker_generation: int
    """Of the read worker that it was for."""
    pending: int
    """The token of the ask. `is_held`: the slot."""
    serial: int
    """The answerer's number of the answer."""
    reason: int
    """RMQ_UNSENT_*."""
    is_held: bool = False
    """True if it was the answer to a held poll."""


class AskAnswer(Struct, frozen=True):
    """The answer of an answerer to a role without connections."""

    pending: int
    """The token of the ask."""
    payload: bytes


def _answerer_of(plane: Plane, role: int) -> int:
    answerer = int(lib.rmq_answerer_find(plane.struct, role))
    if answerer == NONE:
        raise KeyError(f"role {role} is not an answerer")
    return answerer


class Inbox:
    """The inbox of the answerer with this role, and its rings of answers. Raises KeyError if the role is no
    answerer."""

    def __init__(self, plane: Plane, role: int = lib.RMQ_ROLE_CONTROL) -> None:
        self._plane = plane
        self._answerer = _answerer_of(plane, role)
        self._generation = int(plane.role(role).generation)
        self.row = plane.header.asks.answerer[self._answerer]
        self._head = ffi.new("struct rmq_verdict *")

    @property
    def answerer(self) -> int:
        """Number of the answerer, for a C loop that takes asks."""
        return self._answerer

    @property
    def codes(self) -> tuple[int, ...]:
        """Codes of the client requests that this answerer and no other gets."""
        return tuple(self.row.codes[number] for number in range(self.row.code_count))

    def begin(self) -> None:
        """Start to serve: the role's state becomes SERVING, and askers wait for its answers."""
        lib.rmq_inbox_start(self._plane.struct, self._answerer)

    def take(self) -> Ask | None:
        """Copy the next ask out and free its slot. Skips void asks. None if no complete ask waits."""
        plane, answerer = self._plane.struct, self._answerer
        while (record := lib.rmq_inbox_take(plane, answerer)) != ffi.NULL:
            if lib.rmq_ask_is_void(plane, answerer, record):
                lib.rmq_inbox_done(plane, answerer, record)
                continue
            size = ffi.sizeof("struct rmq_inbox_record")
            host = bytes(ffi.buffer(record.peer_host)[: 16 if record.peer_v6 else 4])
            taken = Ask(
                record.type, record.role, record.role_generation, record.connection, record.connection_generation,
                record.pending, record.frame_length, host, record.peer_port, record.listener,
                record.received_mono_ns, bytes(ffi.buffer(ffi.cast("char *", record) + size, record.length - size)),
            )  # fmt: skip
            lib.rmq_inbox_done(plane, answerer, record)
            return taken
        return None

    def unsent(self, ask: Ask) -> Unsent | None:
        """The notice in a record of type RMQ_INBOX_UNSENT. None if the answer was one of a predecessor."""
        said = ffi.from_buffer("struct rmq_unsent *", ask.payload)
        if said.answerer_generation != self._generation:
            return None
        is_held = bool(said.flags & lib.RMQ_VERDICT_HELD)
        return Unsent(ask.role, said.asker_generation, ask.pending, said.serial, said.reason, is_held)

    def unconsumed(self, role: int, generation: int) -> list[Unsent]:
        """Answers of this process that a dead read worker has left in its ring, of those that tell. Call it when the
        role has another generation. The replacement tells of the same answers, if it comes to them first."""
        position, found = ffi.new("uint64_t *"), []
        while (verdict := lib.rmq_verdict_waiting(self._plane.struct, self._answerer, role, position)) != ffi.NULL:
            is_own = verdict.asker_generation == generation and verdict.answerer_generation == self._generation
            is_whole = verdict.last or verdict.type == lib.RMQ_VERDICT_RECORDS
            if is_own and is_whole and verdict.flags & lib.RMQ_VERDICT_TELLS:
                is_held = bool(verdict.flags & lib.RMQ_VERDICT_HELD)
                found.append(Unsent(role, generation, verdict.pending, verdict.serial, lib.RMQ_UNSENT_STALE, is_held))
        return found

    @property
    def is_blocked(self) -> bool:
        """True if there is a claimed record, complete or not."""
        return bool(self.row.inbox.head != self.row.inbox.tail)

    def unblock(self) -> bool:
        """Free an orphaned claim at the tail, if there is one."""
        return bool(lib.rmq_inbox_unblock(self._plane.struct, self._answerer))

    @cached_property
    def chunk_bytes(self) -> int:
        """Largest payload of one answer to a read worker."""
        capacity = int(self.row.answers[self._plane.readers[0].role].capacity)
        return capacity // 4 - int(ffi.sizeof("struct rmq_verdict"))

    def answer(
        self, role: int, kind: int, connection: tuple[int, int] = (0, 0), pending: int = NONE,
        generation: int = 0, payload: bytes | memoryview = b"", last: bool = True,
        rule: RedoRule = RedoRule.UNCHANGED, tells: bool = False, serial: int = 0, held: bool = False,
        wakes: bool = True,
    ) -> bool:  # fmt: skip
        """Put one answer, chunked to `chunk_bytes`, for the asker with this role and generation. False if the ring is
        full. Raises ValueError if the answer is too large. `tells`: the asker puts an UNSENT with this serial into the
        inbox if the client receives no byte of the answer. `held`: the answer is for a held poll, `pending` its slot,
        `serial` its serial (ipc/held_polls.py). Without `wakes` the asker may sleep on until `wake`: a turn that gives
        many answers costs the asker one turn then, not one each."""
        head = self._head
        head.type, head.last, head.rule = kind, int(last), rule
        head.flags = (lib.RMQ_VERDICT_TELLS if tells else 0) | (lib.RMQ_VERDICT_HELD if held else 0)
        head.serial = serial
        head.connection, head.connection_generation = connection
        head.pending, head.asker_generation = pending, generation
        data = payload if type(payload) is bytes else ffi.from_buffer(payload)
        put = lib.rmq_verdict_put if wakes else lib.rmq_verdict_add
        code = put(self._plane.struct, self._answerer, role, head, data, len(payload))
        if code not in (0, -errno.ENOBUFS):
            raise ValueError(f"an answer of {len(payload)} bytes to role {role}: {os.strerror(-code)}")
        return bool(code == 0)

    def wake(self, role: int) -> None:
        """Wake the asker with this role, behind answers without `wakes`."""
        lib.rmq_role_wake(self._plane.struct, role)

    def room(self, role: int) -> int:
        """Bytes of a payload for which the ring of this asker has room now, wherever the ring ends."""
        ring = self.row.answers[role]
        free = int(ring.capacity) - int(ring.head - ring.tail)
        return max(0, min(free // 2, int(ring.capacity) // 4) - int(ffi.sizeof("struct rmq_verdict")) - 8)

    def answer_role(self, ask: Ask, payload: bytes) -> bool:
        """Answer an ask of a role without connections. False if the ring is full."""
        return self.answer(ask.role, lib.RMQ_VERDICT_PAYLOAD, (0, 0), ask.pending, ask.role_generation, payload)


class Asker:
    """A Python role that asks another. The role chooses its tokens, from 0 to NONE - 1."""

    def __init__(self, plane: Plane, role: int, answerer_role: int) -> None:
        self._plane, self._role = plane, role
        self._answerer = _answerer_of(plane, answerer_role)
        self._generation = int(plane.role(role).generation)

    @property
    def ring(self) -> Any:
        """The ring of answers (struct rmq_ring *), for a wait that looks at it."""
        return ffi.addressof(self._plane.header.asks.answerer[self._answerer], "answers", self._role)

    def ask(self, kind: int, pending: int, payload: bytes) -> bool:
        """Put an ask. False if the inbox is full. Raises ValueError if the ask is too large."""
        return self.put(kind, pending, payload, 0) is not None

    def put(self, kind: int, pending: int, payload: bytes, received_ns: int) -> int | None:
        """Put an ask, and return its position in the inbox. None if that is full. Raises ValueError if the ask is too
        large. `received_ns`: time of the monotonic clock, behind which an answerer without a process has
        RMQ_ASK_TIMEOUT_MS to start; else the ask is void. 0: it may take as long as it must."""
        head, position = ffi.new("struct rmq_inbox_record *"), ffi.new("uint64_t *")
        head.type, head.role, head.role_generation = kind, self._role, self._generation
        head.pending, head.received_mono_ns = pending, received_ns
        code = int(lib.rmq_inbox_put(self._plane.struct, self._answerer, head, payload, len(payload), position))
        if code not in (0, -errno.ENOBUFS):
            raise ValueError(f"an ask of {len(payload)} bytes to answerer {self._answerer}: {os.strerror(-code)}")
        return int(position[0]) if code == 0 else None

    def is_lost(self, position: int, received_ns: int, now_ns: int) -> bool:
        """True if an ask without an answer gets none any more: its answerer has died with it, or has not started in
        time. Take the answers behind this look: one may be there. `now_ns` is read before the call."""
        return bool(lib.rmq_ask_is_lost(self._plane.struct, self._answerer, position, received_ns, now_ns))

    def answers(self) -> list[AskAnswer]:
        """The answers since the last call, without those to asks of an older process of this role."""
        plane, found = self._plane.struct, []
        while (verdict := lib.rmq_verdict_take(plane, self._answerer, self._role)) != ffi.NULL:
            if verdict.asker_generation == self._generation and verdict.type == lib.RMQ_VERDICT_PAYLOAD:
                size = ffi.sizeof("struct rmq_verdict")
                payload = bytes(ffi.buffer(ffi.cast("char *", verdict) + size, verdict.length - size))
                found.append(AskAnswer(int(verdict.pending), payload))
            lib.rmq_verdict_done(plane, self._answerer, self._role, verdict)
        return found

    @property
    def has_answers(self) -> bool:
        """True if an answer waits. Check it between arming the bell and waiting."""
        ring = self._plane.header.asks.answerer[self._answerer].answers[self._role]
        return bool(ring.head != ring.tail)
