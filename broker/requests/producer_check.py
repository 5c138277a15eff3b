"""The ask of a service to control for a request to one client of a producer group (RMQ_INBOX_CHECK)."""

from __future__ import annotations

import struct

from msgspec import Struct

_GROUP_LENGTH = struct.Struct(">H")
GROUP_BYTES_MAX = 0xFFFF


class ProducerCheck(Struct, frozen=True):
    """A oneway request for one client of a group. `frame` begins with its length."""

    group: str
    frame: bytes

    def encode(self) -> bytes:
        """The payload of the ask. Raises ValueError if the name of the group is too long."""
        name = self.group.encode()
        if len(name) > GROUP_BYTES_MAX:
            raise ValueError(f"the producer group has {len(name)} bytes, the most are {GROUP_BYTES_MAX}")
        return _GROUP_LENGTH.pack(len(name)) + name + self.frame

    @classmethod
    def decode(cls, payload: bytes) -> ProducerCheck:
        """The ask of a payload. Raises ValueError."""
        if len(payload) < _GROUP_LENGTH.size:
            raise ValueError(f"a check of {len(payload)} bytes names no producer group")
        end = _GROUP_LENGTH.size + _GROUP_LENGTH.unpack_from(payload)[0]
        return cls(payload[_GROUP_LENGTH.size : end].decode(), payload[end:])
