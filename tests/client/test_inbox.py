"""The inbox: turns, bounds, pauses, and one message of a queue at a time."""

import asyncio

from ringmq.client.consuming.inbox import Inbox, ProcessQueue
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue


def new_inbox(*, exclusive: bool = False, count_max: int = 100, bytes_max: int = 1000) -> Inbox:
    return Inbox(exclusive=exclusive, count_max=count_max, bytes_max=bytes_max)


def new_queue(queue_id: int = 0, taken: list[int] | None = None) -> ProcessQueue:
    log = [] if taken is None else taken
    return ProcessQueue(MessageQueue("T", "a", queue_id), lambda: log.append(queue_id))


def stored(*offsets: int, body: bytes = b"x") -> list[MessageExt]:
    return [MessageExt("T", body, queue_offset=offset) for offset in offsets]


def take(inbox: Inbox, count_max: int) -> list[int]:
    taken = inbox.take_nowait(count_max)
    return [] if taken is None else [message.queue_offset for message in taken[1]]


def test_shelves_are_served_in_turn_and_counted() -> None:
    taken: list[int] = []
    inbox, one, two = new_inbox(), new_queue(1, taken), new_queue(2, taken)
    inbox.put(one, stored(0, 1, 2, body=b"aa"))
    inbox.put(two, stored(9))
    inbox.put(one, stored(3, body=b"aa"))
    assert (one.count, one.bytes_held, inbox.count, inbox.bytes_held) == (4, 8, 5, 9)
    found = [take(inbox, 2) for _ in range(4)]
    assert found == [[0, 1], [2, 3], [9], []]
    assert (one.count, one.bytes_held, inbox.count, inbox.bytes_held, taken) == (0, 0, 0, 0, [1, 1, 2])


def test_a_busy_shelf_keeps_nobody_from_a_turn() -> None:
    inbox, one, two = new_inbox(), new_queue(1), new_queue(2)
    for offset in range(6):
        inbox.put(one, stored(offset))
        if offset == 1:
            inbox.put(two, stored(9))
    assert [take(inbox, 2) for _ in range(5)] == [[0, 1], [2, 3], [9], [4, 5], []]


def test_a_discarded_shelf_is_forgotten_and_what_was_given_out_is_stale() -> None:
    inbox, one, two = new_inbox(), new_queue(1), new_queue(2)
    inbox.put(one, stored(0, 1))
    inbox.put(two, stored(5))
    delivery = inbox.claim()
    assert delivery is not None
    assert not delivery.stale
    inbox.discard(one)
    assert delivery.stale
    inbox.put_back(delivery)
    assert take(inbox, 9) == [5]
    assert inbox.count == inbox.bytes_held == 0


def test_a_cleared_shelf_keeps_what_was_given_out() -> None:
    inbox, process_queue = new_inbox(), new_queue()
    inbox.put(process_queue, stored(0, 1))
    delivery = inbox.claim()
    inbox.clear(process_queue)
    assert delivery is not None
    assert not delivery.stale
    assert inbox.claim() is None


def test_an_exclusive_inbox_gives_one_message_of_a_shelf_at_a_time() -> None:
    inbox, one, two = new_inbox(exclusive=True), new_queue(1), new_queue(2)
    inbox.put(one, stored(0, 1))
    inbox.put(two, stored(7))
    inbox.put(one, stored(2))
    first, second = inbox.claim(), inbox.claim()
    assert first is not None
    assert second is not None
    assert (first.message.queue_offset, second.message.queue_offset) == (0, 7)
    assert inbox.claim() is None, "both queues have a message under way"
    inbox.put_back(first)
    again = inbox.claim()
    assert again is not None
    assert again.message.queue_offset == 0, "the failed message comes before the next"
    inbox.release(again)
    following = [inbox.claim()]
    assert following[0] is not None
    assert following[0].message.queue_offset == 1
    inbox.release(following[0])
    assert take(inbox, 9) == [2]


def test_what_follows_a_discard_waits_for_the_handler_at_work() -> None:
    inbox, process_queue = new_inbox(exclusive=True), new_queue()
    inbox.put(process_queue, stored(5))
    first = inbox.claim()
    assert first is not None
    inbox.discard(process_queue)
    inbox.put(process_queue, stored(0, 1))
    assert inbox.claim() is None, "the handler of offset 5 runs"
    inbox.returned(first)
    inbox.release(first)
    second = inbox.claim()
    assert second is not None
    assert second.message.queue_offset == 0
    inbox.returned(second)
    inbox.discard(process_queue)  # while the message waits to be tried again
    inbox.put(process_queue, stored(7))
    third = inbox.claim()
    assert third is not None
    assert third.message.queue_offset == 7


def test_a_paused_shelf_gives_nothing_and_keeps_its_order() -> None:
    for exclusive in (False, True):
        inbox, one, two = new_inbox(exclusive=exclusive), new_queue(1), new_queue(2)
        inbox.put(one, stored(0, 1))
        inbox.pause(one)
        inbox.put(one, stored(2))
        inbox.put(two, stored(8))
        assert take(inbox, 9) == [8]
        assert inbox.claim() is None
        inbox.resume(one)
        inbox.resume(one)
        assert take(inbox, 9) == [0, 1, 2]


def test_readers_that_found_it_full_are_told_of_room() -> None:
    taken: list[int] = []
    inbox, one, two = new_inbox(count_max=3), new_queue(1, taken), new_queue(2, taken)
    inbox.put(one, stored(0, 1, 2, 3))
    assert inbox.full
    inbox.notify_space(two)
    inbox.notify_space(two)
    inbox.take_nowait(1)
    assert taken == [1], "three are over the bound still"
    inbox.take_nowait(1)
    assert taken == [1, 1, 2]
    assert not new_inbox(bytes_max=10).full
    heavy = new_inbox(bytes_max=10)
    heavy.put(one, stored(0, body=b"x" * 10))
    assert heavy.full


def test_what_paused_shelves_hold_keeps_no_other_from_being_read() -> None:
    taken: list[int] = []
    inbox, one, two = new_inbox(count_max=3), new_queue(1, taken), new_queue(2, taken)
    inbox.put(one, stored(0, 1, 2))
    inbox.notify_space(two)
    inbox.pause(one)
    inbox.pause(one)
    assert not inbox.full
    assert taken == [2]
    inbox.put(one, stored(3))  # its pull was under way
    inbox.put(two, stored(8, 9))
    assert not inbox.full
    assert inbox.count == 6, "held it is all the same"
    inbox.resume(one)
    assert inbox.full
    inbox.pause(one)
    inbox.clear(one)
    inbox.resume(one)
    assert not inbox.full
    inbox.put(two, stored(10))
    assert inbox.full
    heavy, process_queue = new_inbox(bytes_max=10), new_queue()
    heavy.put(process_queue, stored(0, body=b"x" * 10))
    heavy.pause(process_queue)
    assert not heavy.full
    heavy.resume(process_queue)
    assert heavy.full


async def test_waiters_are_woken_by_the_number_of_messages_and_by_the_close() -> None:
    inbox, process_queue = new_inbox(), new_queue()
    waiters = [asyncio.create_task(inbox.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    inbox.put(process_queue, stored(0, 1))
    await asyncio.wait(waiters, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    assert [waiter.done() for waiter in waiters] == [True, True, False]
    inbox.take_nowait(2)
    inbox.close()
    assert await asyncio.wait_for(waiters[2], 60)


async def test_a_waiter_that_gives_up_hands_its_wake_on() -> None:
    signal = Signal()
    first, second = asyncio.create_task(signal.wait()), asyncio.create_task(signal.wait(60))
    await asyncio.sleep(0)
    signal.wake(1)
    first.cancel()
    assert await asyncio.wait_for(second, 60)
    assert first.cancelled() or first.done()
    assert not await signal.wait(0.001)
