"""What the metrics worker knows of its own port and is told of the broker's others."""

from __future__ import annotations

from dataclasses import dataclass, field

CLOSED_REASONS = ("client", "network", "room", "time", "request", "fault")
"""client: the client ended it, or its last answer is out; network: httpAllowedNetworks names others; room: closed for
another connection; time: a deadline passed; request: its request was refused; fault: a defect of ours."""


@dataclass(slots=True)
class HttpCounts:
    """Written by the server, read by a scrape."""

    connections: int = 0
    accepted: int = 0
    closed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLOSED_REASONS, 0))
    """Reason -> connections."""


@dataclass(slots=True)
class HttpPort:
    """What a scrape shows of listeners."""

    counts: HttpCounts = field(default_factory=HttpCounts)
    open_doors: list[tuple[str, str]] = field(default_factory=list)
    """(listener, property) of each listener of the broker that every network may use (remoting/doors.py)."""
