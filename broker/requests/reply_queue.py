"""The reply queues of a role that answers clients: effects become verdicts in its rings of answers to the read workers,
in order, cut into chunks.

If a ring is full, its reader's verdicts wait here, so that the role never waits. Large frames have a queue of their own
and a share of each turn, so that answers to other connections pass them. The order within a connection stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct, field

from ringmq.broker.requests.request import Connection, Effect, Hangup, Push, Records, Release, Reply, Run
from ringmq.ipc.asks import Inbox, RedoRule
from ringmq.ipc.plane import NONE
from ringmq.ipc.ports import Reader
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_parts
from ringmq.remoting.errors import RemotingError

BACKLOG_BYTES_MAX = 64 << 20
"""Waiting verdicts of one reader. Above it control takes no further request."""
BACKLOG_BYTES_LARGE = 16 << 20
"""Waiting verdicts above which requests with a large answer pause."""
LARGE_FRAME_BYTES = 65_536
LARGE_CHUNK_BYTES = 262_144
LARGE_BYTES_A_TURN = 4 << 20
"""Bytes of large frames in one turn of control, some 2 ms of copying."""


class _Verdict(Struct, frozen=True):
    kind: int
    connection: Connection
    pending: int
    payload: bytes | memoryview = b""
    last: bool = True
    rule: RedoRule = RedoRule.UNCHANGED


class _ReplyQueue(Struct):
    generation: int | None = None
    waiting: deque[_Verdict] = field(default_factory=deque)
    large: deque[_Verdict] = field(default_factory=deque)
    """Large frames in chunks, and all verdicts behind them on their connections."""
    in_large: dict[Connection, int] = field(default_factory=dict)
    """Connection -> number of its verdicts in `large`."""
    ended: set[Connection] = field(default_factory=set)
    """Closed connections of `in_large`."""
    waiting_bytes: int = 0


class ReplyQueues:
    """One reply queue per read worker. `inbox`: that of the answering role."""

    def __init__(self, readers: Iterable[Reader], inbox: Inbox) -> None:
        self._inbox = inbox
        self._roles = {reader.port: reader.role for reader in readers}
        self._queues = {port: _ReplyQueue() for port in self._roles}
        self._large_left = LARGE_BYTES_A_TURN

    def role_of(self, reader: int) -> int:
        """Role of the read worker with this port."""
        return self._roles[reader]

    @property
    def is_waiting(self) -> bool:
        """True if some verdict does not fit into its ring yet."""
        return any(queue.waiting or queue.large for queue in self._queues.values())

    def backlog_bytes(self) -> int:
        """The largest number of bytes that wait for one read worker."""
        return max(queue.waiting_bytes for queue in self._queues.values())

    @property
    def is_full(self) -> bool:
        """True if the backlog is so large that no more answers should be made."""
        return self.backlog_bytes() > BACKLOG_BYTES_MAX

    def start_anew(self, reader: int, generation: int) -> None:
        """Set the generation of a reader, and drop the verdicts for an older one."""
        self._queues[reader] = _ReplyQueue(generation)

    def end(self, connection: Connection) -> None:
        """Drop the verdicts of a closed connection."""
        queue = self._queues[connection.reader]
        if connection in queue.in_large:
            queue.ended.add(connection)

    def send_waiting(self) -> None:
        """Begin a turn: put waiting verdicts, as far as they fit."""
        self._large_left = LARGE_BYTES_A_TURN
        for queue in self._queues.values():
            while queue.waiting and self._try(queue.waiting[0]):
                queue.waiting_bytes -= len(queue.waiting.popleft().payload)
            self._send_large(queue)

    def _send_large(self, queue: _ReplyQueue) -> None:
        while queue.large and not queue.waiting and self._large_left > 0:
            verdict = queue.large[0]
            connection = verdict.connection
            if connection in queue.ended:
                if verdict.last and verdict.pending != NONE and not self._try(_dropped(verdict)):
                    return
            elif self._try(verdict):
                self._large_left -= len(verdict.payload)
            else:
                return
            queue.large.popleft()
            queue.waiting_bytes -= len(verdict.payload)
            queue.in_large[connection] -= 1
            if not queue.in_large[connection]:
                del queue.in_large[connection]
                queue.ended.discard(connection)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Put the verdicts of effects, or queue them."""
        for effect in effects:
            connection = effect.connection
            match effect:
                case Reply(command=command, pending=pending):
                    self._send(connection, pending, command)
                case Push(command=command):
                    self._send(connection, NONE, command)
                case Run(pending=pending, rule=rule):
                    self._put(_Verdict(lib.RMQ_VERDICT_REDO, connection, pending, rule=rule))
                case Records(payload=payload, pending=pending):
                    self._put(_Verdict(lib.RMQ_VERDICT_RECORDS, connection, pending, payload))
                case Release(pending=pending):
                    self._put(_Verdict(lib.RMQ_VERDICT_DROP, connection, pending))
                case Hangup(pending=kept):
                    self._put(_Verdict(lib.RMQ_VERDICT_CLOSE, connection, NONE if kept is None else kept))
        for queue in self._queues.values():
            self._send_large(queue)

    def _send(self, connection: Connection, pending: int, command: RemotingCommand) -> None:
        try:
            head, body = encode_parts(command)
        except RemotingError as error:
            head, body = encode_parts(RemotingCommand.response_to(command, ResponseCode.SYSTEM_ERROR, str(error)))
        if len(head) + len(body) <= min(LARGE_FRAME_BYTES, self._inbox.chunk_bytes):
            self._put(_Verdict(lib.RMQ_VERDICT_SEND, connection, pending, head + body))
            return
        size = min(LARGE_CHUNK_BYTES, self._inbox.chunk_bytes)
        chunks = [
            memoryview(part)[begin : begin + size] for part in (head, body) for begin in range(0, len(part), size)
        ]
        for number, chunk in enumerate(chunks, 1):
            verdict = _Verdict(lib.RMQ_VERDICT_SEND, connection, pending, chunk, number == len(chunks))
            self._put(verdict, is_large=True)

    def _put(self, verdict: _Verdict, *, is_large: bool = False) -> None:
        connection = verdict.connection
        queue = self._queues[connection.reader]
        if queue.generation not in (None, connection.reader_generation):
            return
        if is_large or connection in queue.in_large:
            queue.large.append(verdict)
            queue.in_large[connection] = queue.in_large.get(connection, 0) + 1
        elif not queue.waiting and self._try(verdict):
            return
        else:
            queue.waiting.append(verdict)
        queue.waiting_bytes += len(verdict.payload)

    def _try(self, verdict: _Verdict) -> bool:
        connection = verdict.connection
        return self._inbox.answer(
            self._roles[connection.reader],
            verdict.kind,
            (connection.number, connection.generation),
            verdict.pending,
            connection.reader_generation,
            verdict.payload,
            verdict.last,
            verdict.rule,
        )


def _dropped(verdict: _Verdict) -> _Verdict:
    return _Verdict(lib.RMQ_VERDICT_DROP, verdict.connection, verdict.pending)
