"""The checker catches each kind of planted violation and accepts what is allowed."""

from ringmq.loadtest.drills.checker import Checker


def run(count: int = 5) -> Checker:
    """A clean run: one producer, one queue, every message acknowledged, read and still there."""
    checker = Checker()
    for number in range(count):
        checker.began("p", f"m{number}")
        checker.acknowledged(f"m{number}", "T", 0, number)
        checker.read("T", 0, number, f"m{number}")
        checker.final_read("T", 0, number, f"m{number}")
    return checker


def kinds(checker: Checker) -> set[str]:
    return {violation.kind for violation in checker.verdict()}


def test_a_clean_run_has_no_violation() -> None:
    checker = run()
    assert checker.verdict() == []
    assert checker.acknowledged_count == 5


def test_a_planted_loss_is_caught() -> None:
    checker = run()
    checker.began("p", "lost")
    checker.acknowledged("lost", "T", 0, 5)
    assert kinds(checker) == {"loss"}


def test_another_message_in_the_place_is_a_loss_too() -> None:
    checker = run()
    checker.began("p", "replaced")
    checker.acknowledged("replaced", "T", 0, 5)
    checker.final_read("T", 0, 5, "other")
    assert kinds(checker) == {"loss"}


def test_a_planted_double_offset_is_caught() -> None:
    checker = run()
    checker.began("q", "twin")
    checker.acknowledged("twin", "T", 0, 4)
    assert "double offset" in kinds(checker)


def test_a_planted_reorder_is_caught() -> None:
    checker = Checker()
    for number, offset in enumerate([0, 2, 1]):
        checker.began("p", f"m{number}")
        checker.acknowledged(f"m{number}", "T", 0, offset)
        checker.final_read("T", 0, offset, f"m{number}")
    assert kinds(checker) == {"reorder"}


def test_sends_in_flight_together_may_stand_in_any_order() -> None:
    checker = Checker()
    checker.began("p", "a")
    checker.began("p", "b")
    checker.acknowledged("b", "T", 0, 0)
    checker.acknowledged("a", "T", 0, 1)
    checker.final_read("T", 0, 0, "b")
    checker.final_read("T", 0, 1, "a")
    assert checker.verdict() == []


def test_a_planted_early_read_is_caught() -> None:
    checker = run()
    checker.began("p", "ghost")
    checker.read("T", 0, 5, "ghost")
    assert kinds(checker) == {"early read"}


def test_a_gap_is_caught() -> None:
    checker = run()
    checker.final_read("T", 0, 7, "x")
    assert kinds(checker) == {"gap"}


def test_a_send_without_an_answer_may_be_there_or_not() -> None:
    checker = run()
    checker.began("p", "unknown-kept")
    checker.began("p", "unknown-gone")
    checker.final_read("T", 0, 5, "unknown-kept")
    assert checker.verdict() == []
