"""RocketMQ's own parser and evaluator against RingMQ's, over generated expressions and properties."""

from collections import Counter
from pathlib import Path

import pytest

from tests.filters.generated_filters import FilterMaker
from tests.filters.native_filters import NativeProgram, properties_string
from tests.filters.verdicts import compile_or_none, stock_verdicts, twin_verdict

EXPRESSIONS, SETS, SEED = 25_000, 4, 7


@pytest.mark.stock
def test_verdicts_are_those_of_rocketmq(tmp_path: Path) -> None:
    pairs = list(FilterMaker(SEED).pairs(EXPRESSIONS, SETS))
    stock = iter(stock_verdicts(pairs, tmp_path))
    counted: Counter[str] = Counter()
    wrong = []
    for expression, sets in pairs:
        program = compile_or_none(expression)
        native = NativeProgram(program.encode()) if program else None
        for properties in sets:
            verdict = next(stock)
            counted[verdict] += 1
            found = twin_verdict(program, properties)
            in_c = native.verdict(properties_string(properties)) if native else "E"
            if not found == in_c == verdict:
                wrong.append(f"{expression!r} {properties}: RocketMQ {verdict}, twin {found}, C {in_c}")
    print(f"{counted.total()} verdicts: {dict(counted)}, {len(wrong)} differ")
    assert not wrong, wrong[:5]
    assert counted.total() == EXPRESSIONS * SETS and min(counted[verdict] for verdict in "TFNXE") > 1000
