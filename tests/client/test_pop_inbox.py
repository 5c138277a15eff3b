"""Popped messages that wait: their order, the room for more, and the order of a queue."""

import asyncio
from collections.abc import Callable

import pytest

from ringmq.client.popping.lease import Lease, LeaseRules
from ringmq.client.popping.pop_inbox import AHEAD_MAX, BYTES_MAX, HandledRate, PopDelivery, PopInbox
from ringmq.client.popping.popped_message import PoppedMessage
from tests.waiting import until

RULES = LeaseRules(60.0, 600.0)


def delivery(queue_id: int = 0, offset: int = 0, body: bytes = b"x") -> PopDelivery:
    message = PoppedMessage("T", body, queue_id=queue_id, queue_offset=offset, broker_name="a")
    return PopDelivery(message, Lease(RULES, 60.0))


def places(inbox: PopInbox) -> list[tuple[int, int]]:
    """Queue and offset of all messages that can be claimed now."""
    found = []
    while (claimed := inbox.claim()) is not None:
        found.append((claimed.message.queue_id, claimed.message.queue_offset))
    return found


async def asking(inbox: PopInbox, number: int) -> list[asyncio.Task[bool]]:
    """Handlers that wait for messages."""
    waits = [asyncio.create_task(inbox.wait()) for _ in range(number)]
    await asyncio.sleep(0)
    return waits


async def end(waits: list[asyncio.Task[bool]]) -> None:
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


def test_messages_are_claimed_in_their_order_and_one_that_is_put_back_first() -> None:
    inbox = PopInbox(ordered=False)
    inbox.put([delivery(0, 0, b"four"), delivery(1, 0), delivery(0, 1)])
    assert (inbox.count, inbox.bytes_held) == (3, 6)
    first = inbox.claim()
    assert first is not None
    inbox.put_back(first)
    assert places(inbox) == [(0, 0), (1, 0), (0, 1)]
    assert (inbox.count, inbox.bytes_held) == (0, 0)


def test_a_waiting_message_can_be_taken_out() -> None:
    inbox = PopInbox(ordered=False)
    waiting, other = delivery(0, 0), delivery(0, 1)
    inbox.put([waiting, other])
    assert inbox.take_out(waiting)
    assert not inbox.take_out(waiting)
    assert inbox.count == 1
    assert inbox.take_all() == [other]
    assert inbox.claim() is None
    assert inbox.count == 0


async def test_there_is_room_for_the_handlers_that_ask() -> None:
    inbox = PopInbox(ordered=False)
    assert inbox.room(0.0) == 0
    waits = await asking(inbox, 3)
    assert inbox.room(0.0) == 3
    inbox.put([delivery()])
    assert inbox.room(0.0) == 2
    await until(lambda: waits[0].done(), "one handler is awake")
    assert inbox.room(0.0) == 1  # two ask, and one message waits for the one that is awake
    inbox.reserve(1)
    assert inbox.room(0.0) == 0  # a pop that is under way brings one
    inbox.reserve(-1)
    assert inbox.room(0.0) == 1
    await end(waits)
    assert inbox.room(0.0) == 0


def test_quick_handlers_have_messages_wait_for_them() -> None:
    inbox = PopInbox(ordered=False)
    for _ in range(40):
        inbox.note_end(0.05)
    assert inbox.room(0.05) == 0  # the tenth of a second is not over
    assert inbox.room(0.15) == 20
    inbox.put([delivery(0, offset) for offset in range(11)])
    assert inbox.room(0.15) == 0  # half of them wait: no small pops
    assert inbox.claim() is not None
    assert inbox.room(0.15) == 10
    assert inbox.room(10.0) == 0  # none has ended for long


def test_no_more_wait_than_the_bounds() -> None:
    inbox = PopInbox(ordered=False)
    for _ in range(10 * AHEAD_MAX):
        inbox.note_end(0.05)
    assert inbox.room(0.15) == AHEAD_MAX
    inbox.put([delivery(body=b"x" * BYTES_MAX)])
    assert inbox.room(0.15) == 0


@pytest.mark.parametrize(("handler_s", "ahead"), [(0.001, 99), (0.01, 9), (0.03, 2), (0.11, 0), (0.2, 0), (1.0, 0)])
@pytest.mark.parametrize("begin", [0.0, 0.03, 0.07])
def test_as_many_wait_as_begin_within_a_tenth_of_a_second(handler_s: float, ahead: int, begin: float) -> None:
    """Whenever the member looks: others with the same handlers have no more."""
    rate, looks = HandledRate(), set()
    for number in range(int(6 / handler_s)):
        now = begin + number * handler_s
        if now > 2:
            looks |= {rate.mean(now), rate.mean(now + handler_s / 2)}
        rate.note(now + handler_s / 2)
    assert looks <= {ahead, ahead + 1} if ahead else looks == {0}


def test_the_mean_forgets() -> None:
    rate = HandledRate()
    for _ in range(80):
        rate.note(0.01)
    assert [rate.mean(now) for now in (0.09, 0.11, 0.21, 0.31, 0.61, 1e6)] == [0, 40, 20, 10, 1, 0]


async def test_a_pop_waits_for_room() -> None:
    inbox = PopInbox(ordered=False)

    async def grows(change: Callable[[], object]) -> None:
        waiting = asyncio.create_task(inbox.wait_for_room())
        await asyncio.sleep(0)
        change()
        async with asyncio.timeout(10):
            await waiting

    handlers = await asking(inbox, 0)
    await grows(lambda: handlers.append(asyncio.create_task(inbox.wait())))
    inbox.put([delivery(0, 0), delivery(0, 1)])
    await grows(inbox.claim)
    await grows(inbox.take_all)
    inbox.reserve(2)
    await grows(lambda: inbox.reserve(-2))
    await grows(inbox.close)
    await end(handlers)


async def test_a_close_ends_the_waits() -> None:
    inbox = PopInbox(ordered=False)
    waits = await asking(inbox, 2)
    inbox.close()
    assert await asyncio.gather(*waits) == [True, True]
    assert await inbox.wait()
    assert inbox.room(0.0) == 0


# ---- order ----


def test_one_message_of_a_queue_is_handled_at_a_time() -> None:
    inbox = PopInbox(ordered=True)
    inbox.put([delivery(0, 0), delivery(0, 1), delivery(1, 5)])
    first, other = inbox.claim(), inbox.claim()
    assert first is not None
    assert other is not None
    assert (other.message.queue_id, other.message.queue_offset) == (1, 5)
    assert inbox.claim() is None
    inbox.free(first)
    assert places(inbox) == [(0, 1)]


def test_a_message_that_is_tried_again_holds_its_queue() -> None:
    inbox = PopInbox(ordered=True)
    inbox.put([delivery(0, 0), delivery(0, 1)])
    first = inbox.claim()
    assert first is not None
    inbox.put_back(first)
    assert inbox.claim() is first
    assert inbox.claim() is None


def test_messages_behind_one_that_comes_again_leave_with_it() -> None:
    inbox = PopInbox(ordered=True)
    behind = [delivery(0, 1), delivery(0, 2)]
    inbox.put([delivery(0, 0), *behind, delivery(1, 0)])
    first = inbox.claim()
    assert first is not None
    assert inbox.take_behind(first) == behind
    assert inbox.take_behind(first) == []
    assert inbox.count == 1
    inbox.put([delivery(0, 0)])  # the broker gives the queue again
    assert places(inbox) == [(1, 0), (0, 0)]
    inbox.put([delivery(0, 1)])
    inbox.free(first)  # of before: it frees no message of now
    assert inbox.claim() is None


async def test_waiting_messages_of_one_queue_leave_room_for_other_queues() -> None:
    inbox = PopInbox(ordered=True)
    waits = await asking(inbox, 2)
    assert inbox.room(0.0) == 1
    inbox.put([delivery(0, offset) for offset in range(8)])
    await until(lambda: waits[0].done(), "one handler is awake")
    assert inbox.claim() is not None
    assert inbox.room(0.0) == 1
    inbox.put([delivery(1, 0), delivery(2, 0)])
    assert inbox.room(0.0) == 0
    for _ in range(12):
        inbox.note_end(0.05)
    assert places(inbox) == [(1, 0), (2, 0)]
    assert inbox.room(0.15) == 6
    await end(waits)


@pytest.mark.parametrize("ordered", [False, True])
def test_all_that_waits_can_be_taken(ordered: bool) -> None:
    inbox = PopInbox(ordered=ordered)
    waiting = [delivery(0, 0), delivery(0, 1), delivery(1, 0)]
    inbox.put(waiting)
    assert inbox.take_all() == waiting
    assert inbox.claim() is None
    assert (inbox.count, inbox.bytes_held) == (0, 0)
