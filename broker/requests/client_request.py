"""The ask of a service to control for a request to a client (RMQ_INBOX_CHECK, RMQ_INBOX_REPLY)."""

from __future__ import annotations

import struct

from msgspec import Struct

_NAME_LENGTH = struct.Struct(">H")
NAME_BYTES_MAX = 0xFFFF


class ClientRequest(Struct, frozen=True):
    """A request for a client. `to`: the name by which control finds the client. `frame` begins with its length."""

    to: str
    frame: bytes

    def encode(self) -> bytes:
        """The payload of the ask. Raises ValueError if the name is too long."""
        name = self.to.encode()
        if len(name) > NAME_BYTES_MAX:
            raise ValueError(f"the name of a client has {len(name)} bytes, the most are {NAME_BYTES_MAX}")
        return _NAME_LENGTH.pack(len(name)) + name + self.frame

    @classmethod
    def decode(cls, payload: bytes) -> ClientRequest:
        """The ask of a payload. Raises ValueError."""
        if len(payload) < _NAME_LENGTH.size:
            raise ValueError(f"a request of {len(payload)} bytes names no client")
        end = _NAME_LENGTH.size + _NAME_LENGTH.unpack_from(payload)[0]
        return cls(payload[_NAME_LENGTH.size : end].decode(), payload[end:])
