"""Functions that a table names as text. So the table imports none of the modules that it names."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def function_of(name: str) -> Any:
    """The function, class or table that a row names as `package.module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def is_function_name(text: str) -> bool:
    """True if the text has the form `package.module:function`, as no sentence has."""
    module, _, function = text.partition(":")
    return "." in module and all(part.isidentifier() for part in (*module.split("."), function))
