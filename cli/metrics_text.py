"""Reads a broker's /metrics: the Prometheus text format, bounded."""

from __future__ import annotations

import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

BYTES_MAX = 256 << 20
TIMEOUT_S = 10.0
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")

Labels = dict[str, str]


@dataclass(slots=True)
class Samples:
    """The series of one scrape by name. `at` is the time of the scrape in seconds of any steady clock."""

    at: float
    series: dict[str, list[tuple[Labels, float]]] = field(default_factory=lambda: defaultdict(list))

    def rows(self, name: str) -> list[tuple[Labels, float]]:
        """Return every series of that name."""
        return self.series.get(name, [])

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the series with these labels."""
        return sum(value for found, value in self.rows(name) if labels.items() <= found.items())

    def by(self, name: str, *keys: str) -> dict[tuple[str, ...], float]:
        """Return sums by the values of some labels."""
        sums: dict[tuple[str, ...], float] = defaultdict(float)
        for labels, value in self.rows(name):
            sums[tuple(labels.get(key, "") for key in keys)] += value
        return sums

    def highest(self, name: str, *keys: str) -> dict[tuple[str, ...], float]:
        """Return the highest values by the values of some labels."""
        found: dict[tuple[str, ...], float] = {}
        for labels, value in self.rows(name):
            key = tuple(labels.get(label, "") for label in keys)
            found[key] = max(value, found.get(key, value))
        return found


def parse(text: str, at: float) -> Samples:
    """Return the samples in the text. Raises ValueError for a line that is no sample."""
    found = Samples(at)
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise ValueError(f"no metric: {line[:100]}")
        labels = {name: _unescaped(value) for name, value in _LABEL.findall(match[2] or "")}
        found.series[match[1]].append((labels, float(match[3])))
    return found


def fetch(url: str) -> str:
    """Return the page. Raises OSError, HTTPException for an invalid answer, ValueError for a page that is too long."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        data: bytes = answer.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise ValueError(f"{url} sends more than {BYTES_MAX >> 20} MiB")
    return data.decode("utf-8", "replace")


def quantile(before: Samples, now: Samples, name: str, share: float, **labels: str) -> float | None:
    """Return the upper bound of the bucket that holds that share of the observations between two scrapes.

    None if there were no observations.
    """
    grown = sorted(_grown_buckets(before, now, f"{name}_bucket", labels))
    if not grown or grown[-1][1] <= 0:
        return None
    return next(bound for bound, count in grown if count >= share * grown[-1][1])


def _grown_buckets(before: Samples, now: Samples, name: str, labels: Labels) -> Iterator[tuple[float, float]]:
    old = {found["le"]: value for found, value in before.rows(name) if labels.items() <= found.items()}
    for found, value in now.rows(name):
        if labels.items() <= found.items():
            yield float(found["le"]), value - old.get(found["le"], 0.0)


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value) if "\\" in value else value
