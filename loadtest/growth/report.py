"""The results of the growth bench: one JSON document, a Markdown table per scenario, plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringmq.loadtest.bench.markdown import markdown_table
from ringmq.loadtest.bench.measurement import RINGMQ, Measurement, summarize
from ringmq.loadtest.bench.report import goal_documents, goal_text, machine, summary_document
from ringmq.loadtest.bench.svg import save_svg, svg_pyplot
from ringmq.loadtest.bench.warm_memory import free_pages_go_back
from ringmq.loadtest.growth.bench import LAST, Bench, Scenario

FORMAT = 1
Results = Mapping[str, Mapping[float, Sequence[Measurement]]]  # scenario -> place on the axis -> runs
Document = dict[str, Any]
PANELS = (("messages_per_s", "messages per second", 1.0), ("p99", "p99 of a send, ms", 1e-3),
          ("private_mib", "private memory, MiB", 1.0))  # fmt: skip
MORE_PANELS = (("start_s", "start after kill -9, s", 1.0), ("idle_percent", "CPU when idle, %", 1.0),
               ("delivered_per_s", "delivered per second", 1.0))  # fmt: skip
"""Panels that a picture has if all of its scenarios do."""


def document(scenarios: Sequence[Scenario], results: Results, bench: Bench, *, rounds: int) -> Document:
    """Return all measured values, with the circumstances, as plain JSON values."""
    context = bench.context
    header = {
        **machine(context.folder),
        "server_cpus": context.cpus,
        "loader_cpu": context.loader_cpu,
        "seconds": context.seconds,
        "rounds": rounds,
        "settings": dict(bench.settings),
        "memory_touched_before": bench.warm_memory,
        "free_pages_go_back_to_a_host": free_pages_go_back(),
    }
    return {
        "format": FORMAT,
        "header": header,
        "scenarios": [_scenario(item, results.get(item.name, {})) for item in scenarios],
    }


def _scenario(scenario: Scenario, runs: Mapping[float, Sequence[Measurement]]) -> Document:
    points = [
        {"at": at, "summary": summary_document(summarize(measured), measured), "goals": _goals(scenario, runs, at)}
        for at, measured in sorted(runs.items())
    ]
    return {"name": scenario.name, "title": scenario.title, "axis": scenario.axis, "points": points}


def _goals(scenario: Scenario, runs: Mapping[float, Sequence[Measurement]], at: float) -> list[Document]:
    goals = scenario.goals.get(at, ())
    if at == max(runs):
        goals = (*goals, *scenario.goals.get(LAST, ()))
    return goal_documents(goals, {RINGMQ: summarize(runs[at])})


def tables(report: Document, scenarios: Sequence[Scenario]) -> str:
    """Return a heading, a table and the goals of every scenario."""
    text = []
    for scenario, found in zip(scenarios, report["scenarios"], strict=True):
        if not found["points"]:
            continue
        lines = []
        for point in found["points"]:
            median, summary = point["summary"]["median"], point["summary"]
            counted = "yes" if summary["counted"] == summary["runs"] else f"{summary['counted']} of {summary['runs']}"
            lines.append([f"{point['at']:g}", *(column.text(median) for column in scenario.columns), counted])
        head = [scenario.axis, *(column.title for column in scenario.columns), "counts"]
        text.append(f"## {scenario.name}\n\n{scenario.title}\n\n{markdown_table(head, lines)}")
        text += [f"{line}\n" for line in _remarks(found)]
    return "\n".join(text)


def _remarks(found: Document) -> list[str]:
    said = []
    for point in found["points"]:
        where = f"{point['at']:g} {found['axis']}"
        said += [f"- {where}: {goal['metric']} {goal_text(goal, 1)}" for goal in point["goals"]]
        said += [f"- {where}: {note}" for note in point["summary"]["notes"]]
    return said


def missed(report: Document) -> list[str]:
    """Return goals that were evaluated and not reached, and points without a run that counts."""
    found = []
    for scenario in report["scenarios"]:
        for point in scenario["points"]:
            where = f"{scenario['name']} at {point['at']:g}"
            found += [f"{where}: {goal['metric']}" for goal in point["goals"] if goal["met"] is False]
            if not point["summary"]["counted"]:
                found.append(f"{where}: no run counts")
    return found


def write_plots(report: Document, path: Path) -> None:
    """Draw a column per scenario as SVG: rate, p99, memory and so on below each other."""
    pyplot = svg_pyplot()
    shown = [scenario for scenario in report["scenarios"] if scenario["points"]]
    columns, panels = max(1, len(shown)), [*PANELS, *(panel for panel in MORE_PANELS if _have_all(shown, panel[0]))]
    size = (3.4 * columns + 1, 2.5 * len(panels))
    figure, axes = pyplot.subplots(len(panels), columns, figsize=size, squeeze=False)
    for column, scenario in enumerate(shown):
        for row, (metric, label, scale) in enumerate(panels):
            panel = axes[row][column]
            points = [(point["at"], point["summary"]["median"].get(metric)) for point in scenario["points"]]
            known = [(at, scale * value) for at, value in points if value is not None]
            panel.plot([at for at, _ in known], [value for _, value in known], marker="o", ms=3, color="#c0392b")
            if scenario["axis"] != "minutes":
                panel.set_xscale("symlog" if any(at == 0 for at, _ in points) else "log", base=2)
            panel.set_xticks(_ticks([at for at, _ in points]), [f"{at:g}" for at in _ticks([at for at, _ in points])])
            panel.minorticks_off()
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3)
            if column == 0:
                panel.set_ylabel(label)
        axes[0][column].set_title(scenario["name"], fontsize=10)
        axes[-1][column].set_xlabel(scenario["axis"])
    figure.tight_layout()
    save_svg(figure, path)


def _have_all(scenarios: Sequence[Document], metric: str) -> bool:
    return all(metric in point["summary"]["median"] for scenario in scenarios for point in scenario["points"])


def _ticks(places: Sequence[float]) -> list[float]:
    """Return at most seven ticks, the ends among them."""
    step = -(-len(places) // 7)
    return sorted({*places[::step], *places[-1:]})
