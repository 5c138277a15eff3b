"""Finds violated guarantees in a client's own record of its sends and reads. No IO.

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

Position = tuple[str, int, int]
"""(topic, queue id, queue offset)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated guarantee, in words."""

    kind: str
    text: str


@dataclass(slots=True)
class _Send:
    began: int
    producer: str
    acknowledged: int = -1
    position: Position | None = None


@dataclass(slots=True)
class Checker:
    """Takes events in the order in which the client saw them. `verdict` checks them at the end.

    Order is the client's own event counter, so no clock is trusted.
    """

    _clock: int = 0
    _sends: dict[str, _Send] = field(default_factory=dict)
    _reads: list[tuple[Position, str]] = field(default_factory=list)
    _final: dict[Position, str] = field(default_factory=dict)

    def began(self, producer: str, message_id: str) -> None:
        """Record that a producer is about to send a message with an id of its own."""
        self._clock += 1
        assert message_id not in self._sends, f"the id {message_id} was used twice by the client"
        self._sends[message_id] = _Send(self._clock, producer)

    def acknowledged(self, message_id: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Record that the broker acknowledged the message at this position."""
        self._clock += 1
        send = self._sends[message_id]
        send.acknowledged, send.position = self._clock, (topic, queue_id, queue_offset)

    def read(self, topic: str, queue_id: int, queue_offset: int, message_id: str) -> None:
        """Record that a consumer got a message while the drill ran."""
        self._reads.append(((topic, queue_id, queue_offset), message_id))

    def final_read(self, topic: str, queue_id: int, queue_offset: int, message_id: str) -> None:
        """Record a message of the queue after everything has settled."""
        self._final[(topic, queue_id, queue_offset)] = message_id

    @property
    def acknowledged_count(self) -> int:
        """The number of acknowledged sends."""
        return sum(1 for send in self._sends.values() if send.position)

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every guarantee held."""
        return [*self._lost(), *self._doubled(), *self._reordered(), *self._read_early(), *self._gaps()]

    def _lost(self) -> list[Violation]:
        found = []
        for message_id, send in self._sends.items():
            if send.position is None:
                continue
            there = self._final.get(send.position)
            if there != message_id:
                holds = "nothing" if there is None else there
                found.append(
                    Violation("loss", f"{message_id} was acknowledged at {send.position}, which holds {holds}")
                )
        return found

    def _doubled(self) -> list[Violation]:
        by_position: dict[Position, list[str]] = defaultdict(list)
        for message_id, send in self._sends.items():
            if send.position is not None:
                by_position[send.position].append(message_id)
        return [
            Violation("double offset", f"{position} was given to {', '.join(ids)}")
            for position, ids in by_position.items()
            if len(ids) > 1
        ]

    def _reordered(self) -> list[Violation]:
        lanes: dict[tuple[str, str, int], list[tuple[str, _Send]]] = defaultdict(list)
        for message_id, send in self._sends.items():
            if send.position is not None:
                lanes[(send.producer, send.position[0], send.position[1])].append((message_id, send))
        found = []
        for lane in lanes.values():
            # Sweep by begin time; remember the highest offset among sends acknowledged before this one began.
            finished = sorted(lane, key=lambda pair: pair[1].acknowledged)
            highest, highest_id, index = -1, "", 0
            for message_id, send in sorted(lane, key=lambda pair: pair[1].began):
                while index < len(finished) and finished[index][1].acknowledged < send.began:
                    earlier_id, earlier = finished[index]
                    assert earlier.position is not None
                    if earlier.position[2] > highest:
                        highest, highest_id = earlier.position[2], earlier_id
                    index += 1
                assert send.position is not None
                if send.position[2] <= highest and send.position[2] != -1:
                    found.append(
                        Violation(
                            "reorder", f"{message_id} at {send.position} began after {highest_id} was at {highest}"
                        )
                    )
        return found

    def _read_early(self) -> list[Violation]:
        return [
            Violation(
                "early read", f"{message_id} was shown at {position}, which holds {self._final.get(position)} now"
            )
            for position, message_id in self._reads
            if self._final.get(position) != message_id
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
