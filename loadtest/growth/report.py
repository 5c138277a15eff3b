"""The printed tables of the growth bench, one for each scenario, and its plots."""

from collections.abc import Sequence
from pathlib import Path

from ringmq.loadtest.growth.bench import Scenario
from ringmq.loadtest.measuring.documents import Document, median
from ringmq.loadtest.measuring.measurement import RATE
from ringmq.loadtest.measuring.plots import RED, Line, Panel, draw_panels
from ringmq.loadtest.measuring.tables import points_table

PANELS = (
    (RATE, "messages per second", 1.0),
    ("p99", "p99 of a send, ms", 1e-3),
    ("private_mib", "private memory, MiB", 1.0),
)
MORE_PANELS = (
    ("start_s", "start after kill -9, s", 1.0),
    ("idle_percent", "CPU when idle, %", 1.0),
    ("delivered_per_s", "delivered per second", 1.0),
    ("late_p99", "p99 from send to receipt, ms", 1e-3),
)
"""Panels that a picture has if all of its scenarios do."""
TICKS_MAX = 7


def rows_of(report: Document, scenario: str) -> list[Document]:
    """Return the measured points of a scenario."""
    return [row for row in report["rows"] if row["place"]["scenario"] == scenario and row["systems"]]


def tables(report: Document, scenarios: Sequence[Scenario]) -> str:
    """Return a heading and a table of every scenario."""
    parts = []
    for scenario in scenarios:
        lines = [([f"{row['place']['at']:g}"], row) for row in rows_of(report, scenario.name)]
        if lines:
            table = points_table([scenario.axis], scenario.columns, lines)
            parts.append(f"## {scenario.name}\n\n{scenario.title}\n\n{table}")
    return "\n".join(parts)


def draw(report: Document, path: Path) -> None:
    """Draw a column per scenario: rate, p99, memory and so on below each other."""
    names = list(dict.fromkeys(row["place"]["scenario"] for row in report["rows"] if row["systems"]))
    medians = [median(row) for name in names for row in rows_of(report, name)]
    shown = [*PANELS, *(panel for panel in MORE_PANELS if all(panel[0] in values for values in medians))]
    draw_panels(path, [label for _, label, _ in shown], [_column(report, name, shown) for name in names], marker="o")


def _column(report: Document, name: str, shown: Sequence[tuple[str, str, float]]) -> Panel:
    rows = rows_of(report, name)
    at, axis = [float(row["place"]["at"]) for row in rows], str(rows[0]["place"]["axis"])
    ticks = sorted({*at[:: -(-len(at) // TICKS_MAX)], at[-1]})
    scale = "linear" if axis == "minutes" else "symlog" if 0 in at else "log"
    figures = [
        [Line([(a, factor * median(row)[m]) for a, row in zip(at, rows, strict=True) if m in median(row)], RED)]
        for m, _, factor in shown
    ]
    return Panel(name, axis, ticks, scale, figures)
