"""The checker of a drill's polls catches each kind of planted violation, and accepts what is allowed."""

from ringmq.loadtest.drills.polls import EARLY_MS, LAST_LOOK_MS, OVERTAKEN_MS, SEEN_MS, PollChecker

T0, POLL_MS = 1_700_000_000_000, 1000
END_MS = T0 + POLL_MS
SENT_MS = END_MS - SEEN_MS - 9
A, B = 1, 2
"""Connections."""


def poll(checker: PollChecker, began_ms: int = T0, ended_ms: int | None = None) -> int:
    """A poll that ends without a message."""
    number = checker.begins(began_ms, POLL_MS, A)
    checker.answered(number)
    checker.ended(number, began_ms + POLL_MS if ended_ms is None else ended_ms)
    return number


def kinds(checker: PollChecker) -> list[str]:
    return [violation.kind for violation in checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    checker = PollChecker()
    checker.sent("1", T0 + 5)
    checker.answered(checker.begins(T0, POLL_MS, A))
    checker.given("1", T0 + 6, 0)
    checker.cut_off(checker.begins(T0, POLL_MS, A))
    poll(checker, END_MS + 2 * OVERTAKEN_MS)
    checker.answered(checker.begins(T0, POLL_MS, A))
    checker.refused()
    checker.left(0)
    assert checker.verdict() == []
    assert checker.counts == {"polls": 4, "in vain": 1, "cut off": 1, "refused": 1, "ms late at most": 0}


def test_a_poll_by_a_connection_that_lives_is_answered() -> None:
    checker = PollChecker()
    checker.unanswered(checker.begins(T0, POLL_MS, A))
    assert kinds(checker) == ["unanswered poll"]


def test_two_answers_overtake_none_that_is_over() -> None:
    over_ms = END_MS + OVERTAKEN_MS
    for began_ms, connection, turns, found in (
        (over_ms + 1, A, 2, ["overtaken poll"]), (over_ms + 1, A, 1, []), (over_ms, A, 2, []), (over_ms + 1, B, 2, []),
    ):  # fmt: skip
        checker = PollChecker()
        slow = checker.begins(T0, POLL_MS, A)
        for _ in range(turns):
            checker.answered(checker.begins(began_ms, POLL_MS, connection))
        checker.answered(slow)
        checker.ended(slow, over_ms + 5)
        assert kinds(checker) == found


def test_answers_of_one_turn_overtake_none() -> None:
    checker = PollChecker()
    slow, *later = (checker.begins(began_ms, POLL_MS, A) for began_ms in (T0, *[END_MS + 2 * OVERTAKEN_MS] * 3))
    for poll_of_turn in (*later, slow):
        checker.answered(poll_of_turn)
    assert checker.verdict() == []


def test_a_poll_without_a_message_ends_at_its_last_look() -> None:
    soonest_ms = END_MS - LAST_LOOK_MS - EARLY_MS
    for ended_ms, found in ((soonest_ms, []), (soonest_ms - 1, ["early end"])):
        checker = PollChecker()
        poll(checker, ended_ms=ended_ms)
        assert kinds(checker) == found


def test_a_late_answer_is_told_and_allowed() -> None:
    checker = PollChecker()
    poll(checker, ended_ms=END_MS + 700)
    assert checker.verdict() == []
    assert checker.counts["ms late at most"] == 700


def test_a_poll_gets_a_message_that_is_there() -> None:
    for read_ms, given_ms, found in (
        (END_MS - SEEN_MS - 1, END_MS + 1, ["passed by"]),
        (END_MS - SEEN_MS, END_MS + 1, []),
        (END_MS - SEEN_MS - 1, END_MS, []),
    ):
        checker = PollChecker()
        checker.sent("1", SENT_MS)
        checker.read(SENT_MS + 1, read_ms)
        poll(checker)
        checker.given("1", given_ms, 0)
        assert kinds(checker) == found, (read_ms, given_ms)


def test_only_the_read_of_a_later_message_shows_that_one_can_be_read() -> None:
    for born_ms, found in ((SENT_MS, []), (SENT_MS + 1, ["passed by"])):
        checker = PollChecker()
        for later_ms in (-1, 0, -2):
            checker.read(born_ms + later_ms, SENT_MS + 3)
        checker.sent("1", SENT_MS)
        checker.read(END_MS, END_MS)
        poll(checker)
        checker.given("1", END_MS + 1, 0)
        assert kinds(checker) == found


def test_a_poll_that_ends_late_may_have_had_no_look() -> None:
    for late_ms, found in ((0, ["passed by"]), (1, [])):
        checker = PollChecker()
        checker.sent("1", SENT_MS)
        checker.read(SENT_MS + 1, SENT_MS + 2)
        poll(checker, ended_ms=END_MS + late_ms)
        checker.given("1", END_MS + late_ms + 1, 0)
        assert kinds(checker) == found


def test_an_answer_that_nobody_received_has_given_its_message() -> None:
    for pops in ([(END_MS + 1, 1)], [(END_MS + 1, 1), (END_MS - 5, 0)], [(END_MS - 5, 0), (END_MS + 1, 1)]):
        checker = PollChecker()
        checker.sent("1", SENT_MS)
        checker.read(SENT_MS + 1, SENT_MS + 2)
        poll(checker)
        for pop_time_ms, times in pops:
            checker.given("1", pop_time_ms, times)
        assert checker.verdict() == []


def test_failures_need_faults() -> None:
    checker = PollChecker()
    for _ in range(2):
        checker.refused()
        checker.cut_off(checker.begins(T0, POLL_MS, A))
    assert kinds(checker) == []
    for limit, found in ((2, []), (1, ["many cut off", "many refused"])):
        checker.may_fail(limit)
        assert kinds(checker) == found


def test_no_poll_waits_when_no_client_does() -> None:
    checker = PollChecker()
    checker.left(2)
    assert kinds(checker) == ["left poll"]
