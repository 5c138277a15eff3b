"""Back-pressure: both bounds hold, places go round in order, nothing is lost when waiters are cancelled."""

import asyncio
import random

import pytest

from ringmq.client.producing.room import Place, Room


async def test_bounds_and_order() -> None:
    room, served = Room(2, 100), list[int]()

    async def work(number: int, size: int) -> Place:
        place = await room.take(size)
        served.append(number)
        return place

    first = room.take_nowait(60)
    assert first is not None
    assert not room.take_nowait(50), "over the bytes"
    waiting = [asyncio.create_task(work(n, 50)) for n in range(3)]
    await asyncio.sleep(0)
    assert not room.take_nowait(1), "nobody overtakes those who wait"
    room.give_back(first)
    room.give_back(first)
    second, _ = await asyncio.gather(*waiting[:2])
    assert (served, room.count, room.bytes_held) == ([0, 1], 2, 100)
    room.give_back(second)
    await waiting[2]
    assert served == [0, 1, 2]


def test_one_request_always_fits_into_an_empty_room() -> None:
    room = Room(5, 10)
    assert room.take_nowait(1000)
    assert not room.take_nowait(1)


async def test_cancelled_waiters_leave_nothing_behind() -> None:
    for seed in range(50):
        dice, room, inside = random.Random(seed), Room(3, 50), [0]

        async def work(room: Room, dice: random.Random, inside: list[int]) -> None:
            size = dice.randrange(30)
            place = await room.take(size)
            try:
                inside[0] += 1
                assert inside[0] <= 3
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside[0] -= 1
                room.give_back(place)

        tasks = [asyncio.create_task(work(room, dice, inside)) for _ in range(40)]
        while not all(task.done() for task in tasks):
            dice.choice(tasks).cancel()
            await asyncio.sleep(0)
        await asyncio.wait_for(room.wait_empty(), 5)
        assert (room.count, room.bytes_held) == (0, 0), seed
        assert room.take_nowait(50), seed


async def test_wait_empty_waits_for_the_last() -> None:
    room = Room(5, 10)
    place = room.take_nowait(1)
    assert place is not None
    waiter = asyncio.create_task(room.wait_empty())
    await asyncio.sleep(0)
    assert not waiter.done()
    room.give_back(place)
    await asyncio.wait_for(waiter, 5)


def test_bounds_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Room(0, 1)
