"""Problems of a configuration file, reported for each line rather than for the first one only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ringmq.remoting.properties_text import PropertyLine

FAIL = "fail"
WARN = "warn"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. `fail` prevents the server's start, `warn` does not."""

    level: str
    line: int
    """The line in the file, from 1. 0 means the file as a whole."""
    name: str
    message: str
    nearest: str | None = None
    """The known name that is most like an unknown one."""
    accepted: str | None = None
    """The accepted range of an impossible value, in words."""


def repeated(lines: Iterable[PropertyLine]) -> Iterator[Problem]:
    """Yield a warning for each line that repeats a name: the last one wins."""
    last: dict[str, PropertyLine] = {}
    for line in lines:
        if (before := last.get(line.name)) is not None:
            yield Problem(WARN, before.line, line.name, f"given again in line {line.line}, which wins")
        last[line.name] = line
