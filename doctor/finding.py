"""One finding of the doctor: a level, a value, its meaning, and advice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK = "ok"
WARN = "warn"
FAIL = "fail"
LEVELS = (OK, WARN, FAIL)


@dataclass(frozen=True, slots=True)
class Finding:
    """`fail`: a broker would not start, or would break a promise. `warn`: it serves, but not as well."""

    area: str
    name: str
    level: str
    value: str
    meaning: str
    advice: str = ""
    """The next step of the operator, empty for level `ok`."""


def ok(area: str, name: str, value: str, meaning: str) -> Finding:
    """Return a finding of level `ok`."""
    return Finding(area, name, OK, value, meaning)


def graded(area: str, name: str, level: str, value: str, meaning: str, advice: str) -> Finding:
    """Return a finding of any level, without the advice for level `ok`."""
    return Finding(area, name, level, value, meaning, "" if level == OK else advice)


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of findings of each level."""
    levels = [finding.level for finding in findings]
    return {level: levels.count(level) for level in LEVELS}
