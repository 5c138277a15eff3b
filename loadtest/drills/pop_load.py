"""The load of POP beside a drill: consumers that acknowledge one by one, together, after a change, or not at all."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import ClassVar, Protocol

from ringmq.client import Producer, RingmqError, compose_message
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.pops import PopChecker
from ringmq.loadtest.drills.reads import TIMEOUT_MS, id_of
from ringmq.loadtest.load.pops import Popped, Popper

POP_TOPIC, POP_GROUP = "DrillPops", "drill_pops"
POLLS_MS = (0, 300, 2000)
"""A consumer for each: the time for which its pops wait. The shorter ones are often over without a message."""
POP_MAX = 8
INVISIBLE_MS, SHORTER_MS, LONGER_MS = 3000, 1000, 6000
"""Restarts of a broker take longer at times. What is acknowledged after them is late, and not judged."""
REVIVED_MS = 1000
"""From the end of an invisible time until a pop finds the message, at most."""
PAUSE_S = 0.02
WAYS = 8
"""Number % WAYS tells what becomes of a message's first pop."""
LEFT_OPEN, SHORTENED, LENGTHENED = range(3)
"""Others are acknowledged: even ones alone, odd ones together. So are all that came back."""


def now_ms() -> int:
    """The time of the wall clock, which the broker has too."""
    return time.time_ns() // 1_000_000


class Settling(Protocol):
    """A record of pops, which says when nothing is open."""

    @property
    def has_all(self) -> bool: ...
    @property
    def settled_count(self) -> int: ...


async def settle(checker: Settling, turn: Callable[[], Awaitable[None]], timeout_s: float, look_on_s: float) -> None:
    """Take turns until no message is open, or none was settled for `timeout_s`. Then look on.

    An acknowledged message that comes back comes within `look_on_s`.
    """
    settled, deadline = -1, 0.0
    while not checker.has_all:
        if checker.settled_count > settled:
            settled, deadline = checker.settled_count, time.monotonic() + timeout_s
        if time.monotonic() > deadline:
            break
        await turn()
    until = time.monotonic() + look_on_s
    while time.monotonic() < until:
        await turn()


class PopLoad:
    """Sends to one topic, and a group that pops it."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._checker = PopChecker()

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A producer and some consumers."""
        return [self._produce(producer), *(self._consume(client, poll_ms) for poll_ms in POLLS_MS)]

    @property
    def counts(self) -> Mapping[str, int]:
        """Messages that pops gave, and answered acknowledgements."""
        return {"popped": self._checker.popped_count, "pops acknowledged": self._checker.acknowledged_count}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Pop and acknowledge until no message is open, or none was settled for a while. Then look on."""
        popper = self._popper(client)
        look_on_s = (LONGER_MS + REVIVED_MS) / 1000
        await settle(self._checker, lambda: self._turn_or_rest(popper), self._course.timeout_s, look_on_s)
        return self._checker.verdict()

    def _popper(self, client: RemotingClient) -> Popper:
        return Popper(client, self._course.address, BROKER, POP_TOPIC, POP_GROUP, timeout_ms=TIMEOUT_MS)

    async def _produce(self, producer: Producer) -> None:
        for number in self._numbers():
            body = f"{number}".encode() + b"." * (number * 43 % 300)
            try:
                await producer.send(compose_message(POP_TOPIC, body, keys=f"{number}"))
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._checker.sent(f"{number}")
            await asyncio.sleep(PAUSE_S / 2)  # poll

    def _numbers(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: self._course.is_running(), itertools.count(1))

    async def _consume(self, client: RemotingClient, poll_ms: int) -> None:
        popper = self._popper(client)
        while self._course.is_running():
            await self._turn_or_rest(popper, poll_ms)

    async def _turn_or_rest(self, popper: Popper, poll_ms: int = 0) -> None:
        if not await self._turn(popper, poll_ms):
            await asyncio.sleep(PAUSE_S)  # poll

    async def _turn(self, popper: Popper, poll_ms: int) -> int:
        """Pop once, and deal with what came. Returns how many messages did."""
        began = self._checker.begins()
        try:
            found = await popper.pop(POP_MAX, INVISIBLE_MS, poll_ms)
        except (RingmqError, OSError):
            return 0
        numbered = []
        for one in found:
            name, receipt = id_of(one.message), one.receipt
            times = one.message.reconsume_times
            number = self._checker.popped(began, name, receipt.pop_time_ms, receipt.due_ms, times)
            numbered.append((name, number, one))
        together = []
        for name, number, one in numbered:
            way = int(name) % WAYS if one.message.reconsume_times == 0 else WAYS
            if way in (SHORTENED, LENGTHENED):
                await self._change(popper, name, number, one, is_longer=way == LENGTHENED)
            elif way != LEFT_OPEN and way % 2:
                together.append((name, number, one))
            elif way != LEFT_OPEN:
                await self._acknowledge(popper, [(name, number, one)])
        if together:
            await self._acknowledge(popper, together, is_batch=True)
        return len(found)

    async def _acknowledge(
        self, popper: Popper, popped: list[tuple[str, int, Popped]], *, is_batch: bool = False
    ) -> None:
        for name, number, _ in popped:
            self._checker.asks_ack(name, number)
        receipts = [one.receipt for _, _, one in popped]
        try:
            is_done = await (popper.ack_all(receipts) if is_batch else popper.ack(receipts[0]))
        except (RingmqError, OSError):
            return
        for name, number, _ in popped if is_done else []:
            self._checker.acknowledged(name, number, now_ms())

    async def _change(self, popper: Popper, name: str, number: int, one: Popped, *, is_longer: bool) -> None:
        """Shorten the invisible time and leave the message open, or lengthen it and acknowledge by the new receipt."""
        millis = LONGER_MS if is_longer else SHORTER_MS
        replaced_ms = self._checker.asks_change(name, number, now_ms(), millis)
        try:
            receipt = await popper.change(one.receipt, millis)
        except (RingmqError, OSError):
            return
        if receipt is None:
            return
        self._checker.changed(name, number, now_ms(), replaced_ms, receipt.due_ms)
        if is_longer:
            await self._acknowledge(popper, [(name, number, Popped(one.message, receipt))])
