"""Calls to other servers (name servers, a slave's master) on threads, so that a slow one never holds up control.

Control hands in (address, request) and picks up the outcomes; what to ask whom and when is decided elsewhere
(`registration`, `slave_role`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ringmq.ha.broker_line import BrokerLine
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.errors import RemotingError


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
    timeout_ms: int
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
        jobs.put(_Job(command, timeout_ms, kept_only))

    def outcomes(self) -> list[Outcome]:
        """Calls that have ended since the last look."""
        ended = []
        while True:
            try:
                ended.append(self._outcomes.get_nowait())
            except queue.Empty:
                return ended

    def close(self, timeout_s: float) -> None:
        """Let the jobs given so far end, at most `timeout_s` for each address."""
        for jobs in self._jobs.values():
            jobs.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    def _serve(self, address: str, jobs: queue.SimpleQueue[_Job | None]) -> None:
        line = BrokerLine(address)
        while (job := jobs.get()) is not None:
            self._outcomes.put(_call(line, job))
            self._on_outcome()
        line.close()


def _call(line: BrokerLine, job: _Job) -> Outcome:
    code = job.command.code
    try:
        answer = line.ask(job.command, job.timeout_ms, kept_only=job.kept_only)
    except (OSError, RemotingError) as error:
        return Outcome(line.address, str(error) or type(error).__name__, None, code)
    error_text = f"answered {answer.code}: {answer.remark}" if answer.code else None
    return Outcome(line.address, error_text, answer, code)
