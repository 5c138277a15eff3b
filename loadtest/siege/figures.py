"""The figures of an attack from a canary's record. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

SLOW_S = 0.1
"""The latency beyond which an answer is not normal."""
QUIET_S = 1.0
"""The time for which everything must be normal before it counts as normal again."""


@dataclass(frozen=True, slots=True)
class CanaryRequest:
    """One request of the canary: from its first try until the right answer, or until now without one.

    Times in seconds of one clock. wrong: the faults of the tries before the last one.
    """

    began_s: float
    ended_s: float
    answered: bool = True
    wrong: tuple[str, ...] = ()

    @property
    def took_s(self) -> float:
        """The client's wait in seconds."""
        return self.ended_s - self.began_s


@dataclass(frozen=True, slots=True)
class Lane:
    """One kind of request, on a persistent connection or on a new one each time."""

    kind: str
    kept: bool

    @property
    def name(self) -> str:
        """The name, as in `send, old`."""
        return f"{self.kind}, {'old' if self.kept else 'new'}"


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """Figures of one lane, in milliseconds. `silence`: the longest time of requests without a right answer."""

    count: int
    p99_ms: float
    silence_ms: float
    after_p99_ms: float
    after_silence_ms: float
    normal_after_ms: float
    wrong: dict[str, int] = field(default_factory=dict)


def p99(values: Iterable[float]) -> float:
    """Return the value that 99 of 100 do not exceed, 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * 99 // 100) - 1)] if ordered else 0.0


def normal_again(asked: Sequence[CanaryRequest], end_s: float) -> float:
    """Return seconds from `end_s` until everything that begins within QUIET_S is answered within SLOW_S."""
    late = [one for one in asked if one.ended_s > end_s and (not one.answered or one.took_s > SLOW_S)]
    at = end_s
    for one in sorted(late, key=lambda one: one.began_s):
        if one.began_s > at + QUIET_S:
            break
        at = max(at, one.ended_s)
    return at - end_s


def lane_figures(asked: Sequence[CanaryRequest], began_s: float, end_s: float) -> LaneFigures:
    """Return the figures of an attack from `began_s` to `end_s`.

    `asked` has all requests of a lane that ended after `began_s`.
    """
    during = [one for one in asked if one.began_s < end_s]
    after = [one for one in asked if one.began_s >= end_s]
    wrong = Counter(text for one in during for text in one.wrong)
    return LaneFigures(
        count=len(during),
        p99_ms=1000 * p99(one.took_s for one in during),
        silence_ms=1000 * max((one.took_s for one in during), default=end_s - began_s),
        after_p99_ms=1000 * p99(one.took_s for one in after),
        after_silence_ms=1000 * max((one.took_s for one in after), default=0.0),
        normal_after_ms=1000 * normal_again(asked, end_s),
        wrong=dict(wrong.most_common(5)),
    )


@dataclass(frozen=True, slots=True)
class Goals:
    """The limits of the table."""

    silence_ms: float = 1000.0
    p99_ms: float = 100.0
    normal_after_ms: float = 1000.0


@dataclass(slots=True)
class AttackFigures:
    """The figures of one attack, or of two at once. Bytes. `memory_max_bytes` is the broker's own limit."""

    name: str
    aims_at: str
    lanes: dict[str, LaneFigures]
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """Peak of each worker's private pages, `shared` and `whole`."""
    memory_max_bytes: int = 0
    tallies: list[dict[str, Any]] = field(default_factory=list)
    log_lines: int = 0
    log_samples: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def missed(self, goals: Goals) -> list[str]:
        """Return the goals that this attack broke, with the figure."""
        found = []
        for field_name in ("silence_ms", "p99_ms", "normal_after_ms"):
            limit = getattr(goals, field_name)
            late = {name: value for name, lane in self.lanes.items() if (value := getattr(lane, field_name)) > limit}
            if late:
                worst = max(late, key=lambda name: late[name])
                what = field_name.removesuffix("_ms").replace("_", " ")
                found.append(f"{what} {late[worst]:,.0f} ms ({worst}), above {limit:,.0f} ms in {len(late)} lanes")
        whole = self.memory_bytes.get("whole", 0)
        if self.memory_max_bytes and whole > self.memory_max_bytes:
            found.append(f"memory {whole >> 20:,} of {self.memory_max_bytes >> 20:,} MiB")
        return found + [f"worker ended: {name}" for name in self.deaths] + self.faults
