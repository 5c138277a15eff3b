"""The checkers of failed messages catch each kind of planted violation and accept what is allowed."""

from ringmq.loadtest.drills.retries import RETRIES_MAX, OrderChecker, RetryChecker
from ringmq.remoting.message import MessageExt

T0, DELAY_MS = 1_700_000_000_000, 1000
RETRY, DEAD = "%RETRY%g", "%DLQ%g"


def stored(checker: RetryChecker, name: str, times: int, at_ms: int = T0 + DELAY_MS, topic: str = "") -> None:
    topic = topic or (DEAD if times > RETRIES_MAX else RETRY)
    checker.stored(MessageExt(topic, name.encode() + b"...", reconsume_times=times, store_timestamp_ms=at_ms))


def run() -> RetryChecker:
    """A clean run of one message up to the dead letters."""
    checker = RetryChecker(DELAY_MS)
    for times in range(1, RETRIES_MAX + 2):
        checker.asks("1", times, T0)
        checker.answered("1", times)
        stored(checker, "1", times)
    return checker


def kinds(checker: RetryChecker) -> list[str]:
    return [violation.kind for violation in checker.verdict()]


def test_a_clean_run_has_no_violation() -> None:
    checker = run()
    assert checker.has_all and checker.answered_count == RETRIES_MAX + 1
    assert checker.verdict() == []


def test_a_request_without_an_answer_may_have_stored_a_copy() -> None:
    checker = run()
    for name in ("2", "3"):
        checker.asks(name, 1, T0)
    checker.asks("3", 1, T0 + 500)
    checker.answered("3", 1)
    stored(checker, "3", 1)
    stored(checker, "3", 1)
    assert checker.has_all and checker.verdict() == []


def test_a_lost_retry() -> None:
    checker = run()
    checker.asks("2", 1, T0)
    checker.answered("2", 1)
    assert not checker.has_all
    assert kinds(checker) == ["lost retry"]


def test_a_doubled_retry() -> None:
    checker = run()
    stored(checker, "1", RETRIES_MAX + 1)
    assert kinds(checker) == ["doubled retry"]


def test_an_early_retry() -> None:
    checker = run()
    checker.asks("2", 1, T0)
    stored(checker, "2", 1, T0 + DELAY_MS - 1)
    assert kinds(checker) == ["early retry"]


def test_a_copy_in_the_wrong_topic() -> None:
    checker = run()
    checker.asks("2", 1, T0)
    stored(checker, "2", 1, topic=DEAD)
    assert kinds(checker) == ["wrong dead letter"]


def handled(checker: OrderChecker, queue_offset: int) -> int:
    """Call the handler until its message is settled, and return the number of failures."""
    failures = 0
    while checker.handled(0, queue_offset, f"id-{queue_offset}"):
        failures += 1
        if failures > RETRIES_MAX:
            break
    return failures


def ordered(count: int) -> OrderChecker:
    checker = OrderChecker()
    checker.acknowledged(0, count - 1)
    for offset in range(count):
        handled(checker, offset)
        if checker.fails_always(offset):
            checker.dead(f"id-{offset}")
    return checker


def test_an_ordered_group_repeats_and_gives_up() -> None:
    checker = OrderChecker()
    checker.acknowledged(0, 7)
    assert [handled(checker, offset) for offset in range(7)] == [RETRIES_MAX + 1, 0, 0, 0, 0, 1, 0]
    assert not checker.is_done
    assert handled(checker, 7) == RETRIES_MAX + 1
    assert checker.is_done and checker.settled_count == 8
    assert handled(checker, 5) == 0, "a member reads again from the group's offset"
    assert [violation.kind for violation in checker.verdict({0: 8})] == ["lost dead letter"] * 2
    assert not checker.has_dead({0: 8}) and checker.has_dead({0: 0})


def test_a_clean_ordered_run() -> None:
    assert ordered(20).verdict({0: 20}) == []


def test_a_message_before_its_turn() -> None:
    checker = OrderChecker()
    assert checker.handled(0, 0, "id-0")
    checker.handled(0, 1, "id-1")
    assert [violation.kind for violation in checker.verdict({})] == ["skipped order"]


def test_a_dead_letter_of_a_message_that_was_handled() -> None:
    checker = ordered(3)
    checker.dead("id-1")
    checker.dead("unknown")
    assert [violation.kind for violation in checker.verdict({0: 3})] == ["false dead letter"] * 2
