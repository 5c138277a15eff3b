"""The asks of control to workers that hold messages of groups: resets of offsets, switches to pulls, deletions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ringmq.remoting import json_body

QUEUES_MAX = 256
"""Queues of one ask about a reset."""
NAMES_MAX = 256
"""Topics of one ask about a deletion."""


class ResetAsk(Struct, frozen=True):
    """RMQ_INBOX_RESET: a group goes on at these offsets, or nothing changes. `until_ns`: of the monotonic clock, from
    which on nothing may change. Without offsets: does the worker serve?"""

    until_ns: int
    group: str = ""
    topic: str = ""
    offsets: Mapping[int, int] = {}
    """Consumer offset by queue id."""

    def encode(self) -> bytes:
        """The payload of the ask."""
        offsets = {str(queue_id): offset for queue_id, offset in self.offsets.items()}
        return json_body.write_body(
            {"group": self.group, "topic": self.topic, "offsets": offsets, "untilNs": self.until_ns}
        )

    @classmethod
    def decode(cls, payload: bytes) -> ResetAsk:
        """The ask of a payload."""
        value = json_body.read_object(payload, "reset")
        offsets = {int(queue_id): int(offset) for queue_id, offset in value["offsets"].items()}
        return cls(int(value["untilNs"]), value["group"], value["topic"], offsets)


class LeaveAsk(Struct, frozen=True):
    """RMQ_INBOX_LEAVE: members of the group pull the topic from now on, or nothing changes. `until_ns`: as in
    ResetAsk."""

    until_ns: int
    group: str
    topic: str

    def encode(self) -> bytes:
        """The payload of the ask."""
        return json_body.write_body({"group": self.group, "topic": self.topic, "untilNs": self.until_ns})

    @classmethod
    def decode(cls, payload: bytes) -> LeaveAsk:
        """The ask of a payload."""
        value = json_body.read_object(payload, "leave")
        return cls(int(value["untilNs"]), value["group"], value["topic"])


class DeletionAsk(Struct, frozen=True):
    """RMQ_INBOX_DELETED: these groups and topics are deleted."""

    groups: Sequence[str] = ()
    topics: Sequence[str] = ()

    def encode(self) -> bytes:
        """The payload of the ask."""
        return json_body.write_body({"groups": list(self.groups), "topics": list(self.topics)})

    @classmethod
    def decode(cls, payload: bytes) -> DeletionAsk:
        """The ask of a payload."""
        value = json_body.read_object(payload, "deletion")
        return cls(value["groups"], value["topics"])
