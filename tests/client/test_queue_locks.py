"""When an ordered consumer asks for its locks, and how long it believes in them."""

import asyncio
from typing import Any, cast

from ringmq.client.lock_keeper import LockKeeper
from ringmq.client.queue_locks import BELIEVED_S, RENEW_INTERVAL_S, LockBook
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
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


async def test_a_renewal_under_way_comes_before_the_unlocking() -> None:
    asked: list[int] = []
    granted = asyncio.Event()

    class Route:
        def known(self, topic: str) -> "Route":
            return self

        def master_address(self, broker: str) -> str:
            return "a:1"

    class Client:
        async def call(self, address: str, code: int, **rest: Any) -> RemotingCommand:
            asked.append(code)
            if code == RequestCode.LOCK_BATCH_MQ:
                await granted.wait()
            return RemotingCommand(0)

    keeper = LockKeeper(cast(Any, Client()), cast(Any, Route()), "g", "c", lambda queue: None)
    keeper.want(ONE)
    running = asyncio.create_task(keeper.run())
    await asyncio.sleep(0)  # poll
    while not asked:
        await asyncio.sleep(0)  # poll
    giving = asyncio.create_task(keeper.give_back([ONE]))
    for _ in range(10):
        await asyncio.sleep(0)  # poll
    assert asked == [RequestCode.LOCK_BATCH_MQ]
    granted.set()
    await asyncio.wait_for(giving, 5)
    assert asked == [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ]
    running.cancel()
