"""What the tests of stock's consumers that pop share: names, times, lists of pops."""

from collections.abc import Sequence
from typing import Any

Pop = dict[str, Any]
LOOK_S = 12
"""Beyond the invisible time and stock's rests: a message that would come back has come."""

LONG = "Z" * 60
"""In the names of a topic and its group: together they are longer than 127 bytes."""


def of_body(pops: Sequence[Pop]) -> dict[str, list[Pop]]:
    """The pops of each message, in order."""
    found: dict[str, list[Pop]] = {}
    for pop in pops:
        found.setdefault(pop["body"], []).append(pop)
    return found


def due(pop: Pop) -> int:
    """The time at which a popped message may be seen again, in ms."""
    return int(pop["receipt"]["popTime"] + pop["receipt"]["invisibleTime"])
