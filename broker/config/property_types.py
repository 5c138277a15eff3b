"""Types of properties: parse text, name the accepted range, format the value."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import Field
from typing import Any

from msgspec import Struct

from ringmq.remoting.networks import ACCEPTED, Networks

Value = bool | int | str


class Property(Struct, frozen=True):
    """One name. `parse` returns the value or raises ValueError. `accepted` is the range in words."""

    name: str
    default: Value
    accepted: str
    parse: Callable[[str], Value]
    live: bool = False
    """True if it may change while the broker runs (UPDATE_BROKER_CONFIG)."""
    kind: str = "text"
    """Kind of its text: number, switch, choice or text."""

    def text(self, value: Value) -> str:
        """The value as text of a properties file."""
        return str(value).lower() if isinstance(value, bool) else str(value)


def number(
    name: str,
    default: int,
    low: int,
    high: int,
    *,
    live: bool = False,
    step: int = 1,
    cut: tuple[int, int] | None = None,
    note: str = "",
) -> Any:
    """A dataclass field for a whole number in low..high that is a multiple of `step`.

    `cut`: bounds to which stock silently moves values outside of them. `note`: the meaning of a special value.
    """
    accepted = f"a whole number {low}..{high}"
    accepted += f", a multiple of {step}" if step > 1 else ""
    accepted += f"; below {cut[0]} counts as {cut[0]}, above {cut[1]} as {cut[1]}" if cut else ""
    accepted += f"; {note}" if note else ""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
            raise ValueError(text)
        value = int(text)
        if not low <= value <= high or value % step:
            raise ValueError(text)
        return max(cut[0], min(value, cut[1])) if cut else value

    return _field(Property(name, default, accepted, parse, live, "number"))


def step_number(name: str, default: int, steps: tuple[int, ...]) -> Any:
    """A dataclass field for one of `steps`, which grow. Stock silently moves another number to the step below it."""
    accepted = f"{', '.join(map(str, steps))}; another number counts as the one below it, or as {steps[0]}"

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
            raise ValueError(text)
        return max((step for step in steps if step <= int(text)), default=steps[0])

    return _field(Property(name, default, accepted, parse, kind="number"))


def switch(name: str, default: bool, *, live: bool = False, only: bool | None = None, why: str = "") -> Any:
    """A dataclass field for true or false. `only`: the one value that this build supports, with the reason `why`."""
    accepted = "true or false" if only is None else f"{str(only).lower()} ({why})"

    def parse(text: str) -> bool:
        value = {"true": True, "false": False}[text.strip().lower()]
        if only is not None and value is not only:
            raise ValueError(text)
        return value

    return _field(Property(name, default, accepted, parse, live, "switch"))


def choice(name: str, default: str, choices: tuple[str, ...], *, live: bool = False, why: str = "") -> Any:
    """A dataclass field for one of some words, or for the empty text if that is the default."""
    accepted = " or ".join(choices) + (f" ({why})" if why else "")

    def parse(text: str) -> str:
        if text.strip() not in (*choices, default):
            raise ValueError(text)
        return text.strip()

    return _field(Property(name, default, accepted, parse, live, "choice"))


def words(name: str, default: str, pattern: str, accepted: str, *, live: bool = False) -> Any:
    """A dataclass field for text that matches `pattern` as a whole."""
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if not compiled.fullmatch(text.strip()):
            raise ValueError(text)
        return text.strip()

    return _field(Property(name, default, accepted, parse, live))


def network_list(name: str, meaning_of_empty: str) -> Any:
    """A dataclass field for a list of networks (ringmq.remoting.networks), kept as text."""

    def parse(text: str) -> str:
        Networks.parse(text)
        return text.strip()

    return _field(Property(name, "", f"{ACCEPTED}; {meaning_of_empty}", parse))


def _field(entry: Property) -> Field[Any]:
    default: Any = entry.default
    made: Field[Any] = dataclasses.field(default=default, metadata={"property": entry})
    return made
