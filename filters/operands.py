"""Operands: parts of a condition while it is compiled, with the checks that RocketMQ makes at this time.

An operand owns its instructions. An operator takes over those of its operands, so that a long chain costs no more than
its length. Each operand is used once.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from ringmq.filters.errors import FilterError
from ringmq.filters.evaluator import compare
from ringmq.filters.program import INSTRUCTIONS_MAX, NAMES_MAX, STACK_MAX, Instruction, Op, Program, Texts
from ringmq.filters.values import INT_MIN, LONG_MIN, Int, Long, Value


class Kind(Enum):
    """The classes of operands that RocketMQ's checks tell apart."""

    CONSTANT = 1
    """A literal number or text."""
    TRUTH = 2
    """TRUE, FALSE or NULL: a constant and a condition."""
    PROPERTY = 3
    CONDITION = 4
    NEGATION = 5
    """Minus something: neither a constant nor a condition."""


class Operand(Struct):
    """A part of a condition. `depth` is the number of values that it needs on the stack."""

    kind: Kind
    code: list[Instruction]
    depth: int = 1
    value: Value = None
    """The value of a constant, and of minus a number."""

    @property
    def is_constant(self) -> bool:
        """True for a literal."""
        return self.kind in (Kind.CONSTANT, Kind.TRUTH)

    @property
    def is_condition(self) -> bool:
        """True if RocketMQ knows that the value is a Boolean or unknown."""
        return self.kind in (Kind.TRUTH, Kind.CONDITION)


class Builder:
    """Makes operands. It collects the constants and names of one program."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[type, str], int] = {}
        self._constants: list[Value | Texts] = []
        self._names: dict[str, int] = {}

    def program(self, operand: Operand) -> Program:
        """The program of a whole condition."""
        condition = self._condition(operand)
        return Program(tuple(condition.code), tuple(self._constants), tuple(self._names), condition.depth)

    def constant(self, value: Value) -> Operand:
        """A literal number or text."""
        return Operand(Kind.CONSTANT, [self._push(value)], value=value)

    def truth(self, value: bool | None) -> Operand:
        """TRUE, FALSE or NULL."""
        return Operand(Kind.TRUTH, [self._push(value)], value=value)

    def property(self, name: str) -> Operand:
        """A property of the message."""
        number = self._names.setdefault(name, len(self._names))
        if number == NAMES_MAX:
            raise FilterError(f"the expression names more than {NAMES_MAX} properties")
        return Operand(Kind.PROPERTY, [(Op.PROPERTY, number)])

    def negate(self, operand: Operand) -> Operand:
        """Minus a number, which wraps as in Java. Minus anything else is unknown."""
        value = operand.value
        if isinstance(value, float | Int | Long):
            return Operand(Kind.NEGATION, [self._push(_negative(value))], value=_negative(value))
        return Operand(Kind.NEGATION, [*operand.code, (Op.UNKNOWN, 0)], operand.depth)

    def invert(self, operand: Operand) -> Operand:
        """NOT."""
        return self._unary(self._condition(operand), Op.NOT)

    def both(self, left: Operand, right: Operand) -> Operand:
        """AND: the right side is not evaluated if the left one is FALSE."""
        return self._chain(self._condition(left), Op.JUMP_IF_FALSE, self._condition(right), Op.AND)

    def either(self, left: Operand, right: Operand) -> Operand:
        """OR: the right side is not evaluated if the left one is TRUE."""
        return self._chain(self._condition(left), Op.JUMP_IF_TRUE, self._condition(right), Op.OR)

    def equal(self, left: Operand, right: Operand) -> Operand:
        """`=`. NULL is for IS alone, and TRUE or FALSE on the left needs one on the right."""
        for side in (left, right):
            if side.is_constant and side.value is None:
                raise FilterError("NULL cannot be compared, IS NULL can")
        if left.kind is Kind.TRUTH and right.kind is Kind.CONSTANT:
            raise FilterError("TRUE or FALSE on the left of = cannot be compared with a number or text")
        return self._binary(left, right, [], Op.EQUAL)

    def ordered(self, op: Op, left: Operand, right: Operand) -> Operand:
        """`>`, `>=`, `<` or `<=`: between numbers and properties alone."""
        for side in (left, right):
            is_number = isinstance(side.value, float | Int | Long)
            if side.is_condition or (side.kind is Kind.CONSTANT and not is_number):
                raise FilterError("<, <=, > and >= compare numbers and properties, no texts, TRUE, FALSE or conditions")
        jump = [] if len(right.code) == 1 else [(Op.JUMP_IF_UNKNOWN, len(right.code) + 1)]
        return self._binary(left, right, jump, op)

    def between(self, value: Operand, low: Operand, high: Operand) -> Operand:
        """`value BETWEEN low AND high`. Constants must have this order."""
        if low.is_constant and high.is_constant:
            if low.value is None or high.value is None:
                raise FilterError("the bounds of BETWEEN must not be NULL")
            if not isinstance(low.value, float | Int | Long) or not isinstance(high.value, float | Int | Long):
                raise FilterError("the bounds of BETWEEN must be numbers or properties")
            if compare(high.value, low.value) < 0:
                raise FilterError("the first bound of BETWEEN must not exceed the second")
        above = self.ordered(Op.GREATER_EQUAL, _copy(value), low)
        return self.both(above, self.ordered(Op.LESS_EQUAL, value, high))

    def not_between(self, value: Operand, low: Operand, high: Operand) -> Operand:
        """`value NOT BETWEEN low AND high`."""
        below = self.ordered(Op.LESS, _copy(value), low)
        return self.either(below, self.ordered(Op.GREATER, value, high))

    def is_null(self, operand: Operand) -> Operand:
        """IS NULL."""
        return self._unary(operand, Op.IS_NULL)

    def listed(self, op: Op, operand: Operand, texts: Texts) -> Operand:
        """IN or NOT IN: of a property alone."""
        if operand.kind is not Kind.PROPERTY:
            raise FilterError("IN needs a property on its left")
        return self._unary(operand, op, self._number(texts))

    def searched(self, op: Op, operand: Operand, text: str) -> Operand:
        """CONTAINS, STARTSWITH, ENDSWITH and their negations. All are FALSE for the empty text."""
        if not text:
            return Operand(Kind.CONDITION, [self._push(False)])
        return self._unary(operand, op, self._number(text))

    def _push(self, value: Value) -> Instruction:
        return Op.CONSTANT, self._number(value)

    def _number(self, value: Value | Texts) -> int:
        number = self._numbers.setdefault((type(value), repr(value)), len(self._constants))
        if number == len(self._constants):
            self._constants.append(value)
        return number

    def _condition(self, operand: Operand) -> Operand:
        if operand.is_condition:
            return operand
        if operand.kind is Kind.PROPERTY:
            return self._unary(operand, Op.CAST)
        raise FilterError("a number, a text or minus something stands where a condition is expected")

    def _unary(self, operand: Operand, op: Op, argument: int = 0) -> Operand:
        operand.code.append((op, argument))
        return Operand(Kind.CONDITION, operand.code, operand.depth)

    def _chain(self, left: Operand, jump: Op, right: Operand, op: Op) -> Operand:
        return self._binary(left, right, [(jump, len(right.code) + 1)], op)

    def _binary(self, left: Operand, right: Operand, jump: list[Instruction], op: Op) -> Operand:
        depth = max(left.depth, right.depth + 1)
        if depth > STACK_MAX:
            raise FilterError(f"the expression needs {depth} values on its stack, at most {STACK_MAX} are allowed")
        left.code += jump
        left.code += right.code
        left.code.append((op, 0))
        if len(left.code) > INSTRUCTIONS_MAX:  # BETWEEN takes its left side twice
            raise FilterError(f"the expression needs more than {INSTRUCTIONS_MAX} instructions")
        return Operand(Kind.CONDITION, left.code, depth)


def _copy(operand: Operand) -> Operand:
    return Operand(operand.kind, list(operand.code), operand.depth, operand.value)


def _negative(number: float | Int | Long) -> Value:
    match number:
        case Int():
            return Int(number if number == INT_MIN else -number)
        case Long():
            return Long(number if number == LONG_MIN else -number)
    return -number
