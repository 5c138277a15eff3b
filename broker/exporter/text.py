"""The Prometheus text format. 100,000 series cost some 10 ms: the text of labels is reused, and the lines of large
families are written natively while they are sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from ringmq.broker.exporter.label_rows import LabelRows
from ringmq.broker.exporter.metric import HISTOGRAM, Metric
from ringmq.broker.exporter.series_lines import SeriesLines
from ringmq.broker.exporter.table import METRICS
from ringmq.broker.exporter.tables import Ints

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SCOPE = "broker-meter"
Value = int | float


def escaped(value: str) -> str:
    """A label's value between quotes."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def label_text(labels: Mapping[str, str]) -> str:
    """`a="1",b="2"`, in the order of the names."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(labels.items()))


def parse_labels(text: str) -> dict[str, str]:
    """metricsLabel: `name:value` joined by commas, as stock reads it."""
    pairs = (item.split(":") for item in text.split(",") if item)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


class PageText(Struct, frozen=True):
    """A page that can be read any number of times."""

    parts: Sequence[bytes | SeriesLines] = ()

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The pieces in order. Each is valid until the next one."""
        for part in self.parts:
            if isinstance(part, SeriesLines):
                yield from part.pieces()
            elif part:
                yield part


class Page(Struct):
    """One answer under construction. Families must be added whole."""

    common: Mapping[str, str]
    """Labels of every series."""
    limit: int
    """Largest number of series of one family."""
    series: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    _parts: list[bytes | SeriesLines] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    """Lines behind the parts."""

    def add(self, name: str, samples: Iterable[tuple[Mapping[str, str], Value]] | Value) -> None:
        """Add a family of few series: (labels, value) each, or one value without labels."""
        if isinstance(samples, int | float):
            samples = [({}, samples)]
        pairs = list(samples)
        count = self._begin(METRICS[name], len(pairs))
        self.series += count
        head = _head(name)
        self._lines += [f"{head}{self.label_text(labels)}}} {value}\n" for labels, value in pairs[:count]]

    def add_histograms(
        self, name: str, bounds: Sequence[str], histograms: Iterable[tuple[Mapping[str, str], Sequence[int], Value]]
    ) -> None:
        """Add histograms: (labels, counts by bucket with that of the rest at the end, sum) each. `bounds` lacks
        +Inf."""
        given = list(histograms)
        columns = _histogram_columns(name, bounds)
        for labels, counts, total in given[: self._begin(METRICS[name], len(given))]:
            text, reached = self.label_text(labels), list(itertools.accumulate(counts))
            values = (reached[-1], total, *reached)
            self.series += len(columns)
            self._lines += [f"{head}{text}{tail}{value}\n" for (head, tail), value in zip(columns, values, strict=True)]

    def label_text(self, labels: Mapping[str, str]) -> str:
        """The label text of one row."""
        return label_text({**self.common, **labels})

    def add_rows(self, name: str, rows: LabelRows, values: Ints) -> None:
        """Add a family of many series: one value per row."""
        self._add_rows(METRICS[name], [(_head(name), "} ")], rows, values.reshape(-1, 1))

    def add_histogram_rows(self, name: str, bounds: Sequence[str], rows: LabelRows, counts: Ints, sums: Ints) -> None:
        """Add many histograms. `counts` has a column per bound and one for the rest. The limit counts histograms, as in
        stock."""
        reached = np.cumsum(counts, axis=1)
        values = np.column_stack([reached[:, -1], sums, reached])
        self._add_rows(METRICS[name], _histogram_columns(name, bounds), rows, values)

    def leave_out(self, name: str, count: int) -> None:
        """Count series of that family that are not shown."""
        self.left_out[name] = self.left_out.get(name, 0) + count

    def text(self) -> PageText:
        """The whole page."""
        return PageText([*self._parts, "".join(self._lines).encode()])

    def _begin(self, metric: Metric, count: int) -> int:
        """Add the head of a family, unless it is empty. Returns the number of its series that are shown."""
        if count > self.limit:
            self.leave_out(metric.name, count - self.limit)
        if count:
            self._lines.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n")
        return min(count, self.limit)

    def _add_rows(self, metric: Metric, columns: Sequence[tuple[str, str]], rows: LabelRows, values: Ints) -> None:
        if count := self._begin(metric, len(rows)):
            self.series += count * len(columns)
            self._parts += ["".join(self._lines).encode(), SeriesLines(columns, rows, values[:count])]
            self._lines.clear()


def _head(name: str, suffix: str = "") -> str:
    scope = f'otel_scope_name="{SCOPE}",' if name.startswith("rocketmq_") else ""
    return f"{name}{suffix}{{{scope}"


def _histogram_columns(name: str, bounds: Sequence[str]) -> list[tuple[str, str]]:
    """Head and tail of count, sum, then the buckets."""
    assert METRICS[name].kind == HISTOGRAM
    buckets = [(_head(name, "_bucket"), f',le="{bound}"}} ') for bound in (*bounds, "+Inf")]
    return [(_head(name, "_count"), "} "), (_head(name, "_sum"), "} "), *buckets]
