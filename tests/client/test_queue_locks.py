"""When an ordered consumer asks for its locks, and how long it believes in them."""

import asyncio
from typing import Any, cast

from ringmq.client.consuming.lock_renewal import LockRenewer
from ringmq.client.consuming.queue_locks import LOCK_VALID_S, RENEW_INTERVAL_S, LockState
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message_queue import MessageQueue

ONE, TWO, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)


def test_locks_are_asked_for_by_broker_and_renewed_in_time() -> None:
    state = LockState()
    for queue in (ONE, TWO, OTHER):
        state.want(queue)
    assert dict(state.due(100.0)) == {"a": [ONE, TWO], "b": [OTHER]}
    assert state.answered([ONE, TWO], [ONE], 100.0, 100.1) == []
    assert (state.held(ONE, 101.0), state.held(TWO, 101.0)) == (True, False)
    assert dict(state.due(100.1)) == {"b": [OTHER]}
    assert dict(state.due(101.0)) == {"a": [TWO], "b": [OTHER]}, "a refused lock is asked for again soon"
    state.drop(TWO)
    state.drop(OTHER)
    assert state.next_due_s(101.0) < RENEW_INTERVAL_S
    assert dict(state.due(100.2 + RENEW_INTERVAL_S)) == {"a": [ONE]}
    assert not state.held(ONE, 100.0 + LOCK_VALID_S), "counted from the question, not from the answer"


def test_refusals_slow_down_and_silence_keeps_what_is_held() -> None:
    state = LockState()
    state.want(ONE)
    now, pauses = 0.0, []
    for _ in range(8):
        state.answered([ONE], [], now, now)
        pauses.append(state.next_due_s(now))
        now += pauses[-1]
    assert pauses[0] < 0.2
    assert pauses == sorted(pauses)
    assert pauses[-1] == 3.0
    state.answered([ONE], [ONE], now, now)
    state.unanswered([ONE], now + 20)
    assert state.held(ONE, now + 29)
    assert not state.held(ONE, now + 31)


def test_a_lock_that_another_member_may_have_had_is_told() -> None:
    state = LockState()
    state.want(ONE)
    assert state.answered([ONE], [ONE], 0.0, 0.0) == []
    assert state.answered([ONE], [], 20.0, 20.0) == [ONE], "refused: another member has it"
    assert state.answered([ONE], [ONE], 21.0, 21.0) == [], "told once"
    assert state.answered([ONE], [ONE], 60.0, 60.0) == [ONE], "it had expired here"
    assert state.answered([TWO], [TWO], 60.0, 60.0) == [], "not wanted (any more)"
    assert LockState().next_due_s(5.0) == RENEW_INTERVAL_S


class Route:
    """Every queue's master is named like its broker."""

    def known(self, topic: str) -> "Route":
        return self

    def master_address(self, broker: str) -> str:
        return broker


class SlowBrokers:
    """Notes what each broker is asked; locks are granted when `granted` is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.granted = asyncio.Event()

    async def call(self, address: str, code: int, **rest: Any) -> RemotingCommand:
        self.asked.append((address, code))
        if code == RequestCode.LOCK_BATCH_MQ:
            await self.granted.wait()
        return RemotingCommand(0)


async def a_renewer_that_asks(brokers: SlowBrokers) -> tuple[LockRenewer, asyncio.Task[None]]:
    """For the locks of ONE and OTHER."""
    renewer = LockRenewer(cast(Any, brokers), cast(Any, Route()), "g", "c", lambda queue: None)
    renewer.want(ONE)
    renewer.want(OTHER)
    running = asyncio.create_task(renewer.run())
    while len(brokers.asked) < 2:
        await asyncio.sleep(0)  # poll
    return renewer, running


async def test_a_renewal_under_way_comes_before_the_unlocking() -> None:
    brokers = SlowBrokers()
    renewer, running = await a_renewer_that_asks(brokers)
    giving = asyncio.create_task(renewer.give_back([ONE]))
    for _ in range(10):
        await asyncio.sleep(0)  # poll
    assert ("a", RequestCode.UNLOCK_BATCH_MQ) not in brokers.asked
    brokers.granted.set()
    await asyncio.wait_for(giving, 60)
    assert brokers.asked[2:] == [("a", RequestCode.UNLOCK_BATCH_MQ)]
    running.cancel()


async def test_a_renewal_of_other_queues_is_not_waited_for() -> None:
    brokers = SlowBrokers()
    renewer, running = await a_renewer_that_asks(brokers)
    await asyncio.wait_for(renewer.give_back([TWO]), 60)
    giving = asyncio.create_task(renewer.give_back([ONE, MessageQueue("T", "c", 0)]))
    for _ in range(10):
        await asyncio.sleep(0)  # poll
    assert brokers.asked[2:] == [("a", RequestCode.UNLOCK_BATCH_MQ), ("c", RequestCode.UNLOCK_BATCH_MQ)]
    brokers.granted.set()
    await asyncio.wait_for(giving, 60)
    assert brokers.asked[4:] == [("a", RequestCode.UNLOCK_BATCH_MQ)]
    running.cancel()
