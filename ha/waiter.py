"""The decision about a send that waits: the plain-Python twin of the completer's verdict.

The completer is native/src/flush/completer.c.

    refused (nothing appended) <-- send --> parked --both conditions hold--> 0
                                              |--fsync failed--> 14
                                              |--no master any more--> 2, at once
                                              |--too few replicas--> 11 or 12, at once
                                              +--deadline--> 12 (replicas), else 10 (flush)

Codes are RocketMQ's response codes: 0 SUCCESS, 1 SYSTEM_ERROR (the remark says that in-sync replicas are not enough),
2 SYSTEM_BUSY, 10 FLUSH_DISK_TIMEOUT, 11 SLAVE_NOT_AVAILABLE, 12 FLUSH_SLAVE_TIMEOUT, 14 SERVICE_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct, field

SUCCESS = 0
SYSTEM_ERROR = 1
SYSTEM_BUSY = 2
FLUSH_DISK_TIMEOUT = 10
SLAVE_NOT_AVAILABLE = 11
FLUSH_SLAVE_TIMEOUT = 12
SERVICE_NOT_AVAILABLE = 14

REPLICATION_OK = 0
REPLICATION_LOST = SLAVE_NOT_AVAILABLE
REPLICATION_STALLED = FLUSH_SLAVE_TIMEOUT
"""replication_state (RMQ_REPLICATION_*)."""
STOP_MS = 3000
"""Time limit of a stop for replicas, whatever slaveTimeout is."""


class WaitSettings(Struct, frozen=True):
    """The conditions for the answer to every send of this broker, unless the send has WAIT=false. Times in ms."""

    sync_flush: bool
    sync_replication: bool
    sync_flush_timeout_ms: int = 5000
    slave_timeout_ms: int = 3000


class Watermarks(Struct, frozen=True):
    """The words of the watermark page at one moment."""

    flushed_offset: int
    replicated_offset: int
    replication_state: int = REPLICATION_OK
    fsync_failed: bool = False
    stopping: bool = False
    is_master: bool = True


def refusal(waits: WaitSettings, marks: Watermarks, held: bool, wait: bool = True) -> int | None:
    """The answer to a send that is not to be appended. None if it is to be. wait: not WAIT=false."""
    if not marks.is_master:
        return SYSTEM_BUSY
    if held:
        return SERVICE_NOT_AVAILABLE
    too_few = waits.sync_replication and marks.replication_state != REPLICATION_OK
    return SYSTEM_ERROR if too_few and wait else None


def verdict(waits: WaitSettings, end_offset: int, parked_ms: int, marks: Watermarks, now_ms: int) -> int | None:
    """The answer to an entry that was parked at `parked_ms`. None while it goes on waiting."""
    flush_lacks = waits.sync_flush and marks.flushed_offset < end_offset
    replicas_lack = waits.sync_replication and marks.replicated_offset < end_offset
    if not flush_lacks and not replicas_lack:
        return SUCCESS
    if flush_lacks and marks.fsync_failed:
        return SERVICE_NOT_AVAILABLE
    if not marks.is_master:
        return SYSTEM_BUSY
    if replicas_lack and marks.replication_state != REPLICATION_OK:
        return marks.replication_state
    waited_ms = now_ms - parked_ms
    timeout_ms = min(waits.slave_timeout_ms, STOP_MS) if marks.stopping else waits.slave_timeout_ms
    if replicas_lack and waited_ms >= timeout_ms:
        return FLUSH_SLAVE_TIMEOUT
    if flush_lacks and waited_ms >= waits.sync_flush_timeout_ms:
        return FLUSH_DISK_TIMEOUT
    return None


_Token = TypeVar("_Token")


class Waiter(Struct, Generic[_Token]):
    """Parked entries in the order of their ends. They are answered from the front."""

    waits: WaitSettings
    _parked: deque[tuple[_Token, int, int]] = field(default_factory=deque)

    def park(self, token: _Token, end_offset: int, now_ms: int) -> None:
        """Park an entry whose record ends at `end_offset` and was appended now."""
        self._parked.append((token, end_offset, now_ms))

    def step(self, marks: Watermarks, now_ms: int) -> Iterator[tuple[_Token, int]]:
        """(token, code) of every entry that is answered now."""
        while self._parked:
            token, end_offset, parked_ms = self._parked[0]
            code = verdict(self.waits, end_offset, parked_ms, marks, now_ms)
            if code is None:
                return
            self._parked.popleft()
            yield token, code
