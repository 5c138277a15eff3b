"""The two ids of a message (spec remoting 7.5, 7.6): the offset id has its position, the unique key its sender."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from datetime import datetime

_PORT_OFFSET = struct.Struct(">iq")


def encode_offset_id(host: str, port: int, commit_log_offset: int) -> str:
    """Return the upper-case hex of IP, port and log position: 32 characters for IPv4, 56 for IPv6."""
    return (ipaddress.ip_address(host).packed + _PORT_OFFSET.pack(port, commit_log_offset)).hex().upper()


def decode_offset_id(offset_id: str) -> tuple[str, int, int]:
    """Return (host, port, commit-log offset). Raises `ValueError` for text that is no offset id."""
    if len(offset_id) not in (32, 56):
        raise ValueError(f"offset id {offset_id[:64]!r} has {len(offset_id)} characters, not 32 or 56")
    raw = bytes.fromhex(offset_id)
    port, commit_log_offset = _PORT_OFFSET.unpack_from(raw, len(raw) - _PORT_OFFSET.size)
    return str(ipaddress.ip_address(raw[: -_PORT_OFFSET.size])), port, commit_log_offset


@dataclass(slots=True)
class UniqKeyGenerator:
    """Makes UNIQ_KEYs as Java's `MessageClientIDSetter` does.

    Bytes: IP (4 or 16), low half of the pid (2), a number of this process (4), milliseconds since the start of the
    month in local time (4), counter (2), as upper-case hex. Callers pass `now_ms` to each call, so this class reads
    no clock.
    """

    ip: str
    pid: int
    process_number: int
    counter: int = 0
    _prefix: str = ""
    _moment: str = ""  # prefix and time of the last key
    _moment_ms: int = -1
    _month_start_ms: int = 0
    _month_end_ms: int = 0

    def __post_init__(self) -> None:
        packed = ipaddress.ip_address(self.ip).packed
        self._prefix = f"{packed.hex().upper()}{self.pid & 0xFFFF:04X}{self.process_number & 0xFFFFFFFF:08X}"

    def next_key(self, now_ms: int) -> str:
        """Return the next key. 65536 keys of one millisecond are distinct."""
        if now_ms != self._moment_ms:
            self._enter_moment(now_ms)
        counter = self.counter
        self.counter = counter + 1
        return f"{self._moment}{counter & 0xFFFF:04X}"

    def _enter_moment(self, now_ms: int) -> None:
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._enter_month(now_ms)
        self._moment = f"{self._prefix}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}"
        self._moment_ms = now_ms

    def _enter_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        after = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._month_end_ms = int(after.timestamp() * 1000)
