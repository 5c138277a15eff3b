"""What is wrong in a configuration file, said about each line instead of the first one only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ringmq.remoting.properties_text import PropertyLine

FAIL = "fail"
WARN = "warn"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: `fail` keeps the server from starting, `warn` does not."""

    level: str
    line: int
    """Of the file, from 1; 0 = the file as a whole."""
    name: str
    message: str
    nearest: str | None = None
    """The known name most like an unknown one."""
    accepted: str | None = None
    """The range of an impossible value, in words."""


def repeated(lines: Iterable[PropertyLine]) -> Iterator[Problem]:
    """A warning for each line whose name comes again: the last one wins."""
    last: dict[str, PropertyLine] = {}
    for line in lines:
        if (before := last.get(line.name)) is not None:
            yield Problem(WARN, before.line, line.name, f"given again in line {line.line}, which wins")
        last[line.name] = line
