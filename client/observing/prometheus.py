"""`ClientMetrics` in a Prometheus registry (extra `prometheus`): read at each scrape, no work in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ringmq.client.extras import not_installed

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(not_installed(__name__, error.name, "prometheus"), name=error.name) from None

from ringmq.client.observing.metrics import BUCKETS_S, COUNTERS, GAUGES, HELP, HISTOGRAMS, ClientMetrics, Histogram

_process_metrics: ClientMetrics | None = None
_making = threading.Lock()


class ClientCollector(Collector):
    """Gives a registry the current content of `metrics` at each scrape."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield all series."""
        now = self._metrics.snapshot()
        for name, labels in COUNTERS.items():
            counter = CounterMetricFamily(name.removesuffix("_total"), HELP[name], labels=labels)
            for values, count in now.counters[name].items():
                counter.add_metric(values, count)
            yield counter
        for name, labels in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, HELP[name], labels=labels)
            for values, observed in now.histograms[name].items():
                histogram.add_metric(values, _cumulative(observed), observed.sum_s)
            yield histogram
        for name, labels in GAUGES.items():
            gauge = GaugeMetricFamily(name, HELP[name], labels=labels)
            for values, value in now.gauges[name].items():
                gauge.add_metric(values, value)
            yield gauge

    def describe(self) -> list[Metric]:
        """Return no series: an empty list keeps the registry from collecting at registration."""
        return []


def register(metrics: ClientMetrics, registry: CollectorRegistry = REGISTRY) -> ClientCollector:
    """Show `metrics` in `registry`. Pass the result to `registry.unregister` to end that."""
    collector = ClientCollector(metrics)
    registry.register(collector)
    return collector


def process_metrics() -> ClientMetrics:
    """Return the `ClientMetrics` of this process that the default registry shows. The first call makes it."""
    global _process_metrics
    with _making:
        if _process_metrics is None:
            _process_metrics = ClientMetrics()
            register(_process_metrics)
        return _process_metrics


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*BUCKETS_S, float("inf")), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
    return buckets
