"""The text of a table is made once for all that ask for it, and is never older than the request."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.broker.requests.turns import Steps, finish
from ringmq.broker.tables.body_cache import BodyCache

STEPS = 10


class Table:
    """A number that changes; its text takes some steps and says the number as of the first one."""

    def __init__(self) -> None:
        self.number = 0
        self.steps_each = STEPS
        self.steps = 0
        self.breaks = False

    def make(self) -> Steps[bytes]:
        text = str(self.number).encode()
        for _ in range(self.steps_each):
            self.steps += 1
            yield
            if self.breaks:
                raise ZeroDivisionError("planted")
        return text


def advance(steps: Steps[bytes]) -> bytes | None:
    try:
        next(steps)
    except StopIteration as end:
        return bytes(end.value)
    return None


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.mark.parametrize("is_known", [True, False])
def test_many_requests_cost_what_one_costs(table: Table, is_known: bool) -> None:
    table.steps_each = 1000
    subject = BodyCache(table.make, (lambda: table.number) if is_known else object)
    asking = [subject.steps() for _ in range(100)]
    answers: list[bytes] = []
    while asking:
        left = []
        for steps in asking:
            answer = advance(steps)
            if answer is None:
                left.append(steps)
            else:
                answers.append(answer)
        asking = left
    assert answers == [b"0"] * 100
    assert table.steps <= (1 if is_known else 2) * table.steps_each


def test_a_text_that_is_not_used_is_forgotten(table: Table) -> None:
    subject = BodyCache(table.make, lambda: table.number)
    first = finish(subject.steps())
    assert finish(subject.steps()) is first
    assert table.steps == STEPS
    subject.forget()
    assert finish(subject.steps()) is first
    subject.forget()
    subject.forget()
    finish(subject.steps())
    assert table.steps == 2 * STEPS


def test_what_no_request_waits_for_is_not_made(table: Table) -> None:
    subject = BodyCache(table.make, lambda: table.number)
    dropped = subject.steps()
    advance(dropped)
    dropped.close()
    table.number = 1
    assert finish(subject.steps()) == b"1"
    assert table.steps == 1 + STEPS


def test_an_error_is_for_all_who_wait(table: Table) -> None:
    subject = BodyCache(table.make, lambda: table.number)
    table.breaks = True
    one, two = subject.steps(), subject.steps()
    advance(one)
    for steps in (one, two):
        with pytest.raises(ZeroDivisionError):
            while True:
                advance(steps)
    table.breaks = False
    assert finish(subject.steps()) == b"0"


@pytest.mark.parametrize("seed", range(200))
def test_no_answer_is_older_than_its_request(table: Table, seed: int) -> None:
    dice = random.Random(seed)
    version: Callable[[], Any] = (lambda: table.number) if seed % 2 else object
    subject = BodyCache(table.make, version)
    open_requests: list[tuple[int, Steps[bytes]]] = []
    answered = 0
    for _ in range(600):
        deed = dice.random()
        if deed < 0.1:
            table.number += 1
        elif deed < 0.3:
            open_requests.append((table.number, subject.steps()))
        elif open_requests:
            at = dice.randrange(len(open_requests))
            since, steps = open_requests[at]
            if deed > 0.98:
                steps.close()
                del open_requests[at]
                continue
            answer = advance(steps)
            if answer is not None:
                assert since <= int(answer) <= table.number
                answered += 1
                del open_requests[at]
    assert answered > 20
    table.steps = 0
    while open_requests:
        left = []
        for since, steps in open_requests:
            answer = advance(steps)
            assert answer is None or int(answer) >= since
            if answer is None:
                left.append((since, steps))
        open_requests = left
    assert table.steps <= 4 * STEPS
