"""Verdicts about a condition and a message: T, F, N (unknown), X (Java throws), E (the expression does not compile)."""

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ringmq.filters.compiler import compile_filter
from ringmq.filters.errors import FilterError
from ringmq.filters.evaluator import EvaluationFailed, evaluate
from ringmq.filters.program import Program
from ringmq.loadtest.stock.java import compile_java, java_command

Pair = tuple[str, list[dict[str, str]]]


def compile_or_none(expression: str) -> Program | None:
    try:
        return compile_filter(expression)
    except FilterError:
        return None


def twin_verdict(program: Program | None, properties: dict[str, str]) -> str:
    """The verdict of the Python twin."""
    if program is None:
        return "E"
    try:
        value = evaluate(program, properties)
    except EvaluationFailed:
        return "X"
    return "N" if value is None else "T" if value is True else "F" if value is False else "?"


def stock_verdicts(pairs: Sequence[Pair], home: Path) -> str:
    """The verdicts of RocketMQ's own evaluator, one character each."""

    def text(value: str) -> bytes:
        raw = value.encode()
        return struct.pack(">i", len(raw)) + raw

    sent = bytearray(struct.pack(">i", len(pairs)))
    for expression, sets in pairs:
        sent += text(expression) + struct.pack(">i", len(sets))
        for properties in sets:
            sent += struct.pack(">i", len(properties))
            for name, value in properties.items():
                sent += text(name) + text(value)
    classes = compile_java([Path(__file__).parent / "java" / "StockFilters.java"], "stock-filters")
    command = java_command("StockFilters", home=home, classpath=[classes])
    done = subprocess.run(command, input=bytes(sent), stdout=subprocess.PIPE, check=True, timeout=200)
    return done.stdout.decode()
