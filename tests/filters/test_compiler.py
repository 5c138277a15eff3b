"""Expressions that compile, those that are refused, and the bounds."""

import time

import pytest

from ringmq.filters import program
from ringmq.filters.compiler import compile_filter, compiling
from ringmq.filters.errors import FilterError
from ringmq.filters.evaluator import matches

ACCEPTED = [
    "a = 1", "a <> 'x'", "a", "TRUE", "false", "NULL", "NOT a", "a IS NULL", "a is not null", "a BETWEEN 1 AND 1",
    "a NOT BETWEEN 5 AND 1", "a IN ('x')", "a NOT IN ('x', 'y')", "(a) IN ('x')", "+a IN ('x')", "a CONTAINS ''",
    "1 CONTAINS 'x'", "a NOT STARTSWITH 'x'", "a ENDSWITH 'it''s'", "-a = 5", "a > -5", "1 < 2", "1 = TRUE",
    "(a > 1) = TRUE", "a = b = c", "a /* c */ = -- d\n 1", "a = 1 b", "a = 1 (", "a IS NULL NOT #", "a = 01", "a = 1L",
    "a BETWEEN -1 AND -5", "TRUE = (a = 1)", "a=1OR b=2", "$a_1 = 1",
]  # fmt: skip
REFUSED = {
    "": "ends too early", "a =": "ends too early", "(a": "ends too early", "= 1": "'=' at character 0",
    "a IN ()": "not expected", "a IN (1)": "not expected", "5": "a condition is expected", "'x'": "a condition",
    "-TRUE": "a condition is expected", "a = NULL": "NULL cannot be compared", "NULL <> a": "NULL cannot be compared",
    "TRUE = 1": "on the left of =", "TRUE = 'x'": "on the left of =", "a > 'x'": "compare numbers and properties",
    "a > TRUE": "compare numbers", "(a = 1) > 2": "compare numbers", "NOT a > 1": "compare numbers",
    "a BETWEEN 5 AND 1": "must not exceed", "a BETWEEN NULL AND 1": "must not be NULL",
    "a BETWEEN 'a' AND 'b'": "must be numbers", "5 IN ('x')": "IN needs a property",
    "a IN ('x') IN ('y')": "IN needs a property", "a = 0.0": "positive range", "a = 1e400": "positive range",
    "a = 9223372036854775808": "exceeds 9223372036854775807", "a = 1 #": "no word or sign begins at character 6",
    "a /*": "no word or sign begins at character 2", "a = 'x": "no word or sign", "a NOT b": "'b' at character 6",
    "a IS b": "'b' at character 5", "NOT = 1": "'=' at character 4", "IN = 1": "'IN' at character 0",
    "a ! 1": "no word", "a = '\ud83d'": "half of a surrogate pair", "\u212aey = 1": "no word or sign",
}  # fmt: skip


@pytest.mark.parametrize("expression", ACCEPTED)
def test_conditions_compile(expression: str) -> None:
    assert compile_filter(expression).encode()


@pytest.mark.parametrize(("expression", "cause"), REFUSED.items())
def test_other_expressions_are_refused_with_a_cause(expression: str, cause: str) -> None:
    with pytest.raises(FilterError, match=cause):
        compile_filter(expression)


def big_list(count: int, width: int) -> str:
    return "a IN (" + ",".join(f"'{number:0{width}}'" for number in range(count)) + ")"


def doubled(times: int) -> str:
    """BETWEEN takes its left side twice."""
    return "-(" * times + "x" + " BETWEEN 1 AND 2)" * times


@pytest.mark.parametrize(
    ("expression", "bound"),
    [
        ("a = '" + "x" * 1_000_000 + "'", "at most 8192"),
        ("a = '" + "é" * 4096 + "'", "8198 bytes, at most 8192"),
        ("(" * 10_000 + "a" + ")" * 10_000, "at most 8192"),
        ("(" * 257 + "a" + ")" * 257, "more than 256 parentheses"),
        ("a=1 OR " * 600 + "a", "more than 2048 words and signs"),
        (" OR ".join(f"p{number}" for number in range(65)), "more than 64 properties"),
        (f"{doubled(8)} BETWEEN 1 AND 2 OR {big_list(800, 3)}", "at most 24512 are allowed"),
        (f"{doubled(9)} BETWEEN 1 AND 2", "more than 6128 instructions"),
    ],
)
def test_bounds_are_shown(expression: str, bound: str) -> None:
    with pytest.raises(FilterError, match=bound):
        compile_filter(expression).encode()


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 256 + "a = 1" + ")" * 256,
        "a = 1 AND (" * 256 + "a = 1" + ")" * 256,
        "a = 1 OR " * 500 + "a = 2",
        "NOT " * 1000 + "a = 1",
        "- " * 1000 + "5 > 1",
        " OR ".join(f"p{number} = 1" for number in range(64)),
        big_list(1000, 1),
    ],
)
def test_what_is_within_the_bounds_compiles(expression: str) -> None:
    compiled = compile_filter(expression)
    assert len(compiled.encode()) <= program.PROGRAM_BYTES_MAX and compiled.stack_depth <= program.STACK_MAX


def test_long_expressions_compile_in_steps() -> None:
    steps = compiling("a = 1 OR " * 500 + "a = 2")
    assert sum(1 for _ in steps) == 2003 // 256


def test_two_compilations_may_be_under_way_at_once() -> None:
    one, other = compiling("a = 1 OR " * 100 + "a = 2"), compiling("b = 1 OR " * 100 + "b = 2")
    programs = []
    for steps in (one, other, one, other):
        try:
            next(steps)
        except StopIteration as end:
            programs.append(end.value)
    assert [compiled.names for compiled in programs] == [("a",), ("b",)]
    assert matches(programs[1], {"b": "2"}) and not matches(programs[1], {"a": "2"})


@pytest.mark.parametrize("expression", ["5 ---c\n > 1", "5 ----\n> 1", "5 > - --c\n-1", "'a---\n' = b", "5 > --c\r-1"])
def test_comments_begin_at_the_first_of_several_signs(expression: str) -> None:
    compile_filter(expression)


def test_many_signs_without_a_line_end_take_no_longer_than_others() -> None:
    """Each sign might begin a comment, whose line end is looked for to the end of the text."""

    def cpu_seconds(sign: str) -> float:
        def once() -> float:
            begin = time.process_time()
            with pytest.raises(FilterError, match="more than 2048 words"):
                compile_filter(sign * 8000)
            return time.process_time() - begin

        return min(once() for _ in range(3))

    assert cpu_seconds("-") < 6 * cpu_seconds("+")
