"""The thread that reads a slave's log for its proof (`proofs`), so that a slow slave never holds up control."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from ringmq.broker.replication.proofs import LogTail, why_not_proven
from ringmq.broker.replication.state import Replication
from ringmq.ha.log_source import open_log_source

PROOF_MS = 5000
CALL_MS = 2000
STEP_MS = 2
REST_PER_WORK = 4
"""Rest per time of work, so the thread takes a fifth of a CPU. Control and this thread share the interpreter's lock."""


class CpuThrottle:
    """Rests after STEP_MS of the thread's CPU time, REST_PER_WORK times as long as the work."""

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.thread_time_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clock_ns`: the thread's CPU clock."""
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._began_ns = clock_ns()

    def __call__(self) -> None:
        """Rest if it is time. Called after each step of the work."""
        worked_ns = self._clock_ns() - self._began_ns
        if worked_ns >= STEP_MS * 1_000_000:
            self._sleep(worked_ns * REST_PER_WORK / 1e9)
            self._began_ns = self._clock_ns()


class ProofReader:
    """One thread for each proof. It ends with the proof, after at most PROOF_MS and one call of CALL_MS."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        """`on_ended` is called on the thread, to ring the owner's bell."""
        self._on_ended = on_ended
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reading: LogTail | None = None

    def turn(self, replication: Replication, now_ms: int) -> None:
        """Start the due proof, and report the one that has ended."""
        if self._reading is not None:
            try:
                why = self._ended.get_nowait()
            except queue.Empty:
                return
            self._reading = None
            replication.proof_ended(why, now_ms)
        if replication.proofs.wanted is not None:
            self._reading = replication.proofs.wanted
            threading.Thread(target=self._read, args=(self._reading,), daemon=True, name="proof").start()

    def _read(self, tail: LogTail) -> None:
        end_s = time.monotonic() + PROOF_MS / 1000
        try:
            with open_log_source(tail.address, CALL_MS) as read_chunk:
                why = why_not_proven(tail, read_chunk, lambda: time.monotonic() < end_s, CpuThrottle())
        except Exception as error:  # the owner waits for a word, whatever the peer has sent
            why = str(error) or type(error).__name__
        self._ended.put(why)
        self._on_ended()
