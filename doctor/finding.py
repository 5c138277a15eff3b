"""One finding of the doctor: a level, what was found, what it means, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK = "ok"
WARN = "warn"
FAIL = "fail"
LEVELS = (OK, WARN, FAIL)


@dataclass(frozen=True, slots=True)
class Finding:
    """`fail`: a broker would not start, or what it promises would not hold. `warn`: it serves, but not as well."""

    area: str
    name: str
    level: str
    value: str
    meaning: str
    advice: str = ""
    """What to do; empty where everything is well."""


def ok(area: str, name: str, value: str, meaning: str) -> Finding:
    """Everything is well."""
    return Finding(area, name, OK, value, meaning)


def judged(area: str, name: str, level: str, value: str, meaning: str, advice: str) -> Finding:
    """A finding of any level; the advice is left out of one that is well."""
    return Finding(area, name, level, value, meaning, "" if level == OK else advice)


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """How many there are of each level."""
    levels = [finding.level for finding in findings]
    return {level: levels.count(level) for level in LEVELS}
