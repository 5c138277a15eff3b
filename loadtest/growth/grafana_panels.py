"""Draws the panels of a Grafana dashboard from a Prometheus as one picture, without Grafana.

python -m ringmq.loadtest.growth.grafana_panels --prometheus http://127.0.0.1:9090 --out panels.png
"""

from __future__ import annotations

import argparse
import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = 3
POINTS_MAX = 120
SERIES_NAMED_MAX = 8
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel, its variables filled in."""

    panel: str
    kind: str
    unit: str
    expression: str
    legend: str


def targets(dashboard: dict[str, Any], rate_interval: str, node: str = ".*") -> Iterator[Target]:
    """Yield every query of the dashboard."""
    for panel in dashboard["panels"]:
        unit = panel["fieldConfig"]["defaults"].get("unit", "")
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", rate_interval).replace("$node", node)
            yield Target(panel["title"], panel["type"], unit, expression, target["legendFormat"])


def ask(prometheus: str, path: str, **fields: object) -> list[dict[str, Any]]:
    """Return the result of an API call. Raises OSError without an answer of Prometheus, ValueError for a refusal."""
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(fields)}"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        told = json.load(answer)
    if told["status"] != "success":
        raise ValueError(f"{prometheus}: {told}")
    result: list[dict[str, Any]] = told["data"]["result"]
    return result


def name_of(target: Target, labels: dict[str, str]) -> str:
    """Return the legend of a series."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target.legend)


def draw(dashboard: dict[str, Any], prometheus: str, out: Path, seconds: int, rate_interval: str) -> None:
    """Write the picture of the last `seconds`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel["title"] for panel in dashboard["panels"]]
    rows = -(-len(panels) // COLUMNS)
    figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(6 * COLUMNS, 3.2 * rows), squeeze=False)
    places = dict(zip(panels, axes.flat, strict=False))
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    now = time.time()
    for target in targets(dashboard, rate_interval):
        step = max(1, seconds // POINTS_MAX)
        series = ask(prometheus, "query_range", query=target.expression, start=now - seconds, end=now, step=step)
        axis = places[target.panel]
        axis.set_title(f"{target.panel} [{target.unit}]", fontsize=10, loc="left")
        for number, one in enumerate(series):
            times = [float(when) - now for when, _ in one["values"]]
            name = name_of(target, one["metric"]) if number < SERIES_NAMED_MAX else None
            mark = "." if len(times) == 1 else None  # no line is seen of a single point
            axis.plot(times, [float(value) for _, value in one["values"]], label=name, linewidth=1.4, marker=mark)
        axis.set_xlim(-seconds, 0)
        axis.grid(alpha=0.3)
        if series:
            axis.legend(fontsize=7, loc="upper left", framealpha=0.6)
        else:
            axis.text(0.5, 0.5, "no data", ha="center", transform=axis.transAxes)
    for axis in places.values():  # at last: a limit ends the fitting to what is drawn later
        axis.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(out, dpi=80)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Draw by the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="base address")
    parser.add_argument("--dashboard", type=Path, default=Path("monitoring/dashboard.json"))
    parser.add_argument("--out", type=Path, default=Path("build/panels.png"))
    parser.add_argument("--seconds", type=int, default=1800, help="how far back")
    parser.add_argument("--rate-interval", default="1m", help="what $__rate_interval stands for")
    given = parser.parse_args(arguments)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    dashboard = json.loads(given.dashboard.read_text())
    draw(dashboard, given.prometheus.rstrip("/"), given.out, given.seconds, given.rate_interval)
    print(given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
