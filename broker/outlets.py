"""Control's way out: effects become verdicts in the rings of the read workers, in order, cut into chunks.

A ring that is full makes its reader's verdicts wait here, so that control never does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ringmq.broker.request import Connection, Effect, Hangup, Push, Release, Reply, Run
from ringmq.ipc.plane import NONE, Plane
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.errors import RemotingError

BACKLOG_BYTES_MAX = 64 << 20
"""Waiting verdicts of one reader; above it control takes no further request in."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    kind: int
    connection: Connection
    pending: int
    payload: bytes | memoryview = b""
    last: bool = True


@dataclass(slots=True)
class _Outlet:
    generation: int | None = None
    waiting: deque[_Verdict] = field(default_factory=deque)
    waiting_bytes: int = 0


class Outlets:
    """One outlet per read worker."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._outlets = [_Outlet() for _ in range(lib.RMQ_READERS_MAX)]

    @property
    def is_waiting(self) -> bool:
        """Some verdict has found no room yet."""
        return any(outlet.waiting for outlet in self._outlets)

    @property
    def is_choked(self) -> bool:
        """So much waits that no more should be made."""
        return any(outlet.waiting_bytes > BACKLOG_BYTES_MAX for outlet in self._outlets)

    def start_anew(self, reader: int, generation: int) -> None:
        """The reader runs in this generation: what waits for an older one is for nobody."""
        self._outlets[reader] = _Outlet(generation)

    def send_waiting(self) -> None:
        """Put what has waited, as far as there is room."""
        for outlet in self._outlets:
            while outlet.waiting and self._try(outlet.waiting[0]):
                outlet.waiting_bytes -= len(outlet.waiting.popleft().payload)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Put the verdicts of effects, or let them wait."""
        for effect in effects:
            connection = effect.connection
            match effect:
                case Reply(command=command, pending=pending):
                    self._send(connection, pending, command)
                case Push(command=command):
                    self._send(connection, NONE, command)
                case Run(pending=pending):
                    self._put(_Verdict(lib.RMQ_VERDICT_REDO, connection, pending))
                case Release(pending=pending):
                    self._put(_Verdict(lib.RMQ_VERDICT_DROP, connection, pending))
                case Hangup(pending=kept):
                    self._put(_Verdict(lib.RMQ_VERDICT_CLOSE, connection, NONE if kept is None else kept))

    def _send(self, connection: Connection, pending: int, command: RemotingCommand) -> None:
        try:
            frame = encode_frame(command)
        except RemotingError as error:
            frame = encode_frame(RemotingCommand.response_to(command, ResponseCode.SYSTEM_ERROR, str(error)))
        size, view = self._plane.verdict_chunk_bytes, memoryview(frame)
        for begin in range(0, len(frame), size):
            last = begin + size >= len(frame)
            self._put(_Verdict(lib.RMQ_VERDICT_SEND, connection, pending, view[begin : begin + size], last))

    def _put(self, verdict: _Verdict) -> None:
        connection = verdict.connection
        outlet = self._outlets[connection.reader]
        if outlet.generation not in (None, connection.reader_generation):
            return
        if outlet.waiting or not self._try(verdict):
            outlet.waiting.append(verdict)
            outlet.waiting_bytes += len(verdict.payload)

    def _try(self, verdict: _Verdict) -> bool:
        connection = verdict.connection
        return self._plane.verdict(
            connection.reader,
            verdict.kind,
            (connection.number, connection.generation),
            verdict.pending,
            connection.reader_generation,
            verdict.payload,
            verdict.last,
        )
