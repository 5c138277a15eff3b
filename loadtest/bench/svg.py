"""Plots of the benches as small SVG files."""

import io
import re
from pathlib import Path
from typing import Any

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


def _smaller(text: str) -> str:
    """Return the SVG without indentation, group names and zero rotations, with one font and one decimal."""
    text = re.sub(r"\n\s+", "\n", text)
    text = re.sub(r'<g id="[\w.]+">', "<g>", text)
    text = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", text)
    text = text.replace(FONT, "").replace("*{", "*{font-family:sans-serif;", 1)
    return re.sub(r'"[^"<>]*"', _smaller_attribute, text)


def _smaller_attribute(attribute: re.Match[str]) -> str:
    return re.sub(r"(\.\d)\d{2,}", r"\1", attribute[0].replace(": ", ":").replace("; ", ";"))
