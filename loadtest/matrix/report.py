"""Results of the replication matrix: a table for the terminal, a CSV file of all cells, and the plots."""

import csv
from pathlib import Path

from ringmq.loadtest.matrix.cells import BODY_BYTES, POLICIES, TOPICS, size_text
from ringmq.loadtest.measuring.documents import Document, median
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ
from ringmq.loadtest.measuring.plots import BLUE, GREEN, RED, Line, Panel, draw_panels
from ringmq.loadtest.measuring.tables import Column, points_table

COLUMNS = (
    Column("msg/s", RATE),
    Column("consumed/s", "consumed_per_s"),
    Column("mean ms", "mean", "{:.2f}", 1e-3),
    Column("p99 ms", "p99", "{:.2f}", 1e-3),
    Column("p99.9 ms", "p99_9", "{:.2f}", 1e-3),
    Column("CPU master", "master_cpu", "{:.2f}"),
    Column("CPU slave", "slave_cpu", "{:.2f}"),
    Column("memory MiB", "memory_mib"),
    Column("disk MB/s", "disk_mb_per_s"),
    Column("wait ms a write", "disk_wait_ms", "{:.1f}"),
    Column("loopback MB/s", "loopback_mb_per_s"),
)
COORDINATES = ("body_bytes", "consume", "policy", "topics")
COLORS = (RED, BLUE, GREEN)


def table(report: Document) -> str:
    """Return one line per cell."""
    points = []
    for row in (row for row in report["rows"] if row["systems"]):
        place, mode = row["place"], "produce, consume" if row["place"]["consume"] else "produce"
        points.append(([size_text(place["body_bytes"]), mode, place["policy"], str(place["topics"])], row))
    return points_table(["body", "mode", "policy", "topics"], COLUMNS, points)


def write_csv(report: Document, path: Path) -> None:
    """Write one row per cell: its coordinates, its values in the units of the table, and its correctness."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COORDINATES, *(column.title for column in COLUMNS), "correct", "note"])
        for row in report["rows"]:
            if not (ran := row["systems"].get(RINGMQ)):
                continue
            values = [column.text(ran["median"]).replace(",", "").removeprefix("-") for column in COLUMNS]
            places = [int(at) if isinstance(at := row["place"][name], bool) else at for name in COORDINATES]
            writer.writerow([*places, *values, ran["counted"], "; ".join(ran["notes"])])


def draw(report: Document, path: Path) -> None:
    """Draw throughput (above) and p99 (below) by topic count, one column per body size."""
    columns = []
    for body_bytes in BODY_BYTES:
        figures = [
            [
                Line(
                    _points(report, (body_bytes, consume, policy.name), metric, scale), color, "--" if consume else "-",
                    f"{policy.name}{', consumed' if consume else ''}",
                )
                for consume in (False, True)
                for policy, color in zip(POLICIES, COLORS, strict=True)
            ]
            for metric, scale in ((RATE, 1.0), ("p99", 1e-3))
        ]  # fmt: skip
        columns.append(Panel(f"body {size_text(body_bytes)}", "topics", TOPICS, "log", figures))
    draw_panels(path, ["messages per second", "p99 of a send, ms"], columns)


def _points(report: Document, line: tuple[int, bool, str], metric: str, scale: float) -> list[tuple[float, float]]:
    found = [row for row in report["rows"] if tuple(row["place"][name] for name in COORDINATES[:3]) == line]
    return sorted((row["place"]["topics"], scale * median(row)[metric]) for row in found if metric in median(row))
