"""The error of an expression that cannot be compiled."""

from __future__ import annotations


class FilterError(ValueError):
    """The expression is no condition in the SQL92 grammar, or exceeds a bound. The text names the cause."""
