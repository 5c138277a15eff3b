"""The drill's checker: what it counts, and what it calls a fault."""

from collections.abc import Callable

import pytest

from tests.polls.poll_checker import EARLY_NS, FREE_NS, LATE_NS, Closing, Findings, Named, PollChecker, read_notes
from tests.polls.poll_wire import NOTHING

MS = 1_000_000
DEADLINE = 10_000 * MS
GENERATION = 7
NAME, OLD = (GENERATION, 1), (GENERATION - 1, 1)


def judged(
    happens: Callable[[PollChecker], None],
    named: dict[tuple[int, int], Named] | None = None,
    back: tuple[int, ...] = (),
) -> Findings:
    """What the checker says at the end."""
    checker = PollChecker()
    happens(checker)
    return checker.finish(DEADLINE * 2, named or {}, GENERATION, back)


def asked(checker: PollChecker) -> None:
    checker.asked(5, 1, DEADLINE)


def test_an_answer_in_time() -> None:
    def happens(checker: PollChecker) -> None:
        asked(checker)
        assert checker.answered(5, 1, DEADLINE + LATE_NS, NOTHING)

    found = judged(happens)
    assert (found.polls, found.answers, found.late, found.faults) == (1, {NOTHING: 1}, 0, [])


def late(checker: PollChecker) -> None:
    asked(checker)
    checker.answered(5, 1, DEADLINE + LATE_NS + 1, NOTHING)


def twice(checker: PollChecker) -> None:
    asked(checker)
    checker.answered(5, 1, 1, NOTHING)
    checker.answered(5, 1, 2, NOTHING)


def strange(checker: PollChecker) -> None:
    asked(checker)
    checker.answered(5, 2, 1, NOTHING)


def same_name(checker: PollChecker) -> None:
    checker.received(NAME, 1, 0, [1])
    checker.received(NAME, 2, 0, [2])


@pytest.mark.parametrize(
    ("happens", "fault"),
    [
        (asked, "no answer: connection 1, opaque 5, over for 10000 ms"),
        (late, "an answer came 250 ms behind its deadline"),
        (twice, "a second answer: connection 1, opaque 5, code 19"),
        (strange, "an answer that nobody waits for: connection 2, opaque 5, code 19"),
        (same_name, "two answers have the name (7, 1)"),
    ],
)
def test_what_clients_must_not_see(happens: Callable[[PollChecker], None], fault: str) -> None:
    found = judged(happens)
    assert found.faults[:1] == [fault] and found.fault_count == len(found.faults)


def test_nothing_is_late_while_a_process_stands_still() -> None:
    def happens(checker: PollChecker) -> None:
        late(checker)
        checker.disturbed(DEADLINE - 100 * MS, DEADLINE + 100 * MS)

    assert judged(happens).faults == []


def test_polls_of_an_ended_connection_need_no_answer() -> None:
    def happens(checker: PollChecker) -> None:
        asked(checker)
        checker.closed(1, Closing(5, is_exact=True))

    found = judged(happens)
    assert (found.given_up, found.faults) == (1, [])


def test_an_early_answer_is_counted() -> None:
    def happens(checker: PollChecker) -> None:
        asked(checker)
        checker.answered(5, 1, DEADLINE - EARLY_NS - 1, NOTHING)

    assert judged(happens).early == 1


def named(why: str = "", freed_ns: int = 0, at_ns: int = 100 * MS) -> Named:
    return Named(at_ns, 1, 0, (3, 4), freed_ns, why)


def received(checker: PollChecker) -> None:
    checker.received(NAME, 1, 0, [3, 4])


def closed(at_ns: int, **how: bool) -> Callable[[PollChecker], None]:
    return lambda checker: checker.closed(1, Closing(at_ns, **{"is_exact": False, **how}))


by_broker = closed(5, by_broker=True)


def nothing(checker: PollChecker) -> None:
    pass


@pytest.mark.parametrize(
    ("happens", "one", "name", "count"),
    [
        (received, named(), NAME, "received"),
        (received, named("expired", 1), NAME, "expired"),
        (nothing, named("unsent", 100 * MS + FREE_NS), NAME, "freed"),
        (closed(500 * MS, is_exact=True), named("unsent", 500 * MS + FREE_NS), NAME, "freed"),
        (closed(500 * MS, by_broker=True), named("reader", 900 * MS), NAME, "freed"),
        (closed(500 * MS, by_broker=True), named("expired", 1), NAME, "died_with_reader"),
        (closed(100 * MS), named("expired", 1), NAME, "cut_off"),
        (nothing, named(), OLD, "died_with_worker"),
    ],
)
def test_what_may_become_of_an_answer(
    happens: Callable[[PollChecker], None], one: Named, name: tuple[int, int], count: str
) -> None:
    found = judged(happens, {name: one}, back=(850 * MS,))
    assert found.faults == [] and getattr(found, count) == 1


@pytest.mark.parametrize(
    ("happens", "one", "fault"),
    [
        (nothing, named(), "answer (7, 1) to connection 1 was neither received nor taken back"),
        (nothing, named("expired", 1), "answer (7, 1) to connection 1 was neither received nor taken back"),
        (closed(5, is_exact=True), named(), "answer (7, 1) to connection 1 was neither received nor taken back"),
        (closed(5), named(at_ns=200 * MS), "answer (7, 1) to connection 1 was neither received nor taken back"),
        (received, named("unsent", 1), "answer (7, 1) was received, and its messages were free again: unsent"),
        (nothing, named("unsent", 201 * MS), "messages of answer (7, 1) were free only 101 ms later: unsent"),
        (by_broker, named("reader", 951 * MS), "messages of answer (7, 1) were free only 101 ms later: reader"),
    ],
)  # fmt: skip
def test_what_must_not_become_of_an_answer(happens: Callable[[PollChecker], None], one: Named, fault: str) -> None:
    assert judged(happens, {NAME: one}, back=(850 * MS,)).faults == [fault]


def test_a_notice_behind_the_time_of_an_acknowledgement() -> None:
    found, _ = read_notes(["7 named 100 1 9 3 4,5", "7 expired 200 1 0", "7 unsent 300 1 2"])
    assert found[7, 1] == Named(100, 9, 3, (4, 5), 200, "unsent")


def test_messages_that_are_missing_or_came_again() -> None:
    checker = PollChecker()
    checker.received((1, 1), 1, 2, [0, 1, 2])
    checker.received((1, 2), 2, 2, [2, 4])
    assert checker.findings.again == 1
    assert checker.missing(2, 0, 6) == [3, 5]
    assert checker.missing(3, 4, 6) == [4, 5]


def test_notes() -> None:
    lines = [
        "7 named 100 1 9 3 4,5",
        "7 unsent 200 1 2",
        "7 expired 250 9 0",
        "7 deleted 300 3 8",
        "8 named 400 1 9 3 8",
    ]
    found, overtaken = read_notes(lines)
    assert overtaken == 1
    assert found == {(7, 1): Named(100, 9, 3, (4, 5), 200, "unsent"), (8, 1): Named(400, 9, 3, (8,))}
