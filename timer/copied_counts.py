"""timermetrics as a slave gets it from its master (request 61)."""

from __future__ import annotations

from typing import Any

from ringmq.remoting import json_body


def check_counts(value: dict[str, Any]) -> None:
    """Raise BadBody unless each topic has a count, as stock's `TimerMetricsSerializeWrapper` has."""
    for topic, metric in json_body.mapping(value, "timingCount").items():
        if not isinstance(metric, dict) or not isinstance(metric.get("count", 0), int):
            raise json_body.bad_body(f"timingCount of {str(topic)[:64]!r} has no whole number as count", "timingCount")
