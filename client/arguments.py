"""Checks of arguments that programs give to clients and settings, made when the object is made. No IO.

A wrong type is a TypeError, a wrong value a ValueError. Each text names the argument, its value and what it must be.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ringmq.remoting.names import InvalidName, check_group

INT_MAX = (1 << 31) - 1  # requests carry numbers of this size
LONG_MAX = (1 << 63) - 1


def check_numbers(least: int, most: int, **numbers: object) -> None:
    """Raise unless each argument is a whole number from `least` to `most`."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} must be a whole number, not {number!r}")
        if number < least == 1 and most >= INT_MAX:
            raise ValueError(f"{name} must be positive, not {number}")
        if not least <= number <= most:
            raise ValueError(f"{name} must be {least} to {most}, not {number}")


def check_flags(**flags: object) -> None:
    """Raise unless each argument is True or False: a text such as "no" would count as True."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, not {flag!r}")


def check_kinds(kind: type | tuple[type, ...], **values: object) -> None:
    """Raise unless each argument is an instance of `kind`."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for name, value in values.items():
        if not isinstance(value, kinds):
            names = " or ".join("None" if one is type(None) else one.__name__ for one in kinds)
            raise TypeError(f"{name} must be of type {names}, not {value!r}")


def check_optional(kind: type | tuple[type, ...], **values: object) -> None:
    """Raise unless each argument is None or an instance of `kind`."""
    check_kinds(kind, **{name: value for name, value in values.items() if value is not None})


def check_functions(**functions: object) -> None:
    """Raise unless each argument is None or can be called."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function, not {function!r}")


def check_file(**files: object) -> None:
    """Raise unless each argument is None or the name of a file."""
    for name, file in files.items():
        check_optional((str, os.PathLike), **{name: file})
        if file == "":
            raise ValueError(f"{name} is empty: give the name of a file, or None")


def check_group_name(group: str) -> None:
    """Raise unless this is a legal name of a group."""
    check_kinds(str, group=group)
    try:
        check_group(group)
    except InvalidName as error:
        raise ValueError(str(error)) from error


def check_handler(handler: Callable[..., object]) -> None:
    """Raise unless the handler can be called: each message would fail on it, and end among the dead letters."""
    if not callable(handler):
        raise TypeError(f"a handler is a function that takes a message, not {handler!r}")
