"""Calls to other servers (name servers, a slave's master) on threads, so that a slow one never holds up control.

Control hands in (address, request) and picks up the outcomes; what to ask whom and when is decided elsewhere
(`registration`, `slave_role`).
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ringmq.remoting.command import MAX_FRAME_BYTES, RemotingCommand, encode_frame
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.frame import FrameDecoder

CONNECT_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended; `error` is None when the server answered 0. `answer` is None when it did not answer."""

    address: str
    error: str | None
    answer: RemotingCommand | None = None
    request_code: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    command: RemotingCommand
    timeout_s: float
    kept_only: bool


class OutsideCalls:
    """One thread and one connection per address; the calls to one address are made one after another."""

    def __init__(self, on_outcome: Callable[[], None]) -> None:
        """`on_outcome` is called from a thread of ours after each call, to ring the owner's bell."""
        self._on_outcome = on_outcome
        self._jobs: dict[str, queue.SimpleQueue[_Job | None]] = {}
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def call(self, address: str, command: RemotingCommand, timeout_ms: int, *, kept_only: bool = False) -> None:
        """Send `command` and wait for its answer, on the address's own thread.

        `kept_only`: only over the connection of earlier calls, because a name server that was started anew would
        take a part for the whole.
        """
        jobs = self._jobs.get(address)
        if jobs is None:
            jobs = self._jobs[address] = queue.SimpleQueue()
            thread = threading.Thread(target=self._serve, args=(address, jobs), daemon=True, name=f"to {address}")
            self._threads.append(thread)
            thread.start()
        jobs.put(_Job(command, timeout_ms / 1000, kept_only))

    def outcomes(self) -> list[Outcome]:
        """Calls that have ended since the last look."""
        ended = []
        while True:
            try:
                ended.append(self._outcomes.get_nowait())
            except queue.Empty:
                return ended

    def forget(self, address: str) -> None:
        """No more calls to this address: close its connection when those given so far have ended."""
        jobs = self._jobs.pop(address, None)
        if jobs is not None:
            jobs.put(None)

    def close(self, timeout_s: float) -> None:
        """Let the jobs given so far end, at most `timeout_s` for each address."""
        for jobs in self._jobs.values():
            jobs.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    def _serve(self, address: str, jobs: queue.SimpleQueue[_Job | None]) -> None:
        link = _Link(address)
        while (job := jobs.get()) is not None:
            error, answer = link.call(job)
            self._outcomes.put(Outcome(address, error, answer, job.command.code))
            self._on_outcome()
        link.close()


class _Link:
    """A connection that is made when needed and given up at the first fault."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._socket: socket.socket | None = None
        self._opaque = 0

    def call(self, job: _Job) -> tuple[str | None, RemotingCommand | None]:
        """(what went wrong, the answer). A kept connection may be stale: try once more."""
        fresh = self._socket is None
        if fresh and job.kept_only:
            return "the connection was lost", None
        error, answer = self._try(job.command, job.timeout_s)
        if error is not None and not fresh and self._socket is None and not job.kept_only:
            error, answer = self._try(job.command, job.timeout_s)
        return error, answer

    def _try(self, command: RemotingCommand, timeout_s: float) -> tuple[str | None, RemotingCommand | None]:
        try:
            answer = self._exchange(command, timeout_s)
        except (OSError, RemotingError) as error:
            self.close()
            return str(error) or type(error).__name__, None
        if answer.code:
            return f"answered {answer.code}: {answer.remark}", answer
        return None, answer

    def _exchange(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        if self._socket is None:
            self._socket = socket.create_connection((self._host, self._port), min(CONNECT_TIMEOUT_S, timeout_s))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opaque += 1
        command.opaque = self._opaque
        self._socket.settimeout(timeout_s)
        self._socket.sendall(encode_frame(command))
        decoder = FrameDecoder(MAX_FRAME_BYTES)
        while True:
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            for received in decoder.feed(data):
                if received.is_response and received.opaque == command.opaque:
                    return received

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
