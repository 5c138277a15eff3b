"""A row of the reference page about a property, for broker and name server alike."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """The columns of the reference page for one property."""

    name: str
    kind: str
    """One of number, switch, choice and text."""
    default: str
    accepted: str
    live: bool
    """True if the value may change while the server runs."""
    rocketmq: str
    """RocketMQ's property of that name: the same, the difference, or none."""
