"""Finds all problems of a namesrv.conf."""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.namesrv.config import ConfigError, NamesrvConfig, accepted_text, nearest_name, setting_fields
from ringmq.remoting.properties_check import FAIL, Problem, repeated
from ringmq.remoting.properties_text import PropertyLine


def check_lines(lines: Sequence[PropertyLine]) -> list[Problem]:
    """Return every problem, by line."""
    problems = list(repeated(lines))
    fields = setting_fields()
    for line in lines:
        if line.name not in fields:
            near = nearest_name(line.name)
            problems.append(Problem(FAIL, line.line, line.name, "not a known property", nearest=near))
            continue
        try:
            NamesrvConfig().update({line.name: line.value})
        except ConfigError:
            message = f"{line.value[:200]!r} is impossible"
            accepted = accepted_text(fields[line.name])
            problems.append(Problem(FAIL, line.line, line.name, message, accepted=accepted))
    return sorted(problems, key=lambda problem: problem.line)
