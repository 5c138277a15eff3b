"""Arguments that several commands take in the same form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import click

from ringmq.remoting.properties_text import BadProperties, parse_assignments


def pairs(texts: Iterable[str], option: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """Return the values of a repeatable option. Raises click.BadParameter naming the option and the form."""
    try:
        return parse_assignments(texts, form)
    except BadProperties as error:
        raise click.BadParameter(str(error), param_hint=option) from error


class Seconds(click.FloatRange):
    """A time in seconds between two bounds. Python's "nan" is no time: each comparison with it is false, so a wait for
    it would not end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See click.ParamType."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")


def duration(text: str) -> timedelta:
    """Return a whole number with a unit as a time. Raises click.BadParameter with the accepted form."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no whole number with a unit ms, s, m, h or d, such as 90s")
    return timedelta(milliseconds=int(found[1]) * _UNITS_MS[found[2]])


def moment(text: str) -> datetime:
    """Return a date and time of ISO 8601, local without an offset. Raises click.BadParameter with the accepted form."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        form = "such as 2026-12-01T09:00 or 2026-12-01T09:00Z"
        raise click.BadParameter(f"{text!r} is no date and time, {form}") from None
