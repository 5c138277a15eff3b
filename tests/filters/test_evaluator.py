"""Three-valued logic, and Java's conversions between texts and numbers."""

import pytest

from ringmq.filters.values import DIGIT_ZEROS
from tests.filters.verdicts import compile_or_none, twin_verdict

MESSAGE = {"one": "1", "x": "x", "half": "0.5", "yes": "true", "big": "2147483648", "text": "abc", "nan": "NaN"}
VERDICTS = {
    # an absent property is unknown
    "gone = 1": "N", "1 = gone": "F", "gone = other": "T", "gone IS NULL": "T", "x IS NULL": "F", "gone > 1": "N",
    "gone IN ('x')": "N", "gone NOT IN ('x')": "N", "gone": "N", "NOT gone": "N", "gone CONTAINS 'x'": "F",
    "gone NOT CONTAINS 'x'": "F", "gone BETWEEN 1 AND 2": "N", "gone <> 1": "N", "(gone > 1) IS NULL": "T",
    # AND, OR, NOT
    "gone = 1 OR one = 1": "T", "gone = 1 AND one = 1": "N", "gone = 1 AND one = 2": "F", "gone = 1 OR one = 2": "N",
    "NOT gone = 1": "N", "NOT (gone = 1)": "N", "x": "F", "NOT x": "T", "TRUE": "T", "NULL": "N", "NOT NULL": "N",
    # a throw ends the evaluation, unless the other side decides first
    "x > 1": "X", "one = 1 OR x > 1": "T", "x > 1 OR one = 1": "X", "one = 2 AND x > 1": "F", "x > 1 IS NULL": "X",
    # types
    "one = 1": "T", "one = 1.0": "T", "half > 0": "X", "half > 0.1": "T", "big > 1": "X", "big > 1L": "X",
    "big > 2147483647": "X", "big > 2147483649": "F", "one = '1'": "T", "one = '1.0'": "F", "text = 'abc'": "T",
    "one < half": "F", "one < x": "X", "yes = TRUE": "T", "TRUE = yes": "X", "x = FALSE": "T", "1 = TRUE": "F",
    "(one = 1) = TRUE": "T", "(one = 1) = yes": "X", "-one = 1": "N", "-one IS NULL": "T", "-5 < 5": "T",
    "nan > 1e308": "T", "nan = nan": "T", "-2147483648 = 2147483648": "F", "9007199254740993 = 9007199254740992.0": "T",
    "gone > -(x > 1)": "N", "one > -(x > 1)": "X",
    # texts
    "text CONTAINS 'b'": "T", "text NOT CONTAINS 'b'": "F", "text STARTSWITH 'ab'": "T", "text ENDSWITH 'ab'": "F",
    "text CONTAINS ''": "F", "text NOT CONTAINS ''": "F", "1 CONTAINS '1'": "F", "text IN ('x', 'abc')": "T",
    "text NOT IN ('x')": "T", "'abc' CONTAINS 'c'": "T",
    # NOT BETWEEN needs no order
    "one NOT BETWEEN 5 AND 0": "T", "one BETWEEN 0 AND 1": "T", "one BETWEEN -5 AND -9": "F",
}  # fmt: skip
INTEGERS = {
    "5": True, "+5": True, "005": True, "٥": True, "５": True, "-5": False, " 5": None, "5 ": None, "5.0": None,
    "5L": None,     "+": None, "-": None, "1_0": None, "0x5": None, "𝟝": None, "--5": None,
}  # fmt: skip
DOUBLES = {
    "5": True, " 5\t": True, "5d": True, "5F": True, "0.5e1": True, "5.": True, "0x1.4p2": True, "0x14p-2D": True,
    ".5": False, "NaN": False, "Infinity": False, "-Infinity": False, "1e999": False, "0x1p99999999999999999999": False,
    "nan": None, "inf": None, "1_0": None, "0x5": None, "٥": None, "5dd": None, "e5": None, ".": None, "\u00a05": None,
}  # fmt: skip


@pytest.mark.parametrize(("expression", "verdict"), VERDICTS.items())
def test_conditions_of_one_message(expression: str, verdict: str) -> None:
    assert twin_verdict(compile_or_none(expression), MESSAGE) == verdict


@pytest.mark.parametrize(("literal", "texts"), [("5", INTEGERS), ("5.0", DOUBLES)], ids=["Integer", "Double"])
def test_numbers_in_texts_are_those_of_java(literal: str, texts: dict[str, bool | None]) -> None:
    program = compile_or_none(f"a = {literal}")
    found = {text: twin_verdict(program, {"a": text}) for text in texts}
    assert found == {text: {True: "T", False: "F", None: "X"}[equal] for text, equal in texts.items()}


def test_the_digits_of_java_are_those_of_unicode_in_the_basic_plane() -> None:
    zeros = [point for point in range(0x10000) if chr(point).isdecimal() and int(chr(point)) == 0]
    assert list(DIGIT_ZEROS) == zeros
