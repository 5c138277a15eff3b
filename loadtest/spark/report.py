"""The results of the Spark bench: one JSON document, the table made from it, and the plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringmq.loadtest.bench.measurement import RINGMQ, Measurement, summarize
from ringmq.loadtest.bench.report import Document, goal_documents, goal_text, machine, number_text, summary_document
from ringmq.loadtest.bench.svg import save_svg, svg_pyplot
from ringmq.loadtest.spark.rows import SparkRow
from ringmq.loadtest.spark.workbench import Workbench

FORMAT = 1
MET, SHORT = "#2c6fbb", "#c0392b"


def document(
    rows: Sequence[SparkRow], results: Mapping[str, Sequence[Measurement]], bench: Workbench, *, rounds: int
) -> Document:
    """Return all measured values, with the circumstances, as plain JSON values."""
    circumstances = {
        "rounds": rounds,
        "log_bytes": bench.log_bytes,
        "cores": bench.cores,
        "seconds": bench.seconds,
        "filled": {size: vars(filled) for size, filled in bench.filled.items()},
    }
    return {
        "format": FORMAT,
        "header": {**machine(bench.folder), **circumstances},
        "rows": [_row_document(row, results.get(row.name, [])) for row in rows],
    }


def _row_document(row: SparkRow, runs: Sequence[Measurement]) -> Document:
    summary = summarize(runs)
    return {
        "name": row.name,
        "title": row.title,
        "unit": row.unit,
        "other": row.other,
        "goals": goal_documents(row.goals, {RINGMQ: summary}),
        **summary_document(summary, runs),
    }


def print_table(report: Document) -> None:
    """Print medians with half of the spread, both sides, every goal with its mark, then the runs that did not count."""
    header = report["header"]
    print(f"{header['processor']}, {header['cpus']} CPUs, Linux {header['kernel']}, {header['file_system']}")
    print(f"local[{header['cores']}], {header['log_bytes'] / (1 << 30):.3g} GiB of log per size, page cache hot,")
    print(f"{header['rounds']} interleaved round(s); median +- half of the spread\n")
    print(f"{'row':<50}{'ours':>20}{'other':>20}          goals")
    for row in report["rows"]:
        cells = f"{row['title']:<50}{_cell(row, 'ours'):>20}{_cell(row, 'other'):>20} {row['unit']:<10}"
        print(cells + ", ".join(goal_text(goal, len(row["goals"])) for goal in row["goals"]))
    notes = [f"{row['name']}: {note}" for row in report["rows"] for note in row["notes"]]
    if notes:
        print("\nnotes\n  " + "\n  ".join(notes))


def _cell(row: Document, metric: str) -> str:
    value = row["median"].get(metric)
    if value is None:
        return "does not count" if metric == "ours" and row["runs"] else "-"
    return f"{number_text(value)} +- {number_text(row['spread'][metric] / 2)}"


def markdown_table(report: Document) -> list[str]:
    """Return the table for docs/spark-performance.md. Missed goals are bold."""

    def goal(found: dict[str, Any]) -> str:
        text = "-" if found["value"] is None else f"{found['value']:.3g}"
        text = text if found["met"] else f"**{text}**"
        return f"{text} ({found['goal']})"

    rows = [
        f"| {row['title']} | {_cell(row, 'ours')} {row['unit']} | {_cell(row, 'other')} {row['other']} | "
        f"{', '.join(map(goal, row['goals']))} |"
        for row in report["rows"]
    ]
    return ["| row | RingMQ | other side | reached (goal) |", "|---|---|---|---|", *rows]


def shares_of_goals(report: Document) -> list[tuple[str, float]]:
    """Return per goal its row's title and its degree: 1 is the goal, more is better, in either direction."""
    found = []
    for row in report["rows"]:
        for goal in row["goals"]:
            sign, bound = goal["goal"][:2], float(goal["goal"][2:])
            if goal["value"]:
                reached = goal["value"] / bound if sign == ">=" else bound / goal["value"]
                name = row["title"] if goal["metric"] != "p95" else f"{row['title']}, p95"
                found.append((name, reached))
    return found


def write_plot(report: Document, path: Path) -> None:
    """Draw the degree of each goal, as SVG."""
    pyplot = svg_pyplot()
    shares = shares_of_goals(report)[::-1]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.3 * max(1, len(shares))))
    axes.barh(range(len(shares)), [share for _, share in shares], color=[MET if s >= 1 else SHORT for _, s in shares])
    axes.set_yticks(range(len(shares)), [name for name, _ in shares], fontsize=8)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("reached, as a multiple of the goal (median; right of the line: met)")
    header = report["header"]
    axes.set_title(f"{header['processor']}, {header['cpus']} CPUs, {header['time'][:10]}", fontsize=9)
    figure.tight_layout()
    save_svg(figure, path)
