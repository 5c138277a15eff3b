"""The compiled form of a condition, and its encoding in shared memory.

native/src/plane/filter_layout.h has the structs. A program is a list of instructions for a stack machine, with tables
of constants and of property names. A jump goes forward only, so each instruction runs at most once for a message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from msgspec import Struct

from ringmq.filters.errors import FilterError
from ringmq.filters.values import Int, Long, Value, double_bits

TEXT_BYTES_MAX = 8192
"""Bytes of an expression in UTF-8."""
TOKENS_MAX = 2048
NESTING_MAX = 256
"""Parentheses that are open at once."""
NAMES_MAX = 64
"""Different properties in an expression."""
PROGRAM_BYTES_MAX = 24_512
INSTRUCTIONS_MAX = PROGRAM_BYTES_MAX // 4
STACK_MAX = 272


class Op(IntEnum):
    """Operations. `n` is the argument of an instruction."""

    PROPERTY = 1
    """Push the value of property `n`."""
    CONSTANT = 2
    """Push constant `n`."""
    EQUAL = 3
    GREATER = 4
    GREATER_EQUAL = 5
    LESS = 6
    LESS_EQUAL = 7
    NOT = 8
    CAST = 9
    """Replace a value that is known and no bool by FALSE."""
    IS_NULL = 10
    UNKNOWN = 11
    """Replace the value by unknown: the negation of a value that is no number."""
    AND = 12
    OR = 13
    JUMP_IF_FALSE = 14
    """Pass over `n` instructions if the value on top is FALSE. It stays; so do the next two."""
    JUMP_IF_TRUE = 15
    JUMP_IF_UNKNOWN = 16
    IN = 17
    """True if the text on top is in list `n`."""
    NOT_IN = 18
    CONTAINS = 19
    NOT_CONTAINS = 20
    STARTS = 21
    NOT_STARTS = 22
    ENDS = 23
    NOT_ENDS = 24


class ConstantType(IntEnum):
    """Types of constants."""

    UNKNOWN = 0
    FALSE = 1
    TRUE = 2
    INT = 3
    LONG = 4
    DOUBLE = 5
    TEXT = 6
    LIST = 7
    """Texts, as a range of the constants behind it. They are sorted by length and bytes."""


Instruction = tuple[Op, int]
Texts = tuple[str, ...]
_HEAD = struct.Struct("<IIIIII")
_CONSTANT = struct.Struct("<IIQ")
_NAME = struct.Struct("<II")


class Program(Struct, frozen=True):
    """A compiled condition."""

    instructions: tuple[Instruction, ...]
    constants: tuple[Value | Texts, ...]
    names: tuple[str, ...]
    stack_depth: int

    def encode(self) -> bytes:
        """The program as read workers run it. Raises FilterError if it exceeds PROGRAM_BYTES_MAX."""
        texts = bytearray()
        table: list[bytes] = []
        behind: list[bytes] = []
        texts_at: dict[bytes, int] = {}

        def place(text: str) -> tuple[int, int]:
            raw = text.encode()
            if raw not in texts_at:
                texts_at[raw] = len(texts)
                texts.extend(raw)
            return len(raw), texts_at[raw]

        names = b"".join(_NAME.pack(*reversed(place(name))) for name in self.names)
        for constant in self.constants:
            if isinstance(constant, tuple):
                first, texts_sorted = len(self.constants) + len(behind), sort_texts(constant)
                table.append(_CONSTANT.pack(ConstantType.LIST, len(texts_sorted), first))
                behind += [_CONSTANT.pack(ConstantType.TEXT, *place(text)) for text in texts_sorted]
            else:
                table.append(_CONSTANT.pack(*_encode_value(constant, place)))
        constants = b"".join((*table, *behind))
        code = b"".join(struct.pack("<I", op | argument << 8) for op, argument in self.instructions)
        size = _HEAD.size + len(constants) + len(names) + len(code) + len(texts)
        if size > PROGRAM_BYTES_MAX:
            raise FilterError(f"the compiled expression has {size} bytes, at most {PROGRAM_BYTES_MAX} are allowed")
        counts = len(table) + len(behind), len(self.names), len(self.instructions), len(texts)
        return _HEAD.pack(size, *counts, self.stack_depth) + constants + names + code + bytes(texts)


def _encode_value(value: Value, place: Callable[[str], tuple[int, int]]) -> tuple[int, int, int]:
    match value:
        case None:
            return ConstantType.UNKNOWN, 0, 0
        case bool():
            return (ConstantType.TRUE if value else ConstantType.FALSE), 0, 0
        case Int():
            return ConstantType.INT, 0, value & 0xFFFFFFFFFFFFFFFF
        case Long():
            return ConstantType.LONG, 0, value & 0xFFFFFFFFFFFFFFFF
        case float():
            return ConstantType.DOUBLE, 0, double_bits(value) & 0xFFFFFFFFFFFFFFFF
        case str():
            return ConstantType.TEXT, *place(value)
    raise TypeError(value)


def sort_texts(texts: Texts) -> list[str]:
    """The texts without repetitions, in the order in which a list is searched: by length in UTF-8, then by bytes."""
    return sorted(set(texts), key=lambda text: (len(text.encode()), text.encode()))
