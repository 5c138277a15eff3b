"""When an ordered consumer asks for its locks, and how long it believes in them."""

from ringmq.client.queue_locks import BELIEVED_S, RENEW_INTERVAL_S, LockBook
from ringmq.remoting.message_queue import MessageQueue

ONE, TWO, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)


def test_locks_are_asked_for_by_broker_and_renewed_in_time() -> None:
    book = LockBook()
    for queue in (ONE, TWO, OTHER):
        book.want(queue)
    assert dict(book.due(100.0)) == {"a": [ONE, TWO], "b": [OTHER]}
    assert book.answered([ONE, TWO], [ONE], 100.0, 100.1) == []
    assert (book.held(ONE, 101.0), book.held(TWO, 101.0)) == (True, False)
    assert dict(book.due(100.1)) == {"b": [OTHER]}
    assert dict(book.due(101.0)) == {"a": [TWO], "b": [OTHER]}, "a refused lock is asked for again soon"
    book.drop(TWO)
    book.drop(OTHER)
    assert book.next_due_s(101.0) < RENEW_INTERVAL_S
    assert dict(book.due(100.2 + RENEW_INTERVAL_S)) == {"a": [ONE]}
    assert not book.held(ONE, 100.0 + BELIEVED_S), "counted from the question, not from the answer"


def test_refusals_slow_down_and_silence_keeps_what_is_held() -> None:
    book = LockBook()
    book.want(ONE)
    now, pauses = 0.0, []
    for _ in range(8):
        book.answered([ONE], [], now, now)
        pauses.append(book.next_due_s(now))
        now += pauses[-1]
    assert pauses[0] < 0.2
    assert pauses == sorted(pauses)
    assert pauses[-1] == 3.0
    book.answered([ONE], [ONE], now, now)
    book.unanswered([ONE], now + 20)
    assert book.held(ONE, now + 29)
    assert not book.held(ONE, now + 31)


def test_a_lock_that_another_member_may_have_had_is_told() -> None:
    book = LockBook()
    book.want(ONE)
    assert book.answered([ONE], [ONE], 0.0, 0.0) == []
    assert book.answered([ONE], [], 20.0, 20.0) == [ONE], "refused: another member has it"
    assert book.answered([ONE], [ONE], 21.0, 21.0) == [], "told once"
    assert book.answered([ONE], [ONE], 60.0, 60.0) == [ONE], "it had expired here"
    assert book.answered([TWO], [TWO], 60.0, 60.0) == [], "not wanted (any more)"
    assert LockBook().next_due_s(5.0) == RENEW_INTERVAL_S
