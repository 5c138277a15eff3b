"""The printed table of `ringmq bench`, and its plot."""

from pathlib import Path

from ringmq.loadtest.measuring.documents import Document, median
from ringmq.loadtest.measuring.measurement import CEILING, RATE, RINGMQ, STOCK
from ringmq.loadtest.measuring.plots import BLUE, GRAY, RED, Bars, draw_bars
from ringmq.loadtest.measuring.tables import sides_table

COLORS = {CEILING: BLUE, RINGMQ: RED, STOCK: GRAY}


def table(report: Document) -> str:
    """Return the table, and figures of the loader and of RingMQ's processes."""
    rows = report["rows"]
    lines = [sides_table(report, {system: (system, "") for system in (STOCK, RINGMQ, CEILING)})]
    if any(CEILING in row["systems"] for row in rows):
        lines.append(f"loader: {loader_summary(report)}")
    return "\n".join(
        [*lines, *(f"CPU of RingMQ's processes, {row['name']}: {used}" for row in rows if (used := server_cpu(row)))]
    )


def loader_summary(report: Document) -> str:
    """Return the loader's highest proven rate and its processor share beside RingMQ."""
    proven = [
        run["values"].get(RATE, 0.0)
        for row in report["rows"]
        if row["unit"] == "msg/s" and row["name"] not in ("batch", "pull", "sync")
        for run in row["systems"].get(CEILING, {}).get("raw", [])
    ]
    shares = {row["name"]: share for row in report["rows"] if (share := median(row).get("loader_cpu")) is not None}
    beside = ", ".join(f"{name} {100 * share:.0f}%" for name, share in shares.items())
    return f"highest proven rate {max(proven, default=0):,.0f} msg/s" + (
        f"; CPU share beside RingMQ: {beside}" * bool(beside)
    )


def server_cpu(row: Document) -> str:
    """Return RingMQ's processor time in the last run of a row: share of one CPU by process."""
    runs = row["systems"].get(RINGMQ, {}).get("raw", [])
    used = runs[-1]["report"].get("server_cpu", {}) if runs else {}
    return ", ".join(f"{name} {100 * share:.0f}%" for name, share in used.items() if share >= 0.005)


def draw(report: Document, path: Path) -> None:
    """Draw messages per second of every rate row, one bar per system."""
    rows = [row for row in report["rows"] if row["unit"] == "msg/s" and row["systems"]]
    series = []
    for system, color in COLORS.items():
        rates = [(at, rate, row) for at, row in enumerate(rows) if (rate := median(row, system).get(RATE))]
        values = [(at, rate, row["systems"][system]["spread"][RATE] / 2) for at, rate, row in rates]
        series += [Bars(system, color, values)] * bool(values)
    axis = "messages per second (median, bars: spread)"
    draw_bars(report, path, [row["title"] for row in rows], series, axis, at_least=100)
