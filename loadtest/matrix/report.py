"""Results of the replication matrix: a table for the terminal, a CSV file of all cells, and the plots."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringmq.loadtest.bench.markdown import Column, markdown_table
from ringmq.loadtest.bench.svg import save_svg, svg_pyplot
from ringmq.loadtest.matrix.cells import BODY_BYTES, POLICIES, TOPICS

Document = Mapping[str, Any]
COLUMNS = (
    Column("msg/s", "messages_per_s"),
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
COLORS = ("#c0392b", "#2c6fbb", "#2e8b57")


def table(cells: Sequence[Document]) -> str:
    """Return one line per cell."""
    head = ["body", "mode", "policy", "topics", *(column.title for column in COLUMNS), "correct"]
    lines = []
    for cell in cells:
        mode = "produce, consume" if cell["consume"] else "produce"
        words = [_size(cell["body_bytes"]), mode, cell["policy"], str(cell["topics"])]
        words += [column.text(cell["values"]) for column in COLUMNS]
        words.append("yes" if cell["correct"] else f"**no**: {cell['note']}")
        lines.append(words)
    return markdown_table(head, lines)


def write_csv(cells: Sequence[Document], path: Path) -> None:
    """Write one row per cell: its coordinates, its values in the units of the table, and its correctness."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COORDINATES, *(column.title for column in COLUMNS), "correct", "note"])
        for cell in cells:
            values = [column.text(cell["values"]).replace(",", "").removeprefix("-") for column in COLUMNS]
            places = [cell["body_bytes"], int(cell["consume"]), cell["policy"], cell["topics"]]
            writer.writerow([*places, *values, int(cell["correct"]), cell["note"]])


def read_csv(path: Path) -> list[Document]:
    """Return the cells of a file of `write_csv`, with the digits of the file."""
    with path.open(newline="") as file:
        return [_cell(row) for row in csv.DictReader(file)]


def _cell(row: Mapping[str, str]) -> Document:
    return {
        "body_bytes": int(row["body_bytes"]),
        "consume": row["consume"] == "1",
        "policy": row["policy"],
        "topics": int(row["topics"]),
        "values": {column.name: float(row[column.title]) / column.scale for column in COLUMNS if row[column.title]},
        "correct": row["correct"] == "1",
        "note": row["note"],
    }


def _size(body_bytes: int) -> str:
    return f"{body_bytes} B" if body_bytes < 1024 else f"{body_bytes // 1024} KiB"


def write_plots(cells: Sequence[Document], path: Path) -> None:
    """Draw throughput (above) and p99 (below) by topic count, one panel per body size, as SVG."""
    pyplot = svg_pyplot()
    figure, axes = pyplot.subplots(2, len(BODY_BYTES), figsize=(11, 6), sharex=True)
    for column, body_bytes in enumerate(BODY_BYTES):
        for row, (name, scale) in enumerate((("messages_per_s", 1.0), ("p99", 1e-3))):
            panel = axes[row][column]
            for consume in (False, True):
                for policy, color in zip(POLICIES, COLORS, strict=True):
                    points = _points(cells, body_bytes, consume, policy.name, name)
                    label = f"{policy.name}{', consumed' if consume else ''}"
                    style = "--" if consume else "-"
                    values = [scale * value for _, value in points]
                    panel.plot([at for at, _ in points], values, style, color=color, label=label)
            panel.set_xscale("log", base=2)
            panel.set_xticks(TOPICS, [str(topics) for topics in TOPICS])
            panel.set_ylim(bottom=0)
            panel.locator_params(axis="y", nbins=4)
            panel.grid(axis="y", alpha=0.3)
        axes[0][column].set_title(f"body {_size(body_bytes)}", fontsize=10)
        axes[1][column].set_xlabel("topics")
    axes[0][0].set_ylabel("messages per second")
    axes[1][0].set_ylabel("p99 of a send, ms")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    save_svg(figure, path)


def _points(
    cells: Sequence[Document], body_bytes: int, consume: bool, policy: str, name: str
) -> list[tuple[int, float]]:
    found = [
        cell for cell in cells if (cell["body_bytes"], cell["consume"], cell["policy"]) == (body_bytes, consume, policy)
    ]
    return sorted((cell["topics"], cell["values"][name]) for cell in found if name in cell["values"])
