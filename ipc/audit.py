"""The audit trail: one log line for each change that a peer or an operator makes.

A table or a role notes the change, because it has the values before and after. The shell of a worker sets the cause
and writes the lines. Values of secrets are hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from ringmq.ipc.redaction import redacted_value

log = logging.getLogger(__name__)

CHANGES_MAX = 4096
"""Changes that wait for their lines. More are only counted."""
LINES_PER_MINUTE, CLIENT_LINES_PER_MINUTE = 6000, 600
"""Lines for changes of operators, and for entries that clients make. More of a minute are only counted."""
MINUTE_MS = 60_000


class Kind(Enum):
    """The kind of a change."""

    TOPIC = "topic"
    GROUP = "group"
    OFFSETS = "offsets"
    CONFIGURATION = "configuration"
    PERMISSION = "permission"
    MODE = "mode"
    HOLD = "hold"
    ROLE = "role"


class Actor(NamedTuple):
    """The cause of a change. `peer`: an address, or a worker of this broker. `request`: the name of its code, or an
    event. `is_client`: a producer or consumer needs the entry, so any client can cause it."""

    peer: str
    request: str
    is_client: bool = False


class Cause(Protocol):
    """A request, or another thing with an actor."""

    @property
    def actor(self) -> Actor:
        """The cause of changes that are made meanwhile."""


class OwnCause(Struct, frozen=True):
    """A cause inside of the broker."""

    actor: Actor


BROKER = OwnCause(Actor("broker", "none"))


class Change(Struct, frozen=True):
    """One change. `before`, `after`: values of JSON, None if there is nothing."""

    kind: Kind
    name: str
    actor: Actor
    before: object
    after: object

    def fields(self) -> dict[str, object]:
        """The fields of the log line. Of two objects, only the members that differ."""
        before, after = (redacted_value(value) for value in differing(self.before, self.after))
        return {
            "kind": self.kind.value,
            "name": self.name,
            "peer": self.actor.peer,
            "request": self.actor.request,
            "before": before,
            "after": after,
        }


class AuditTrail(Struct):
    """The changes that have no line yet. `cause`: of the changes that are made now."""

    cause: Cause = BROKER
    changes: list[Change] = field(default_factory=list)
    dropped: int = 0

    def add(self, kind: Kind, name: str, before: object, after: object) -> None:
        """Note a change. Nothing is noted if both values are equal."""
        if before == after:
            return
        if len(self.changes) >= CHANGES_MAX:
            self.dropped += 1
            return
        self.changes.append(Change(kind, name, self.cause.actor, before, after))

    @contextmanager
    def caused_by(self, peer: str, request: str) -> Iterator[None]:
        """Changes within come from this peer."""
        before, self.cause = self.cause, OwnCause(Actor(peer, request))
        try:
            yield
        finally:
            self.cause = before


class AuditWriter:
    """Writes the lines of a trail, within the limits of a minute."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        self._minute = 0
        self._left = {False: LINES_PER_MINUTE, True: CLIENT_LINES_PER_MINUTE}
        """Lines that the minute has left, by `is_client`."""
        self._dropped = 0

    @property
    def is_waiting(self) -> bool:
        """True if a change has no line yet."""
        return bool(self._trail.changes)

    def turn(self, now_ms: int, lines_max: int = CHANGES_MAX) -> None:
        """Write lines of new changes, at most `lines_max`. A line at the begin of a minute counts those without one."""
        if now_ms // MINUTE_MS != self._minute:
            if self._dropped:
                log.warning("audit: %d changes of the last minutes have no line, they are too many", self._dropped)
            self._minute, self._dropped = now_ms // MINUTE_MS, 0
            self._left = {False: LINES_PER_MINUTE, True: CLIENT_LINES_PER_MINUTE}
        trail, done = self._trail, 0
        for change in trail.changes:
            is_client = change.actor.is_client
            if self._left[is_client] <= 0:
                self._dropped += 1
            elif lines_max > 0:
                self._left[is_client] -= 1
                lines_max -= 1
                write_change(change)
            else:
                break
            done += 1
        del trail.changes[:done]
        self._dropped += trail.dropped
        trail.dropped = 0


def write_change(change: Change) -> None:
    """Write the line of a change."""
    log.info("audit", extra={"fields": change.fields()})


def differing(before: object, after: object) -> tuple[object, object]:
    """Two values, of two objects only the members that differ."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return before, after
    kept = [key for key in before if key in after and before[key] == after[key]]
    return (
        {key: value for key, value in before.items() if key not in kept},
        {key: value for key, value in after.items() if key not in kept},
    )
