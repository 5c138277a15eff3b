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
    """Figures of one lane, in milliseconds. `silence`: the longest time of requests without a right answer.

    count, answered: requests that began during the attack, and those of them with a right answer.
    """

    count: int
    answered: int
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
        answered=sum(one.answered for one in during),
        p99_ms=1000 * p99(one.took_s for one in during),
        silence_ms=1000 * max((one.took_s for one in during), default=end_s - began_s),
        after_p99_ms=1000 * p99(one.took_s for one in after),
        after_silence_ms=1000 * max((one.took_s for one in after), default=0.0),
        normal_after_ms=1000 * normal_again(asked, end_s),
        wrong=dict(wrong.most_common(5)),
    )


def _late(lanes: dict[str, LaneFigures], field_name: str, limit_ms: float) -> list[str]:
    late = {name: value for name, lane in lanes.items() if (value := getattr(lane, field_name)) > limit_ms}
    if not late:
        return []
    worst = max(late, key=lambda name: late[name])
    what = field_name.removesuffix("_ms").replace("_", " ")
    return [f"{what} {late[worst]:,.0f} ms ({worst}), above {limit_ms:,.0f} ms in {len(late)} lanes"]


@dataclass(frozen=True, slots=True)
class Goals:
    """The limits of the table."""

    silence_ms: float = 1000.0
    p99_ms: float = 100.0
    normal_after_ms: float = 1000.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one attack besides the goals. 0: no limit.

    beside_p99_ms: of each kind of request that runs beside this attack alone; some kinds are several requests.
    reader_us: processor time of the read workers for an answer to the attacker.
    consumer_bytes: peak of a consumer's memory, which polls the attackers' topic.
    needs_answers: the attack is none if nothing is answered.
    """

    beside_p99_ms: float = 250.0
    reader_us: float = 0.0
    consumer_bytes: int = 0
    needs_answers: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """Messages that a consumer polled, and the peak of its memory. fault: "" if it ended as it should."""

    polled: int
    unpacked_bytes: int
    peak_bytes: int
    fault: str = ""


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
    beside: dict[str, LaneFigures] = field(default_factory=dict)
    """Lanes that ran beside this attack alone."""
    limits: list[Limits] = field(default_factory=list)
    """Of each attack at once."""
    consumer: ConsumerFigures | None = None
    reader_cpu_s: float = 0.0
    """Processor time of the read workers during the attack."""

    def missed(self, goals: Goals) -> list[str]:
        """Return the goals that this attack broke, with the figure."""
        found = []
        for lanes, p99_ms in ((self.lanes, goals.p99_ms), (self.beside, self.beside_p99_ms(goals))):
            found += _late(lanes, "silence_ms", goals.silence_ms)
            found += _late(lanes, "p99_ms", p99_ms)
            found += _late(lanes, "normal_after_ms", goals.normal_after_ms)
        whole = self.memory_bytes.get("whole", 0)
        if self.memory_max_bytes and whole > self.memory_max_bytes:
            found.append(f"memory {whole >> 20:,} of {self.memory_max_bytes >> 20:,} MiB")
        found += [f"worker ended: {name}" for name in self.deaths]
        for limits in self.limits:
            found += self._beyond(limits)
        return found + self._without_work() + self.faults

    def beside_p99_ms(self, goals: Goals) -> float:
        """Return the limit of the lanes beside this attack alone."""
        return max([goals.p99_ms, *(limits.beside_p99_ms for limits in self.limits)])

    @property
    def answered(self) -> int:
        """Answers to the attackers."""
        return sum(count for tally in self.tallies for count in tally["answers"].values())

    @property
    def reader_us(self) -> float:
        """Processor time of the read workers for an answer to the attackers, in microseconds. The canary's is in it."""
        return 1e6 * self.reader_cpu_s / self.answered if self.answered else 0.0

    def _beyond(self, limits: Limits) -> list[str]:
        found = []
        if limits.reader_us and self.reader_us > limits.reader_us:
            found.append(f"read workers took {self.reader_us:,.0f} us an answer, above {limits.reader_us:,.0f} us")
        if limits.consumer_bytes and self.consumer and self.consumer.peak_bytes > limits.consumer_bytes:
            peak_mib, limit_mib = self.consumer.peak_bytes >> 20, limits.consumer_bytes >> 20
            found.append(f"the consumer took {peak_mib:,} MiB, above {limit_mib:,} MiB")
        return found

    def _without_work(self) -> list[str]:
        """A part that did nothing has shown nothing."""
        found = [f"attacker {number + 1} opened no connection" for number, tally in enumerate(self.tallies)
                 if not tally["opened"]]  # fmt: skip
        if any(limits.needs_answers for limits in self.limits) and not self.answered:
            found.append("the attacker got no answer")
        found += [f"no request of the canary was answered ({name})" for name, lane in
                  (self.lanes | self.beside).items() if not lane.answered]  # fmt: skip
        if any(limits.consumer_bytes for limits in self.limits):
            if self.consumer is None or not self.consumer.polled:
                found.append("the consumer polled no message")
            if self.consumer is not None and self.consumer.fault:
                found.append(f"consumer: {self.consumer.fault}")
        return found
