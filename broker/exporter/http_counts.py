"""Counts of the HTTP port, and the open doors of the broker's other listeners, for a scrape."""

from __future__ import annotations

from msgspec import Struct, field

CLOSED_REASONS = ("client", "network", "room", "time", "request", "fault")
"""client: the client has ended it, or its last answer is sent. network: httpAllowedNetworks does not name its host.
room: closed for another connection. time: a deadline has passed. request: its request was refused. fault: a defect of
ours.
"""


class HttpCounts(Struct):
    """Counts that the server writes and a scrape reads."""

    connections: int = 0
    accepted: int = 0
    closed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLOSED_REASONS, 0))
    """Reason -> connections."""


class HttpPort(Struct):
    """The listeners' part of a scrape."""

    counts: HttpCounts = field(default_factory=HttpCounts)
    public_endpoints: list[tuple[str, str]] = field(default_factory=list)
    """(listener, property) of each listener of the broker that every network may use (remoting/endpoints.py)."""
