"""Back-pressure: both bounds hold, places go round in order, nothing is lost when waiters are cancelled."""

import asyncio
import random

import pytest

from ringmq.client.producing.in_flight_limit import InFlightLimit, Permit


async def test_bounds_and_order() -> None:
    limit, served = InFlightLimit(2, 100), list[int]()

    async def work(number: int, size: int) -> Permit:
        permit = await limit.take(size)
        served.append(number)
        return permit

    first = limit.take_nowait(60)
    assert first is not None
    assert not limit.take_nowait(50), "over the bytes"
    waiting = [asyncio.create_task(work(n, 50)) for n in range(3)]
    await asyncio.sleep(0)
    assert not limit.take_nowait(1), "nobody overtakes those who wait"
    limit.give_back(first)
    limit.give_back(first)
    second, _ = await asyncio.gather(*waiting[:2])
    assert (served, limit.count, limit.bytes_held) == ([0, 1], 2, 100)
    limit.give_back(second)
    await waiting[2]
    assert served == [0, 1, 2]


def test_one_request_always_fits_into_an_empty_room() -> None:
    limit = InFlightLimit(5, 10)
    assert limit.take_nowait(1000)
    assert not limit.take_nowait(1)


async def test_cancelled_waiters_leave_nothing_behind() -> None:
    for seed in range(50):
        dice, limit, inside = random.Random(seed), InFlightLimit(3, 50), [0]

        async def work(limit: InFlightLimit, dice: random.Random, inside: list[int]) -> None:
            size = dice.randrange(30)
            permit = await limit.take(size)
            try:
                inside[0] += 1
                assert inside[0] <= 3
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside[0] -= 1
                limit.give_back(permit)

        tasks = [asyncio.create_task(work(limit, dice, inside)) for _ in range(40)]
        while not all(task.done() for task in tasks):
            dice.choice(tasks).cancel()
            await asyncio.sleep(0)
        await asyncio.wait_for(limit.wait_empty(), 60)
        assert (limit.count, limit.bytes_held) == (0, 0), seed
        assert limit.take_nowait(50), seed


async def test_wait_empty_waits_for_the_last() -> None:
    limit = InFlightLimit(5, 10)
    permit = limit.take_nowait(1)
    assert permit is not None
    waiter = asyncio.create_task(limit.wait_empty())
    await asyncio.sleep(0)
    assert not waiter.done()
    limit.give_back(permit)
    await asyncio.wait_for(waiter, 60)


def test_bounds_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        InFlightLimit(0, 1)
