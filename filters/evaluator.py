"""Evaluation of a program in Python; the twin of `rmq_filter_evaluate` (native/src/filter/filter_program.c).

A condition is TRUE, FALSE or unknown for a message. Java's evaluation may also throw. A throw ends the evaluation, and
the message does not match.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringmq.filters.program import Instruction, Op, Program, Texts
from ringmq.filters.values import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    Int,
    Long,
    Value,
    compare_doubles,
    parse_boolean,
    parse_double,
    parse_integer,
)


class EvaluationFailed(Exception):
    """Java throws here."""


def evaluate(program: Program, properties: Mapping[str, str]) -> Value:
    """The condition's value: a bool or None (unknown). Raises EvaluationFailed where RocketMQ throws."""
    stack: list[Value] = []
    code, at = program.instructions, 0
    while at < len(code):
        at += 1 + _step(program, code[at], stack, properties)
    return stack.pop()


def matches(program: Program, properties: Mapping[str, str]) -> bool:
    """True if the condition is TRUE for a message with these properties."""
    try:
        return evaluate(program, properties) is True
    except EvaluationFailed:
        return False


def _step(program: Program, instruction: Instruction, stack: list[Value], properties: Mapping[str, str]) -> int:
    """Run one instruction. The result is the number of instructions to pass over."""
    op, argument = instruction
    match op:
        case Op.PROPERTY:
            stack.append(properties.get(program.names[argument]))
        case Op.CONSTANT:
            constant = program.constants[argument]
            assert not isinstance(constant, tuple)
            stack.append(constant)
        case Op.JUMP_IF_FALSE:
            return argument if stack[-1] is False else 0
        case Op.JUMP_IF_TRUE:
            return argument if stack[-1] is True else 0
        case Op.JUMP_IF_UNKNOWN:
            return argument if stack[-1] is None else 0
        case Op.EQUAL | Op.GREATER | Op.GREATER_EQUAL | Op.LESS | Op.LESS_EQUAL | Op.AND | Op.OR:
            right, left = stack.pop(), stack.pop()
            stack.append(_combine(op, left, right))
        case _:
            argument_value = program.constants[argument] if op >= Op.IN else None
            stack.append(_apply(op, stack.pop(), argument_value))
    return 0


def _combine(op: Op, left: Value, right: Value) -> Value:
    match op:
        case Op.AND:
            return False if left is False or right is False else None if left is None or right is None else True
        case Op.OR:
            return True if left is True or right is True else None if left is None or right is None else False
        case Op.EQUAL:
            return _equal(left, right)
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = _double(left), _double(right)
    order = compare(left, right)
    match op:
        case Op.GREATER:
            return order > 0
        case Op.GREATER_EQUAL:
            return order >= 0
        case Op.LESS:
            return order < 0
        case _:
            return order <= 0


def _equal(left: Value, right: Value) -> Value:
    """Two unknown values are equal. Beside a known value, one on the left makes unknown, one on the right FALSE."""
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return compare(left, right) == 0


def _apply(op: Op, value: Value, argument: Value | Texts) -> Value:
    match op:
        case Op.NOT:
            return None if value is None else value is not True
        case Op.CAST:
            return value if value is None or isinstance(value, bool) else False
        case Op.IS_NULL:
            return value is None
        case Op.UNKNOWN:
            return None
        case Op.IN | Op.NOT_IN:
            assert isinstance(argument, tuple)
            return None if not isinstance(value, str) else (value in argument) is (op == Op.IN)
    assert isinstance(argument, str)
    if not isinstance(value, str):
        return False
    match op:
        case Op.CONTAINS | Op.NOT_CONTAINS:
            return (argument in value) is (op == Op.CONTAINS)
        case Op.STARTS | Op.NOT_STARTS:
            return value.startswith(argument) is (op == Op.STARTS)
        case _:
            return value.endswith(argument) is (op == Op.ENDS)


def compare(left: Value, right: Value) -> int:
    """Negative, 0 or positive, by the conversions of `ComparisonExpression.__compare`. Raises EvaluationFailed."""
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        left = parse_boolean(left) if isinstance(right, bool) else _like(right, left)
    elif isinstance(right, str):
        if isinstance(left, bool):
            raise EvaluationFailed("Java casts the Boolean on the left to a String")
        right = _like(left, right)
    elif isinstance(left, bool) is not isinstance(right, bool):
        return -1
    assert left is not None and right is not None and not isinstance(left, str) and not isinstance(right, str)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _like(number: Value, text: str) -> Value:
    """The text as a number of the same type."""
    if isinstance(number, float):
        return _double(text)
    low, high = (INT_MIN, INT_MAX) if isinstance(number, Int) else (LONG_MIN, LONG_MAX)
    parsed = parse_integer(text, low, high)
    if parsed is None:
        raise EvaluationFailed(f"{text[:64]!r} is no number")
    return Int(parsed) if isinstance(number, Int) else Long(parsed)


def _double(text: str) -> float:
    parsed = parse_double(text)
    if parsed is None:
        raise EvaluationFailed(f"{text[:64]!r} is no number")
    return parsed
