"""What a server's reference says about its properties, whichever server it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """What the reference page says about one property."""

    name: str
    kind: str
    """number, switch, choice or text"""
    default: str
    accepted: str
    live: bool
    """May be changed while the server runs."""
    rocketmq: str
    """RocketMQ's property of that name: the same, what differs there, or that it has none."""
