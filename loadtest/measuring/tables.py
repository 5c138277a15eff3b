"""Tables in Markdown, of measured values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringmq.loadtest.measuring.documents import Document, runs_of
from ringmq.loadtest.measuring.measurement import RINGMQ, Measurement


@dataclass(frozen=True)
class Column:
    """A value of a measurement, multiplied by `scale` and written by `form`."""

    title: str
    name: str
    form: str = "{:,.0f}"
    scale: float = 1.0

    def text(self, values: Mapping[str, float]) -> str:
        """Return the text of the value, `-` if it was not measured."""
        value = values.get(self.name)
        return "-" if value is None else self.form.format(value * self.scale)


def markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]], *, is_aligned: bool = False) -> str:
    """Return head, rule and one line per entry. With `is_aligned` all cells of a column are of one width."""
    cells = [list(head), *(list(line) for line in lines)]
    if is_aligned:
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        cells = [[text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in cells]
    rows = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([rows[0], "|" + "---|" * len(head), *rows[1:]]) + "\n"


def runs_table(columns: Sequence[Column], runs: Sequence[Measurement]) -> str:
    """Return one line per round."""
    lines = []
    for number, run in enumerate(runs, 1):
        counts = "yes" if run.ok else f"NO {run.note}".strip()
        lines.append([str(number), *(column.text(run.values) for column in columns), counts])
    return markdown_table(["Round", *(column.title for column in columns), "Counts"], lines)


def rounds_tables(report: Document, columns: Mapping[str, Sequence[Column]]) -> str:
    """Return for each measured row its title and a line per round. `columns`: those of a row by its name."""
    measured = [(row, runs) for row in report["rows"] if (runs := runs_of(row))]
    return "\n".join(f"{row['title']}\n\n{runs_table(columns[row['name']], runs)}" for row, runs in measured)


def points_table(
    head: Sequence[str], columns: Sequence[Column], points: Sequence[tuple[Sequence[str], Document]], side: str = RINGMQ
) -> str:
    """Return one line per row of the document: its cells under `head`, then medians. `NAME spread` is a spread."""
    lines = []
    for cells, row in points:
        found = row["systems"].get(side, {"counted": 0, "runs": 0, "median": {}, "spread": {}})
        values = {**found["median"], **{f"{name} spread": value for name, value in found["spread"].items()}}
        counts = "yes" if found["counted"] == found["runs"] > 0 else f"{found['counted']} of {found['runs']}"
        lines.append([*cells, *(column.text(values) for column in columns), counts])
    return markdown_table([*head, *(column.title for column in columns), "counts"], lines)


def sides_table(report: Document, sides: Mapping[str, tuple[str, str]]) -> str:
    """Return one line per row: medians and half of the spread, then the goals.

    `sides`: by title of a column, the side and the metric, "" for the row's own.
    """
    lines = [
        [
            f"{row['title']} [{row['unit']}]",
            *(_cell(row, side, metric or row["metric"]) for side, metric in sides.values()),
            ", ".join(goal_text(goal, len(row["goals"])) for goal in row["goals"]),
        ]
        for row in report["rows"]
    ]
    return markdown_table(["row", *sides, "reached (goal)"], lines, is_aligned=True)


def _cell(row: Document, side: str, metric: str) -> str:
    measured = row["systems"].get(side)
    if measured is None:
        return "-"
    if metric not in measured["median"]:
        return "-" if measured["counted"] else "does not count"
    return f"{number_text(measured['median'][metric])} +- {number_text(measured['spread'][metric] / 2)}"


def report_text(report: Document, conditions: str, table: str, *, lists_goals: bool) -> str:
    """Return the machine, the conditions, the table, the goals with `lists_goals`, and the notes of all runs."""
    header, rows = report["header"], report["rows"]
    machine = f"{header['processor']}, {header['cpus']} CPUs, Linux {header['kernel']}, {header['file_system']}"
    reached = [f"- {row['name']}: {goal['metric']} {goal_text(goal)}" for row in rows for goal in row["goals"]]
    notes = [
        f"- {row['name']}, {side}: {note}"
        for row in rows
        for side, measured in row["systems"].items()
        for note in measured["notes"]
    ]
    listed = {"goals": reached if lists_goals else [], "notes": notes}
    parts = ["\n".join(filter(None, [machine, conditions])), table.rstrip()]
    parts += ["\n".join([title, *lines]) for title, lines in listed.items() if lines]
    return "\n\n".join(parts) + "\n"


def number_text(value: float) -> str:
    """Return a number with three digits, or whole with separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goal_text(goal: Document, goals: int = 1) -> str:
    """Return `1.2 (>=1: ok)`, with the metric's name if a row has several `goals`. A missed value is bold."""
    value = "-" if goal["value"] is None else number_text(goal["value"])
    mark = {True: "ok", False: "SHORT", None: "?"}[goal["met"]]
    metric = f"{goal['metric']} " if goals > 1 and not goal["metric"].startswith("messages") else ""
    return f"{metric}{f'**{value}**' if goal['met'] is False else value} ({goal['goal']}: {mark})"
