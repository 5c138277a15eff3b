"""The checker of delayed messages catches each kind of planted violation and accepts what is allowed."""

from ringmq.loadtest.drills.delays import DELAYED_TOPIC, DelayChecker
from ringmq.remoting.message import MessageExt

T0 = 1_700_000_000_000


def sent(checker: DelayChecker, message_id: str, *, acknowledged: bool = True) -> None:
    checker.began(message_id, T0)
    if acknowledged:
        checker.acknowledged(message_id)


def delivered(checker: DelayChecker, message_id: str, stored_ms: int = T0 + 2000) -> None:
    checker.delivered(MessageExt(DELAYED_TOPIC, message_id.encode() + b"...", store_timestamp_ms=stored_ms))


def run() -> DelayChecker:
    """A clean run of two lanes of level 2."""
    checker = DelayChecker()
    for message_id in ("2-0-1", "2-1-1", "2-0-2"):
        sent(checker, message_id)
        delivered(checker, message_id)
    return checker


def kinds(checker: DelayChecker) -> list[str]:
    return [violation.kind for violation in checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    checker = run()
    assert (checker.verdict(), checker.acknowledged_count) == ([], 3)


def test_messages_of_a_lane() -> None:
    messages = DelayChecker().messages(2, 1)
    next(messages)
    message_id, message = next(messages)
    assert (message_id, message.topic, message.properties["DELAY"]) == ("2-1-2", DELAYED_TOPIC, "2")


def test_a_planted_early_delivery_is_caught() -> None:
    checker = run()
    sent(checker, "2-1-2")
    delivered(checker, "2-1-2", T0 + 1999)
    assert kinds(checker) == ["early delivery"]


def test_a_planted_loss_is_caught() -> None:
    checker = run()
    sent(checker, "2-1-2")
    assert kinds(checker) == ["lost delivery"]


def test_a_planted_second_copy_is_caught() -> None:
    checker = run()
    delivered(checker, "2-0-2")
    assert kinds(checker) == ["doubled delivery"]


def test_a_planted_reorder_is_caught() -> None:
    checker = run()
    for message_id in ("2-1-2", "2-1-3"):
        sent(checker, message_id)
    for message_id in ("2-1-3", "2-1-2"):
        delivered(checker, message_id)
    assert kinds(checker) == ["delivery order"]


def test_a_send_without_an_answer_may_be_delivered_late_or_not_at_all() -> None:
    checker = run()
    sent(checker, "2-1-2", acknowledged=False)
    sent(checker, "2-1-3", acknowledged=False)
    sent(checker, "2-1-4")
    for message_id in ("2-1-4", "2-1-3"):
        delivered(checker, message_id)
    assert checker.verdict() == []
