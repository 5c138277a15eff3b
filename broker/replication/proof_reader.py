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


class ProofReader:
    """One thread for each proof, which ends with it: at most PROOF_MS and one call of CALL_MS later."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        """`on_ended` is called on the thread, to ring the owner's bell."""
        self._on_ended = on_ended
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reading: LogTail | None = None

    def turn(self, replication: Replication) -> None:
        """Start the proof that is wanted, hand in the one that has ended."""
        if self._reading is not None:
            try:
                why = self._ended.get_nowait()
            except queue.Empty:
                return
            self._reading = None
            replication.proof_ended(why)
        if replication.proofs.wanted is not None:
            self._reading = replication.proofs.wanted
            threading.Thread(target=self._read, args=(self._reading,), daemon=True, name="proof").start()

    def _read(self, tail: LogTail) -> None:
        end_s = time.monotonic() + PROOF_MS / 1000
        try:
            with open_log_source(tail.address, CALL_MS) as read_chunk:
                why = why_not_proven(tail, read_chunk, lambda: time.monotonic() < end_s)
        except Exception as error:  # the owner waits for a word, whatever the peer has sent
            why = str(error) or type(error).__name__
        self._ended.put(why)
        self._on_ended()
