"""The checker of timer messages catches each kind of planted violation and accepts what is allowed."""

from ringmq.loadtest.drills.timers import TIMER_TOPIC, TimerChecker
from ringmq.remoting.message import MessageExt

T0 = 1_700_000_000_000


def sent(checker: TimerChecker, message_id: str, *, acknowledged: bool = True) -> None:
    checker.began(message_id, T0)
    if acknowledged:
        checker.acknowledged(message_id)


def delivered(checker: TimerChecker, message_id: str, stored_ms: int = T0) -> None:
    checker.delivered(MessageExt(TIMER_TOPIC, message_id.encode() + b"...", store_timestamp_ms=stored_ms))


def run() -> TimerChecker:
    """A clean run. The last send has no answer, and the broker has it."""
    checker = TimerChecker()
    for message_id in ("1", "2", "3"):
        sent(checker, message_id, acknowledged=message_id != "3")
        delivered(checker, message_id)
    return checker


def kinds(checker: TimerChecker) -> list[str]:
    return [violation.kind for violation in checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    checker = run()
    assert (checker.verdict(), checker.acknowledged_count, checker.has_all) == ([], 2, True)


def test_a_planted_early_delivery_is_caught() -> None:
    checker = run()
    sent(checker, "4")
    delivered(checker, "4", T0 - 1)
    assert kinds(checker) == ["early timer"]


def test_a_planted_loss_is_caught() -> None:
    checker = run()
    sent(checker, "4")
    assert (kinds(checker), checker.has_all) == (["lost timer"], False)


def test_a_planted_second_copy_is_caught() -> None:
    checker = run()
    delivered(checker, "3")
    assert kinds(checker) == ["doubled timer"]


def test_a_send_without_an_answer_may_be_missing() -> None:
    checker = run()
    sent(checker, "4", acknowledged=False)
    assert checker.verdict() == []
