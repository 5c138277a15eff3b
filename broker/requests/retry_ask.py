"""The ask of a service to control for a group and its topics of retries (RMQ_INBOX_RETRY)."""

from __future__ import annotations

from msgspec import Struct

from ringmq.remoting import json_body


class RetryAsk(Struct, frozen=True):
    """The group that sends a message back. `dead`: its dead letter topic is needed, too."""

    group: str
    unit_mode: bool = False
    dead: bool = False

    def encode(self) -> bytes:
        """The payload of the ask."""
        return json_body.write_body({"group": self.group, "unitMode": self.unit_mode, "dead": self.dead})

    @classmethod
    def decode(cls, payload: bytes) -> RetryAsk:
        """The ask of a payload. Raises RequestError."""
        value = json_body.read_object(payload, "retry")
        return cls(str(value.get("group", "")), value.get("unitMode") is True, value.get("dead") is True)
