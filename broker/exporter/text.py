"""The Prometheus text format, made so that 100,000 series cost some 50 ms: the text of labels is kept, values are put
between it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ringmq.broker.exporter.table import HISTOGRAM, METRICS, Metric

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


@dataclass(slots=True)
class Page:
    """One answer in the making. Families must be added whole."""

    common: Mapping[str, str]
    """Labels of every series."""
    limit: int
    """Series of one family."""
    series: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    _chunks: list[str] = field(default_factory=list)

    def add(self, name: str, samples: Iterable[tuple[Mapping[str, str], Value]] | Value) -> None:
        """A family of few series: (labels, value), or one value without labels."""
        if isinstance(samples, int | float):
            samples = [({}, samples)]
        pairs = list(samples)
        if pairs:
            prefixes = [self.prefix(name, labels) for labels, _ in pairs]
            self.add_prepared(METRICS[name], prefixes, [value for _, value in pairs])

    def prefix(self, name: str, labels: Mapping[str, str]) -> str:
        """A series up to its value; may be kept over scrapes."""
        return f"{name}{{{self._inner(name, labels)}}} "

    def add_prepared(self, metric: Metric, prefixes: Sequence[str], values: Sequence[Value]) -> None:
        """A family of many series whose text up to the value is known."""
        if not prefixes:
            return
        if len(prefixes) > self.limit:
            self.leave_out(metric.name, len(prefixes) - self.limit)
            prefixes, values = prefixes[: self.limit], values[: self.limit]
        self.series += len(prefixes)
        self._chunks.append(self._head(metric))
        self._chunks.append("".join([f"{prefix}{value}\n" for prefix, value in zip(prefixes, values, strict=True)]))

    def add_histograms(
        self, name: str, bounds: Sequence[str], histograms: Iterable[tuple[Mapping[str, str], Sequence[int], Value]]
    ) -> None:
        """(labels, counts by bucket with that of the rest at the end, sum) each; `bounds` without +Inf."""
        prepared = [(self.histogram_prefixes(name, labels, bounds), counts, total)
                    for labels, counts, total in histograms]  # fmt: skip
        self.add_prepared_histograms(METRICS[name], prepared)

    def histogram_prefixes(self, name: str, labels: Mapping[str, str], bounds: Sequence[str]) -> list[str]:
        """Count, sum, then a prefix for each bucket; may be kept over scrapes."""
        inner = self._inner(name, labels)
        buckets = [f'{name}_bucket{{{inner},le="{bound}"}} ' for bound in (*bounds, "+Inf")]
        return [f"{name}_count{{{inner}}} ", f"{name}_sum{{{inner}}} ", *buckets]

    def add_prepared_histograms(
        self, metric: Metric, histograms: Sequence[tuple[Sequence[str], Sequence[int], Value]]
    ) -> None:
        """(prefixes of histogram_prefixes, counts, sum) each. The limit counts histograms, as stock's does."""
        assert metric.kind == HISTOGRAM
        if not histograms:
            return
        if len(histograms) > self.limit:
            self.leave_out(metric.name, len(histograms) - self.limit)
            histograms = histograms[: self.limit]
        self._chunks.append(self._head(metric))
        for prefixes, counts, total in histograms:
            self.series += len(prefixes)
            self._chunks.append("".join(_histogram_lines(prefixes, counts, total)))

    def leave_out(self, name: str, count: int) -> None:
        """So many series of that family are not shown."""
        self.left_out[name] = self.left_out.get(name, 0) + count

    def text(self) -> str:
        """The whole."""
        return "".join(self._chunks)

    def _inner(self, name: str, labels: Mapping[str, str]) -> str:
        scope = f'otel_scope_name="{SCOPE}",' if name.startswith("rocketmq_") else ""
        return scope + label_text({**self.common, **labels})

    def _head(self, metric: Metric) -> str:
        return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"


def _histogram_lines(prefixes: Sequence[str], counts: Sequence[int], total: Value) -> Iterator[str]:
    reached = 0
    lines = []
    for prefix, count in zip(prefixes[2:], counts, strict=True):
        reached += count
        lines.append(f"{prefix}{reached}\n")
    yield f"{prefixes[0]}{reached}\n"
    yield f"{prefixes[1]}{total}\n"
    yield from lines
