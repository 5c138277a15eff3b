"""Rows of the reference page for the properties of a broker or a name server."""

from dataclasses import dataclass

SAME = "same"
"""RocketMQ has the property, with the same meaning and default."""
DIFFERS = "same name; "
"""RocketMQ has a property of this name; the rest of the text is the difference."""
OURS = "RingMQ's own: "
"""RocketMQ has no property of this name; the rest of the text is the meaning."""


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """One property on the reference page."""

    name: str
    kind: str
    """number, switch, choice or text"""
    default: str
    accepted: str
    live: bool
    """True if the value may change while the server runs."""
    rocketmq: str
    """SAME, or DIFFERS and the difference, or OURS and the meaning."""
