"""The checker of transactions catches each kind of planted violation and accepts what is allowed."""

from ringmq.loadtest.drills.transactions import TransactionChecker, is_committed


def run() -> TransactionChecker:
    """A clean run of the transactions 1 to 6, of which 3 and 6 are rolled back."""
    checker = TransactionChecker()
    for number in range(1, 7):
        checker.acknowledged(number)
        checker.tells(number)
        checker.ended()
        if is_committed(number):
            checker.read(number)
            checker.delivered(number)
    return checker


def kinds(checker: TransactionChecker) -> list[str]:
    return [violation.kind for violation in checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    checker = run()
    assert (checker.verdict(), checker.has_all, checker.ended_count) == ([], True, 6)


def test_a_planted_half_that_is_shown_is_caught() -> None:
    checker = run()
    checker.read(7)
    assert kinds(checker) == ["shown half"]


def test_a_planted_commit_of_a_rollback_is_caught() -> None:
    checker = run()
    checker.delivered(3)
    assert kinds(checker) == ["false commit"]


def test_a_planted_loss_is_caught() -> None:
    checker = run()
    checker.acknowledged(7)
    assert kinds(checker) == ["lost commit"]
    assert not checker.has_all


def test_a_planted_second_commit_is_caught() -> None:
    checker = run()
    checker.delivered(5)
    assert kinds(checker) == ["doubled commit"]


def test_a_half_without_an_answer_may_be_delivered_or_not() -> None:
    checker = run()
    checker.tells(7)
    assert checker.verdict() == []
    checker.delivered(7)
    assert checker.verdict() == []
