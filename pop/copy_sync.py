"""A slave's copy of its master's POP memory: the requests, and their answers in pieces. No IO.

    idle --due--> first piece --> next piece --> whole --taken over--> idle
           idle <--nothing new--+ +--> next     idle <--failed, dropped--+

One copy is on its way at a time. The slave relies on it once its own log has all that the master's had at that moment
(`slave_progress.py`). Stock masters and earlier versions do not know the request: they are asked ever more rarely.
"""

from __future__ import annotations

from msgspec import Struct, field

from ringmq.ha.slave_sync import Ask
from ringmq.remoting import json_body
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.pop_copy_headers import (
    COPY_BYTES_MAX,
    NAMES_BYTES_MAX,
    PIECE_BYTES_MAX,
    PopProgressRequestHeader,
    PopProgressResponseHeader,
)

PERIOD_MS = 250
RETRY_FIRST_MS, RETRY_MAX_MS = 1000, 60_000
TIMEOUT_MS = 3000
WAIT_MS_MAX = 600_000
"""Time that a whole copy waits for the slave's log."""


class Known(Struct, frozen=True):
    """The state of the slave: run of the master and snapshot, bytes and CRC-32 of `names`. All 0: it has no copy."""

    run: int = 0
    snapshot: int = 0
    names_bytes: int = 0
    names_crc: int = 0


class CopySync(Struct):
    """The schedule of requests. `known`: the state of the slave, which `taken_over` changes."""

    known: Known = Known()
    master: str = ""
    next_ms: int = 0
    coming: PopProgressResponseHeader | None = None
    """The copy that is on its way, or whole."""
    came_ms: int = 0
    """Time of its last piece so far."""
    is_gone: bool = False
    """True if the slave has a copy that does not count any more, because the master has no memory of POP."""
    _pieces: list[bytes] = field(default_factory=list)
    _received: int = 0
    _failures: int = 0
    _is_asking: bool = False
    needs_end: bool = False

    def master_is(self, address: str, now_ms: int) -> None:
        """Set the master's broker address, "" while none is known."""
        if address == self.master:
            return
        self.master, self.next_ms, self._failures, self._is_asking = address, now_ms, 0, False
        self._forget()

    def due(self, now_ms: int, own_end: int = 0) -> Ask | None:
        """The request to send now. None if there is none."""
        if not self.master or self._is_asking or self.is_whole or self.is_gone:
            return None
        if self.coming is None and now_ms < self.next_ms:
            return None
        self._is_asking = True
        known = self.known
        asked = PopProgressRequestHeader(
            run=known.run, snapshot=known.snapshot, names_bytes=known.names_bytes, names_crc=known.names_crc
        )
        if self.coming is None:
            self.next_ms = now_ms + PERIOD_MS
        else:
            asked.copy_id, asked.offset = self.coming.copy_id, self._received
        return Ask(self.master, RequestCode.POP_PROGRESS, asked.encode(), TIMEOUT_MS)

    def answered(self, ask: Ask, answer: RemotingCommand, now_ms: int) -> None:
        """Take a piece. Raises RemotingError for an impossible one, which ends the copy."""
        if ask.address != self.master:
            return
        self._is_asking = False
        try:
            found = PopProgressResponseHeader.decode(answer.ext_fields or {})
            _check(found, bytes(answer.body), self.coming, self._received)
            _check_names(found, self.known)
        except BaseException:
            self._pause(now_ms)
            raise
        if found.size:
            self.coming = found
            self._pieces.append(bytes(answer.body))
            self._received += len(answer.body)
            self.came_ms = now_ms
        else:
            self.is_gone = not found.run and self.known.run != 0

    def failed(self, ask: Ask, now_ms: int) -> None:
        """Begin anew after a pause, because the master has not answered, or with an error."""
        if ask.address == self.master:
            self._is_asking = False
            self._pause(now_ms)

    def refused(self, ask: Ask, code: int, now_ms: int) -> None:
        """See `failed`. A copy does not outlive a master that knows nothing of it: that one writes records instead."""
        self.failed(ask, now_ms)
        if ask.address == self.master and code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self.is_gone = self.known.run != 0

    @property
    def is_whole(self) -> bool:
        """True if all pieces of the copy are there."""
        return self.coming is not None and self._received == self.coming.size

    def take_pieces(self) -> list[bytes]:
        """Remove and return the pieces that have come since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def taken_over(self, known: Known) -> None:
        """Take the new state of the slave. A copy that is kept ends the growth of pauses: pieces alone may be of one
        that cannot be used."""
        self.known, self.is_gone = known, False
        if known.run:
            self._failures = 0
        self._forget()

    def dropped(self, now_ms: int) -> None:
        """Begin anew after a pause, because the copy cannot be kept."""
        self._pause(now_ms)

    def _pause(self, now_ms: int) -> None:
        self.next_ms = now_ms + min(RETRY_FIRST_MS << min(self._failures, 6), RETRY_MAX_MS)
        self._failures += 1
        self._forget()

    def _forget(self) -> None:
        self.coming, self._received = None, 0
        self._pieces.clear()


def _check(
    found: PopProgressResponseHeader, body: bytes, coming: PopProgressResponseHeader | None, received: int
) -> None:
    """Raises `BadBody` for a piece that is not the next one."""
    numbers = (
        found.run,
        found.snapshot,
        found.copy_id,
        found.offset,
        found.journal_bytes,
        found.names_from,
        found.log_end,
    )
    if min(numbers) < 0 or not 0 <= found.size <= COPY_BYTES_MAX or found.journal_bytes > found.size:
        raise json_body.bad_body(f"size {found.size} is not from 0 to {COPY_BYTES_MAX}, or a number is below 0", "size")
    if coming is not None and (found.copy_id, found.size) != (coming.copy_id, coming.size):
        raise json_body.bad_body(f"copyId {found.copy_id} is not {coming.copy_id}", "copyId")
    if not found.size:
        return
    if found.offset != received or not 0 < len(body) <= min(PIECE_BYTES_MAX, found.size - received):
        text = f"{len(body)} bytes at {found.offset} are not the next of {found.size} behind {received}"
        raise json_body.bad_body(f"{text}, at most {PIECE_BYTES_MAX}", "offset")


def _check_names(found: PopProgressResponseHeader, known: Known) -> None:
    """Raises `BadBody` for lines that do not follow those of the slave, or are too many."""
    if not found.size:
        return
    if found.names_from not in (0, known.names_bytes):
        raise json_body.bad_body(f"namesFrom {found.names_from} is neither 0 nor {known.names_bytes}", "namesFrom")
    names_bytes = found.names_from + found.size - found.journal_bytes
    if names_bytes > NAMES_BYTES_MAX:
        raise json_body.bad_body(f"{names_bytes} bytes of names are over the limit of {NAMES_BYTES_MAX}", "size")
