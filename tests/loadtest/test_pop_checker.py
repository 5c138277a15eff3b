"""The checker of pops catches each kind of planted violation, and accepts what is allowed."""

from ringmq.loadtest.drills.pops import PopChecker

T0, INVISIBLE_MS = 1_700_000_000_000, 3000


def pop(checker: PopChecker, name: str, at_ms: int, times: int = 0, invisible_ms: int = INVISIBLE_MS) -> int:
    """A pop that begins now."""
    return checker.popped(checker.begins(), name, at_ms, at_ms + invisible_ms, times)


def ack(checker: PopChecker, name: str, number: int, at_ms: int) -> None:
    checker.asks_ack(name, number)
    checker.acknowledged(name, number, at_ms)


def run() -> PopChecker:
    """A clean run: a message is left open once, comes back and is acknowledged."""
    checker = PopChecker()
    checker.sent("1")
    pop(checker, "1", T0)
    ack(checker, "1", pop(checker, "1", T0 + INVISIBLE_MS, 1), T0 + INVISIBLE_MS + 5)
    return checker


def kinds(checker: PopChecker) -> list[str]:
    return [violation.kind for violation in checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    checker = run()
    assert checker.has_all
    assert (checker.popped_count, checker.acknowledged_count) == (2, 1)
    assert checker.verdict() == []


def test_a_message_that_no_pop_gives_is_lost() -> None:
    checker = run()
    checker.sent("2")
    assert not checker.has_all
    assert kinds(checker) == ["lost message"]


def test_a_message_that_was_left_open_must_come_back() -> None:
    checker = run()
    pop(checker, "2", T0)
    assert not checker.has_all
    assert kinds(checker) == ["lost retry"]


def test_a_send_without_an_answer_may_be_there_or_not() -> None:
    checker = run()
    ack(checker, "unanswered", pop(checker, "unanswered", T0), T0 + 1)
    assert checker.verdict() == []


def test_two_pops_within_the_invisible_time() -> None:
    checker = run()
    first = pop(checker, "2", T0)
    pop(checker, "2", T0 + INVISIBLE_MS - 1, 1)
    checker.asks_ack("2", first)
    assert kinds(checker) == ["given twice"]


def test_pops_are_judged_by_the_brokers_times_however_their_answers_come() -> None:
    checker = run()
    second = pop(checker, "2", T0 + INVISIBLE_MS, 1)
    pop(checker, "2", T0)
    checker.asks_ack("2", second)
    assert checker.verdict() == []


def test_an_acknowledged_message_is_never_seen_again() -> None:
    checker = run()
    ack(checker, "2", pop(checker, "2", T0), T0 + 5)
    pop(checker, "2", T0 + 2 * INVISIBLE_MS, 1)
    assert kinds(checker) == ["seen after ack"]


def test_an_ack_without_an_answer_may_be_done_or_not() -> None:
    checker = run()
    checker.asks_ack("2", pop(checker, "2", T0))
    assert checker.has_all
    pop(checker, "2", T0 + INVISIBLE_MS, 1)
    assert checker.verdict() == []


def test_an_ack_that_is_answered_too_late_is_not_judged() -> None:
    checker = run()
    ack(checker, "2", pop(checker, "2", T0), T0 + INVISIBLE_MS)
    pop(checker, "2", T0 + INVISIBLE_MS + 1, 1)
    assert checker.verdict() == []


def test_a_retry_counts() -> None:
    checker = run()
    pop(checker, "2", T0)
    checker.asks_ack("2", pop(checker, "2", T0 + INVISIBLE_MS, 0))
    assert kinds(checker) == ["uncounted retry"]


def test_a_change_moves_the_end_of_the_invisible_time() -> None:
    for new_ms, at_ms, found in ((1000, 1000, []), (1000, 999, ["given twice"]), (6000, 5999, ["given twice"])):
        checker = run()
        first = pop(checker, "2", T0)
        replaced_ms = checker.asks_change("2", first, T0, new_ms)
        checker.changed("2", first, T0 + 1, replaced_ms, T0 + new_ms)
        checker.asks_ack("2", pop(checker, "2", T0 + at_ms, 1))
        assert kinds(checker) == found


def test_a_change_without_an_answer_leaves_the_earlier_of_both_ends() -> None:
    for asked_ms, at_ms in ((1000, 1000), (6000, INVISIBLE_MS)):
        checker = run()
        checker.asks_change("2", pop(checker, "2", T0), T0, asked_ms)
        checker.asks_ack("2", pop(checker, "2", T0 + at_ms, 1))
        assert checker.verdict() == []


def test_a_change_that_is_answered_too_late_is_not_judged() -> None:
    checker = run()
    first = pop(checker, "2", T0)
    replaced_ms = checker.asks_change("2", first, T0 + INVISIBLE_MS - 1, 6000)
    checker.changed("2", first, T0 + INVISIBLE_MS, replaced_ms, T0 + INVISIBLE_MS + 6000)
    checker.asks_ack("2", pop(checker, "2", T0 + INVISIBLE_MS, 1))
    assert checker.verdict() == []
