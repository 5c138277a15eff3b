"""Plots of the benches as small SVG files."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringmq.loadtest.measuring.documents import Document

GRAY, RED, BLUE, GREEN = "#8a8a8a", "#c0392b", "#2c6fbb", "#2e8b57"
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text as text: outlines of letters would be most of the file
    "svg.hashsalt": "ringmq",  # so that the same values make the same bytes
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
}
FONT = " font-family: 'DejaVu Sans', sans-serif;"


def svg_pyplot() -> Any:
    """Return `pyplot` for SVG. The import takes a second, so only functions that draw call it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(SETTINGS)
    from matplotlib import pyplot

    return pyplot


def save_svg(figure: Any, path: Path) -> None:
    """Write the figure without parts that do not change the picture, and release it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg_pyplot().close(figure)
    path.write_text(_smaller(text.getvalue()))


@dataclass(frozen=True)
class Bars:
    """One bar for each of some labels, by their numbers: (number, value, length of the error bar)."""

    label: str
    color: str | Sequence[str]
    values: Sequence[tuple[int, float, float]]


def draw_bars(
    report: Document, path: Path, labels: Sequence[str], series: Sequence[Bars], axis: str,
    at_least: float | None = None, goal: float | None = None,
) -> None:  # fmt: skip
    """Draw horizontal bars on a logarithmic axis that begins with `at_least`, the first label on top."""
    figure, axes = svg_pyplot().subplots(figsize=(9, 1.2 + (0.1 + 0.2 * len(series)) * max(1, len(labels))))
    last, height = len(labels) - 1, 0.75 / max(1, len(series))
    for number, bars in enumerate(series):
        at = [last - index + height * (len(series) / 2 - 0.5 - number) for index, _, _ in bars.values]
        errors = [error for _, _, error in bars.values]
        axes.barh(
            at, [value for _, value, _ in bars.values], xerr=errors if any(errors) else None, height=height,
            color=bars.color, label=bars.label,
        )  # fmt: skip
    axes.set_yticks(range(len(labels)), labels[::-1], fontsize=8)
    axes.set_xscale("log")
    if at_least is not None:
        axes.set_xlim(left=at_least)
    if goal is not None:
        axes.axvline(goal, color="black", linewidth=1)
    axes.set_xlabel(axis)
    axes.grid(axis="x", alpha=0.3)
    if len(series) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(series), fontsize=9)
    header = report["header"]
    axes.set_title(f"{header['processor']}, {header['cpus']} CPUs, {header['time'][:10]}", fontsize=9, loc="right")
    figure.tight_layout()
    save_svg(figure, path)


@dataclass(frozen=True)
class Line:
    """A line of a panel: values by places on the axis."""

    points: Sequence[tuple[float, float]]
    color: str = RED
    style: str = "-"
    label: str = ""


@dataclass(frozen=True)
class Panel:
    """A column of panels below each other: for each of the figures some lines."""

    title: str
    axis: str
    ticks: Sequence[float]
    scale: str  # of the axis: log, symlog or linear
    figures: Sequence[Sequence[Line]]


def draw_panels(path: Path, labels: Sequence[str], columns: Sequence[Panel], marker: str = "") -> None:
    """Draw a column of panels beside the other. `labels` stand at the left, from top to bottom."""
    size = (3.4 * max(1, len(columns)) + 1, 2.5 * len(labels) + 1)
    figure, axes = svg_pyplot().subplots(len(labels), max(1, len(columns)), figsize=size, squeeze=False, sharex="col")
    for column, panel in enumerate(columns):
        for row, lines in enumerate(panel.figures):
            plot = axes[row][column]
            for line in lines:
                at, values = [at for at, _ in line.points], [value for _, value in line.points]
                plot.plot(at, values, line.style, marker=marker, ms=3, color=line.color, label=line.label)
            if panel.scale != "linear":
                plot.set_xscale(panel.scale, base=2)
            plot.set_xticks(panel.ticks, [f"{at:g}" for at in panel.ticks])
            plot.minorticks_off()
            plot.set_ylim(bottom=0)
            plot.locator_params(axis="y", nbins=4)
            plot.grid(axis="y", alpha=0.3)
        axes[0][column].set_title(panel.title, fontsize=10)
        axes[-1][column].set_xlabel(panel.axis)
    for row, label in enumerate(labels):
        axes[row][0].set_ylabel(label)
    handles, names = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, names, loc="lower center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0.08 if handles else 0, 1, 1))
    save_svg(figure, path)


def _smaller(text: str) -> str:
    """Return the SVG without indentation, group names and zero rotations, with one font and one decimal."""
    text = re.sub(r"\n\s+", "\n", text)
    text = re.sub(r'<g id="[\w.]+">', "<g>", text)
    text = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", text)
    text = text.replace(FONT, "").replace("*{", "*{font-family:sans-serif;", 1)
    return re.sub(r'"[^"<>]*"', _smaller_attribute, text)


def _smaller_attribute(attribute: re.Match[str]) -> str:
    return re.sub(r"(\.\d)\d{2,}", r"\1", attribute[0].replace(": ", ":").replace("; ", ";"))
