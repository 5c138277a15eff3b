"""The delayed messages of a drill. The checker finds broken promises from the client's own record. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_delay_checker.py):

  early delivery    a copy was stored before the send began + the delay of its level
  lost delivery     a send was acknowledged, but no copy of it is in the target topic
  doubled delivery  a message has two copies
  delivery order    send A was acknowledged before send B of the same lane began, yet A's copy stands behind B's
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ringmq.client import Message, compose_message
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.reads import id_of
from ringmq.remoting.message import MessageExt

DELAYED_TOPIC = "DrillDelayed"
DELAYS_MS = (1000, 2000)
"""The delays of the drill's levels, level 1 first."""
LANES = 2
SETTINGS = {"messageDelayLevel": " ".join(f"{delay_ms // 1000}s" for delay_ms in DELAYS_MS)}


@dataclass(slots=True)
class _Send:
    level: int
    lane: int
    number: int
    began_ms: int
    is_acknowledged: bool = False


@dataclass(slots=True)
class DelayChecker:
    """Records one run. A lane sends in order, one message at a time. Times are of the wall clock."""

    _sends: dict[str, _Send] = field(default_factory=dict)
    _copies: list[tuple[str, int]] = field(default_factory=list)
    _missing: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def messages(self, level: int, lane: int) -> Iterator[tuple[str, Message]]:
        """Yield ids and messages of a lane, without end. Call `began` before each send. Each level has a queue."""
        for number in itertools.count(1):
            message_id = f"{level}-{lane}-{number}"
            body = message_id.encode() + b"." * (number * 37 % 300)
            yield message_id, compose_message(DELAYED_TOPIC, body, keys=message_id, delay_level=level)

    def began(self, message_id: str, now_ms: int) -> None:
        """Record that a send is about to begin."""
        level, lane, number = map(int, message_id.split("-"))
        self._sends[message_id] = _Send(level, lane, number, now_ms)

    def acknowledged(self, message_id: str) -> None:
        """Record that the broker acknowledged the send."""
        send = self._sends[message_id]
        send.is_acknowledged = True
        self._missing[send.level].add(message_id)

    def delivered(self, message: MessageExt) -> None:
        """Record a copy of the target topic at the end, in the order of its queue."""
        name = id_of(message)
        self._copies.append((name, message.store_timestamp_ms))
        self._missing[self._sends[name].level].discard(name)

    def has_all(self, level: int) -> bool:
        """True if each acknowledged message of the level is delivered. Call it when nothing is sent any more."""
        return not self._missing[level]

    @property
    def acknowledged_count(self) -> int:
        """The number of acknowledged sends."""
        return sum(send.is_acknowledged for send in self._sends.values())

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        copies = Counter(message_id for message_id, _ in self._copies)
        found = [
            Violation("doubled delivery", f"{name} has {count} copies") for name, count in copies.items() if count > 1
        ]
        found += [
            Violation("lost delivery", f"{name} was acknowledged and is not delivered")
            for name, send in self._sends.items()
            if send.is_acknowledged and name not in copies
        ]
        return found + self._early() + self._reordered()

    def _early(self) -> list[Violation]:
        found = []
        for name, stored_ms in self._copies:
            send = self._sends[name]
            early_ms = send.began_ms + DELAYS_MS[send.level - 1] - stored_ms
            if early_ms > 0:
                found.append(Violation("early delivery", f"{name} was delivered {early_ms} ms early"))
        return found

    def _reordered(self) -> list[Violation]:
        last: dict[tuple[int, int], int] = {}
        found = []
        for name, _ in self._copies:
            send = self._sends[name]
            if not send.is_acknowledged:
                continue  # it may have been stored after later sends of its lane
            before = last.get((send.level, send.lane), 0)
            if send.number < before:
                found.append(Violation("delivery order", f"{name} was delivered behind number {before} of its lane"))
            last[send.level, send.lane] = max(before, send.number)
        return found
