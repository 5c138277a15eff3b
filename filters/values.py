"""Values of a condition, and Java's rules for numbers in texts (`Integer.valueOf`, `Long.valueOf`, `Double.valueOf`).

A value is unknown (None), a bool, an `Int`, a `Long`, a float or a text. Java tells Integer from Long, because a text
that is compared with an Integer must be in the range of an Integer.
"""

from __future__ import annotations

import math
import re
import struct

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


class Int(int):
    """A Java Integer."""


class Long(int):
    """A Java Long."""


Value = bool | Int | Long | float | str | None

DIGIT_ZEROS = (
    0x30, 0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50, 0xED0,
    0xF20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620,
    0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
)  # fmt: skip
"""Code points of the digits zero that `Character.digit` accepts in a Java char. Nine more digits follow each."""
_DIGITS = {chr(zero + digit): digit for zero in DIGIT_ZEROS for digit in range(10)}
_BLANKS = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?|([0-9a-fA-F]*)\.([0-9a-fA-F]+))[pP]([+-]?[0-9]+)[fFdD]?", re.ASCII
)
_WORDS = re.compile(r"([+-]?)(NaN|Infinity)")
_EXPONENT_MAX = 1 << 20
"""Beyond it a value that fits into a message is 0 or infinite."""


def parse_integer(text: str, low: int, high: int) -> int | None:
    """The number in a text by `Integer.parseInt` or `Long.parseLong`. None if it is none, or not in the range."""
    sign = text[:1] if text[:1] in ("+", "-") else ""
    digits = text[len(sign) :]
    number = 0
    for char in digits:
        digit = _DIGITS.get(char)
        if digit is None:
            return None
        number = number * 10 + digit
        if number > high + 1:
            return None
    number = -number if sign == "-" else number
    return number if digits and low <= number <= high else None


def parse_double(text: str) -> float | None:
    """The number in a text by `Double.valueOf`. None if it is none."""
    text = text.strip(_BLANKS)
    if words := _WORDS.fullmatch(text):
        return math.nan if words[2] == "NaN" else -math.inf if words[1] == "-" else math.inf
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if (hexadecimal := _HEXADECIMAL.fullmatch(text)) is None:
        return None
    sign, whole, part, fraction, exponent = hexadecimal.groups(default="")
    power = max(-_EXPONENT_MAX, min(int(exponent[:12]), _EXPONENT_MAX))
    try:
        return float.fromhex(f"{sign}0x{whole or part or '0'}.{fraction or '0'}p{power}")
    except OverflowError:
        return -math.inf if sign == "-" else math.inf


def parse_boolean(text: str) -> bool:
    """The truth in a text by `Boolean.valueOf`."""
    return len(text) == 4 and text.isascii() and text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: -0.0 is below 0.0, NaN equals itself and is above infinity."""
    if left < right or left > right:
        return -1 if left < right else 1
    one, other = double_bits(left), double_bits(right)
    return (one > other) - (one < other)


def double_bits(number: float) -> int:
    """`Double.doubleToLongBits`: all NaN are the same."""
    return 0x7FF8 << 48 if math.isnan(number) else int(struct.unpack("<q", struct.pack("<d", number))[0])
