"""Measurements of a row, its goals, and the summary of its runs. Pure: no IO, no clock."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

STOCK, RINGMQ, CEILING, PEER = "stock", "ringmq", "ceiling", "peer"  # peer: the other Python client
RATE = "messages_per_s"
Reference = Literal["stock", "ceiling", "peer", "absolute"]
GOAL = re.compile(r"(\w+) (>=|<=)([\d.]+)(?:x (stock|ceiling|peer))?")


@dataclass(frozen=True)
class Measurement:
    """One run of one row on one system. `ok`: every message was in queue and index in time and read back equal."""

    values: Mapping[str, float]
    ok: bool = True
    note: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Goal:
    """A bound for `metric` of RingMQ, divided by the reference's (or as it is)."""

    metric: str
    reference: Reference
    at_least: float | None = None
    at_most: float | None = None

    def text(self) -> str:
        """The goal in a few characters: `>=1.5x stock`."""
        sign, bound = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        return f"{sign}{bound:g}" if self.reference == "absolute" else f"{sign}{bound:g}x {self.reference}"


def goals(text: str) -> tuple[Goal, ...]:
    """Return the goals of a text such as `messages_per_s >=3x stock, p99 <=100`. Raises ValueError for another text."""
    found = []
    for part in text.split(", "):
        match = GOAL.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no goal: `METRIC >=1` or `METRIC <=1x stock` is needed")
        metric, sign, bound, reference = match.groups("absolute")
        found.append(
            Goal(metric, cast(Reference, reference), **{"at_least" if sign == ">=" else "at_most": float(bound)})
        )
    return tuple(found)


@dataclass(frozen=True)
class Summary:
    """All runs of a row on one system: median and spread (largest - smallest) of each metric over runs that count."""

    median: Mapping[str, float]
    spread: Mapping[str, float]
    runs: int
    counted: int
    notes: Sequence[str]


@dataclass(frozen=True)
class Verdict:
    """A goal and its result: `value` is the ratio (or the value itself), None if a part was not measured."""

    goal: Goal
    value: float | None

    @property
    def met(self) -> bool | None:
        """True if the goal is reached, None if it could not be evaluated."""
        if self.value is None:
            return None
        if self.goal.at_least is not None:
            return self.value >= self.goal.at_least
        return self.goal.at_most is not None and self.value <= self.goal.at_most


def failed(note: str) -> Measurement:
    """Return a run that does not count."""
    return Measurement({}, ok=False, note=note)


def summarize(runs: Iterable[Measurement]) -> Summary:
    """Return median and spread over the runs that are ok. A row without such a run has no values."""
    runs = list(runs)
    good = [run for run in runs if run.ok]
    names = sorted({name for run in good for name in run.values})
    series = {name: [run.values[name] for run in good if name in run.values] for name in names}
    return Summary(
        median={name: statistics.median(values) for name, values in series.items()},
        spread={name: max(values) - min(values) for name, values in series.items()},
        runs=len(runs),
        counted=len(good),
        notes=sorted({run.note for run in runs if run.note}),
    )


def evaluate(goal: Goal, summaries: Mapping[str, Summary]) -> Verdict:
    """Compare RingMQ's median with the goal."""
    ours = summaries[RINGMQ].median.get(goal.metric) if RINGMQ in summaries else None
    if ours is None or goal.reference == "absolute":
        return Verdict(goal, ours)
    other = summaries[goal.reference].median.get(goal.metric) if goal.reference in summaries else None
    return Verdict(goal, ours / other if other else None)
