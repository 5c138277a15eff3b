"""Thresholds of a run: bounds for events, an error rate, least rates. Pure: no locust, no IO."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

EVENTS = ("send", "send_batch", "pull", "end_to_end")
SLOW_SUFFIX = " (slow)"  # of the names of slow consumers' events, which have no goal


@dataclass(frozen=True)
class EventStats:
    """The measured values of one event with one name."""

    event: str
    name: str
    requests: int
    failures: int
    per_second: float
    p99_ms: float


@dataclass(frozen=True)
class Thresholds:
    """Bounds by event. `error_rate_max` is over all requests."""

    p99_ms_max: Mapping[str, float] = field(default_factory=dict)
    per_second_min: Mapping[str, float] = field(default_factory=dict)
    error_rate_max: float = 0.0


def parse_bounds(texts: Iterable[str], name: str) -> dict[str, float]:
    """Return the bounds in texts such as `send=50,pull=200`. Raises ValueError naming option and accepted form."""
    bounds = {}
    for text in ",".join(texts).split(","):
        if not text.strip():
            continue
        event, sign, number = text.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if event not in EVENTS or not sign or not 0 <= value < float("inf"):
            raise ValueError(f"{name}: {text.strip()!r} is not EVENT=NUMBER with one of {', '.join(EVENTS)}")
        bounds[event] = value
    return bounds


def broken(thresholds: Thresholds, stats: Sequence[EventStats]) -> list[str]:
    """Return the missed thresholds in words, none if all were reached. An event with a bound must have happened."""
    found = []
    counted = [entry for entry in stats if not entry.name.endswith(SLOW_SUFFIX)]
    for event, bound in thresholds.p99_ms_max.items():
        entries = [entry for entry in counted if entry.event == event and entry.requests > entry.failures]
        if not entries:
            found.append(f"{event}: none succeeded, so that its p99 cannot be told")
        found += [
            f"{event} {entry.name}: p99 {entry.p99_ms:.1f} ms is above {bound:g} ms"
            for entry in entries
            if entry.p99_ms > bound
        ]
    for event, bound in thresholds.per_second_min.items():
        rate = sum(entry.per_second for entry in counted if entry.event == event)
        if rate < bound:
            found.append(f"{event}: {rate:.1f} a second is below {bound:g}")
    requests, failures = sum(entry.requests for entry in stats), sum(entry.failures for entry in stats)
    if failures > thresholds.error_rate_max * requests:
        share = failures / requests
        found.append(f"{failures} of {requests} requests failed: {share:.2%} is above {thresholds.error_rate_max:.2%}")
    if not requests:
        found.append("nothing was requested")
    return found
