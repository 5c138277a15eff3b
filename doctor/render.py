"""Findings as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from ringmq.doctor.finding import FAIL, OK, WARN, Finding, counts

MARKS = {OK: "ok  ", WARN: "warn", FAIL: "FAIL"}
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
NOTE_INDENT = len("  FAIL  ")
Paint = Callable[[str, str], str]
"""(text, colour) -> text"""


def render(findings: Sequence[Finding], width: int, *, verbose: bool, paint: Paint) -> Iterator[str]:
    """Yield lines of at most `width` columns, unless a word is longer.

    Findings of level `ok` take one line. The others add their meaning and advice. With `verbose` all add their
    meaning.
    """
    names = max((len(finding.name) for finding in findings), default=0)
    for area, group in groupby(findings, key=lambda finding: finding.area):
        yield paint(area, "bold")
        for finding in group:
            mark = paint(MARKS[finding.level], COLOURS[finding.level])
            indent = NOTE_INDENT + names + 2
            head = f"  {mark}  {finding.name.ljust(names)}  "
            lines = textwrap.wrap(finding.value, max(20, width - indent), break_on_hyphens=False) or [""]
            yield head + lines[0]
            yield from (" " * indent + line for line in lines[1:])
            if verbose or finding.level != OK:
                yield from _note("", finding.meaning, width)
            if finding.advice:
                yield from _note("-> ", finding.advice, width)
        yield ""
    number = counts(findings)
    yield f"{number[FAIL]} to correct, {number[WARN]} to look at, {number[OK]} well"


def _note(mark: str, text: str, width: int) -> list[str]:
    first, rest = " " * NOTE_INDENT + mark, " " * (NOTE_INDENT + len(mark))
    return textwrap.wrap(text, max(40, width), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
