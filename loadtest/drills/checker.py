"""Finds broken promises from a client's own record of its sends and reads. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_checker.py):

  loss          a send was acknowledged, but its position holds nothing at the end, or something else
  double offset two acknowledged sends were given the same queue offset
  reorder       send A was acknowledged before send B of the same producer and queue began, yet A stands behind B
  early read    a consumer saw a message at a position that has another one later: it was shown before it was durable
  gap           the final read of a queue misses an offset between its ends

A send without an answer may be in the queue once, more than once (the client retried), or not at all.
"""

from collections import defaultdict
from dataclasses import dataclass, field

Place = tuple[str, int, int]
"""(topic, queue id, queue offset)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, in words."""

    kind: str
    text: str


@dataclass(slots=True)
class _Send:
    began: int
    producer: str
    acknowledged: int = -1
    place: Place | None = None


@dataclass(slots=True)
class Checker:
    """Takes events in the order in which the client saw them. `verdict` checks them at the end.

    Order is the client's own event counter, so no clock is trusted.
    """

    _clock: int = 0
    _sends: dict[str, _Send] = field(default_factory=dict)
    _reads: list[tuple[Place, str]] = field(default_factory=list)
    _final: dict[Place, str] = field(default_factory=dict)

    def began(self, producer: str, message_id: str) -> None:
        """Record that a producer is about to send a message with an id of its own."""
        self._clock += 1
        assert message_id not in self._sends, f"the id {message_id} was used twice by the client"
        self._sends[message_id] = _Send(self._clock, producer)

    def acknowledged(self, message_id: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Record that the broker acknowledged the message at this position."""
        self._clock += 1
        send = self._sends[message_id]
        send.acknowledged, send.place = self._clock, (topic, queue_id, queue_offset)

    def read(self, topic: str, queue_id: int, queue_offset: int, message_id: str) -> None:
        """Record that a consumer got a message while the drill ran."""
        self._reads.append(((topic, queue_id, queue_offset), message_id))

    def final_read(self, topic: str, queue_id: int, queue_offset: int, message_id: str) -> None:
        """Record a message of the queue after everything has settled."""
        self._final[(topic, queue_id, queue_offset)] = message_id

    @property
    def acknowledged_count(self) -> int:
        """The number of acknowledged sends."""
        return sum(1 for send in self._sends.values() if send.place)

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        return [*self._lost(), *self._doubled(), *self._reordered(), *self._read_early(), *self._gaps()]

    def _lost(self) -> list[Violation]:
        found = []
        for message_id, send in self._sends.items():
            if send.place is None:
                continue
            there = self._final.get(send.place)
            if there != message_id:
                holds = "nothing" if there is None else there
                found.append(Violation("loss", f"{message_id} was acknowledged at {send.place}, which holds {holds}"))
        return found

    def _doubled(self) -> list[Violation]:
        by_place: dict[Place, list[str]] = defaultdict(list)
        for message_id, send in self._sends.items():
            if send.place is not None:
                by_place[send.place].append(message_id)
        return [
            Violation("double offset", f"{place} was given to {', '.join(ids)}")
            for place, ids in by_place.items()
            if len(ids) > 1
        ]

    def _reordered(self) -> list[Violation]:
        lanes: dict[tuple[str, str, int], list[tuple[str, _Send]]] = defaultdict(list)
        for message_id, send in self._sends.items():
            if send.place is not None:
                lanes[(send.producer, send.place[0], send.place[1])].append((message_id, send))
        found = []
        for lane in lanes.values():
            # Sweep by begin time; remember the highest offset among sends acknowledged before this one began.
            finished = sorted(lane, key=lambda pair: pair[1].acknowledged)
            highest, highest_id, position = -1, "", 0
            for message_id, send in sorted(lane, key=lambda pair: pair[1].began):
                while position < len(finished) and finished[position][1].acknowledged < send.began:
                    earlier_id, earlier = finished[position]
                    assert earlier.place is not None
                    if earlier.place[2] > highest:
                        highest, highest_id = earlier.place[2], earlier_id
                    position += 1
                assert send.place is not None
                if send.place[2] <= highest and send.place[2] != -1:
                    found.append(
                        Violation("reorder", f"{message_id} at {send.place} began after {highest_id} was at {highest}")
                    )
        return found

    def _read_early(self) -> list[Violation]:
        return [
            Violation("early read", f"{message_id} was shown at {place}, which holds {self._final.get(place)} now")
            for place, message_id in self._reads
            if self._final.get(place) != message_id
        ]

    def _gaps(self) -> list[Violation]:
        offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
        for topic, queue_id, queue_offset in self._final:
            offsets[(topic, queue_id)].append(queue_offset)
        found = []
        for queue, there in offsets.items():
            missing = sorted(set(range(min(there), max(there) + 1)) - set(there))
            if missing:
                found.append(Violation("gap", f"{queue} misses offsets {missing[:5]} ({len(missing)} in all)"))
        return found
