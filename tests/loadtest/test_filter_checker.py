"""The drill's checker of filtered pulls finds each kind of violation."""

import pytest

from ringmq.filters.compiler import compile_filter
from ringmq.filters.evaluator import matches as evaluated
from ringmq.loadtest.drills.filters import EXPRESSION, FilterChecker, matches

HELD = ["q0-0-16", "q0-0-17", "q0-1-7", "q0-1-8"]
GIVEN = [(1, "q0-0-17"), (2, "q0-1-7")]
PLANTED = {
    "filter miss": GIVEN[:1],
    "filter double": [*GIVEN, GIVEN[0]],
    "filter excess": [*GIVEN, (3, "q0-1-8")],
}


def kinds(given: list[tuple[int, str]]) -> list[str]:
    checker = FilterChecker()
    for offset, message_id in enumerate(HELD):
        checker.held(0, offset, message_id)
    for offset, message_id in given:
        checker.given(0, offset, message_id)
    assert checker.given_count == len(given)
    return [violation.kind for violation in checker.verdict()]


def test_the_matching_messages_once_are_right() -> None:
    assert kinds(GIVEN) == []


@pytest.mark.parametrize(("kind", "given"), PLANTED.items())
def test_planted_violations_are_found(kind: str, given: list[tuple[int, str]]) -> None:
    assert kinds(given) == [kind]


def test_a_message_in_a_wrong_place_is_excess() -> None:
    assert kinds([*GIVEN, (9, "q0-2-27")]) == ["filter excess"]


def test_the_rule_is_the_expression() -> None:
    program = compile_filter(EXPRESSION)
    assert [matches(message_id) for message_id in HELD] == [evaluated(program, {"KEYS": name}) for name in HELD]
