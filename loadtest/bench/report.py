"""The results of a bench: one JSON document, the table made from it, and the plot."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringmq.loadtest.bench.measurement import CEILING, RINGMQ, STOCK, Goal, Measurement, Summary, evaluate, summarize
from ringmq.loadtest.bench.rows import Context, Row
from ringmq.loadtest.bench.svg import save_svg, svg_pyplot
from ringmq.loadtest.bench.warm_memory import free_pages_go_back
from ringmq.loadtest.load.targets import COMMON_SETTINGS, STOCK_HEAP_MB

FORMAT = 1
COLORS = {STOCK: "#8a8a8a", RINGMQ: "#c0392b", CEILING: "#2c6fbb"}
Document = dict[str, Any]


def document(
    rows: Sequence[Row],
    results: Mapping[str, Mapping[str, Sequence[Measurement]]],
    context: Context,
    *,
    rounds: int,
    quick: bool,
    warm_memory: bool = False,
) -> Document:
    """Return all measured values, with the circumstances, as plain JSON values."""
    return {
        "format": FORMAT,
        "header": {
            **machine(context.folder),
            **_circumstances(context),
            "rounds": rounds,
            "quick": quick,
            "memory_touched_before": warm_memory,
            "free_pages_go_back_to_a_host": free_pages_go_back(),
        },
        "rows": [_row_document(row, results.get(row.name, {})) for row in rows],
    }


def machine(folder: Path) -> Document:
    """Return processor, memory, kernel and file system."""
    model = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(),
        "processor": model[0] if model else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_mib": memory[0] if memory else None,
        "file_system": _file_system(folder),
        "python": platform.python_version(),
        "java": _java_version(),
    }


def _circumstances(context: Context) -> Document:
    return {
        "server_cpus": context.cpus,
        "loader_cpu": context.loader_cpu,
        "seconds": context.seconds,
        "flush": "ASYNC_FLUSH, row sync: SYNC_FLUSH",
        "settings": dict(COMMON_SETTINGS),
        "stock": {"version": "5.3.3", "heap_mb": STOCK_HEAP_MB, "serialization": "ROCKETMQ"},
        "best_rate": dict(context.best_rate),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _file_system(folder: Path) -> str:
    """Return type and mount point of the longest mount that holds `folder`."""
    best = ("", "unknown")
    for line in _lines("/proc/mounts"):
        point, kind = line.split()[1:3]
        if folder.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return f"{best[1]} at {best[0]}"


def _java_version() -> str | None:
    if shutil.which("java") is None:
        return None
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60)
    return (done.stderr.splitlines() or [""])[0]


def _row_document(row: Row, runs: Mapping[str, Sequence[Measurement]]) -> Document:
    summaries = {system: summarize(measured) for system, measured in runs.items()}
    return {
        "name": row.name,
        "title": row.title,
        "metric": row.metric,
        "unit": row.unit,
        "systems": {system: summary_document(summary, runs[system]) for system, summary in summaries.items()},
        "goals": goal_documents(row.goals, summaries),
    }


def goal_documents(goals: Sequence[Goal], summaries: Mapping[str, Summary]) -> list[Document]:
    """Return each goal with its result."""
    return [
        {
            "metric": verdict.goal.metric,
            "reference": verdict.goal.reference,
            "goal": verdict.goal.text(),
            "value": verdict.value,
            "met": verdict.met,
        }
        for verdict in (evaluate(goal, summaries) for goal in goals)
    ]


def summary_document(summary: Summary, runs: Sequence[Measurement]) -> Document:
    """Return a summary with all of its runs."""
    return {
        "median": dict(summary.median),
        "spread": dict(summary.spread),
        "runs": summary.runs,
        "counted": summary.counted,
        "notes": list(summary.notes),
        "raw": [{"values": dict(run.values), "ok": run.ok, "note": run.note, "report": dict(run.raw)} for run in runs],
    }


def print_table(report: Document) -> None:
    """Print medians with spread, ratios against the goals, then the runs that did not count and their reasons."""
    header = report["header"]
    print(f"{header['processor']}, {header['cpus']} CPUs, Linux {header['kernel']}, {header['file_system']}")
    print(f"servers on CPUs {header['server_cpus']}, loader on {header['loader_cpu']}, {header['rounds']} round(s) of")
    print(f"{header['seconds']} s, {header['flush']}; median +- half of the spread\n")
    widths = (64, 22, 22, 22)
    columns = ("row", STOCK, RINGMQ, CEILING)
    print("".join(f"{text:<{width}}" for text, width in zip(columns, widths, strict=True)) + "goals")
    notes = []
    for row in report["rows"]:
        cells = [f"{row['title']} [{row['unit']}]"[:63]]
        cells += [_cell(row, system) for system in (STOCK, RINGMQ, CEILING)]
        line = "".join(f"{text:<{width}}" for text, width in zip(cells, widths, strict=True))
        print(line + ", ".join(goal_text(goal, len(row["goals"])) for goal in row["goals"]))
        for system, measured in row["systems"].items():
            notes += [f"{row['name']}, {system}: {note}" for note in measured["notes"]]
    best = [row for row in report["rows"] if row["systems"].get(CEILING)]
    if best:
        print(f"\nloader: {loader_summary(report)}")
    for row in report["rows"]:
        used = server_cpu(row)
        if used:
            print(f"CPU of RingMQ's processes, {row['name']}: {used}")
    if notes:
        print("\nnotes\n  " + "\n  ".join(notes))


def loader_summary(report: Document) -> str:
    """Return the loader's highest proven rate and its processor share beside RingMQ."""
    proven = [
        run["values"].get("messages_per_s", 0.0)
        for row in report["rows"]
        if row["unit"] == "msg/s" and row["name"] not in ("batch", "pull", "sync")
        for run in row["systems"].get(CEILING, {}).get("raw", [])
    ]
    shares = [
        f"{row['name']} {100 * row['systems'][RINGMQ]['median']['loader_cpu']:.0f}%"
        for row in report["rows"]
        if "loader_cpu" in row["systems"].get(RINGMQ, {}).get("median", {})
    ]
    text = f"highest proven rate {max(proven, default=0):,.0f} msg/s"
    return text + (f"; CPU share beside RingMQ: {', '.join(shares)}" if shares else "")


def server_cpu(row: Document) -> str:
    """Return RingMQ's processor time in the last run of a row: share of one CPU by process."""
    runs = row["systems"].get(RINGMQ, {}).get("raw", [])
    used = runs[-1]["report"].get("server_cpu", {}) if runs else {}
    return ", ".join(f"{name} {100 * share:.0f}%" for name, share in used.items() if share >= 0.005)


def _cell(row: Document, system: str) -> str:
    measured = row["systems"].get(system)
    if measured is None:
        return "-"
    value = measured["median"].get(row["metric"])
    if value is None:
        return "does not count"
    return f"{number_text(value)} +- {number_text(measured['spread'][row['metric']] / 2)}"


def number_text(value: float) -> str:
    """Return a number with three digits, or whole with separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goal_text(goal: Document, goals: int) -> str:
    """Return `1.2 (>=1: ok)`, with the metric's name if a row has several `goals`."""
    mark = {True: "ok", False: "SHORT", None: "?"}[goal["met"]]
    value = "-" if goal["value"] is None else f"{goal['value']:.3g}"
    metric = f"{goal['metric']} " if goals > 1 and not goal["metric"].startswith("messages") else ""
    return f"{metric}{value} ({goal['goal']}: {mark})"


def write_plot(report: Document, path: Path) -> None:
    """Draw messages per second of every rate row, one bar per system, as SVG."""
    pyplot = svg_pyplot()
    rows = [row for row in report["rows"] if row["unit"] == "msg/s" and row["systems"]]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.7 * max(1, len(rows))))
    for index, system in enumerate((CEILING, RINGMQ, STOCK)):
        found = [(i, row["systems"].get(system, {})) for i, row in enumerate(reversed(rows))]
        points = [(i, measured, rate) for i, measured in found if (rate := row_rate(measured)) is not None]
        if not points:
            continue
        axes.barh(
            [i + 0.27 * (index - 1) for i, _, _ in points],
            [rate for _, _, rate in points],
            xerr=[measured["spread"]["messages_per_s"] / 2 for _, measured, _ in points],
            height=0.25,
            color=COLORS[system],
            label=system,
        )
    axes.set_yticks(range(len(rows)), [row["title"] for row in reversed(rows)])
    axes.set_xscale("log")
    axes.set_xlim(left=100)
    axes.set_xlabel("messages per second (median, bars: spread)")
    axes.grid(axis="x", alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, -0.2), ncols=3)
    header = report["header"]
    axes.set_title(f"{header['processor']}, {header['cpus']} CPUs, {header['time'][:10]}", fontsize=9)
    figure.tight_layout()
    save_svg(figure, path)


def row_rate(measured: Document) -> float | None:
    """Return the median messages/s of one system in one row."""
    value = measured.get("median", {}).get("messages_per_s") if measured else None
    return None if value is None else float(value)
