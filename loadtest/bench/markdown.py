"""Tables in Markdown, of measured values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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


def markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return head, rule and one line per entry."""
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    rows += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(rows) + "\n"
