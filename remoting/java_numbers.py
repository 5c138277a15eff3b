"""Numbers in text, as `Integer.parseInt` and `Long.parseLong` read them. C twin: `rmq_text_int64` (frame_header.c)."""

from __future__ import annotations

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)
_DIGITS_MAX = 19
"""The digits of the largest number. int() refuses text of some thousand digits."""


def java_integer(text: str, low: int, high: int) -> int:
    """Return the number in `text`: ASCII digits behind an optional sign. Raises ValueError.

    Java also takes digits of other scripts.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text[:32]!r} is no whole number")
    if len(digits) > _DIGITS_MAX:
        digits = digits.lstrip("0") or "0"
        if len(digits) > _DIGITS_MAX:
            raise ValueError(f"a number of {len(digits)} digits is outside {low}..{high}")
    value = -int(digits) if text[0] == "-" else int(digits)
    if not low <= value <= high:
        raise ValueError(f"{value} is outside {low}..{high}")
    return value
