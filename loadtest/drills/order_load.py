"""The load of orderly groups beside a drill: consumers that repeat attempts, and leave parts of their batches open."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import ClassVar

from ringmq.client import Producer, RingmqError, compose_message
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.order_pops import OrderChecker
from ringmq.loadtest.drills.pop_load import now_ms, settle
from ringmq.loadtest.drills.reads import TIMEOUT_MS
from ringmq.loadtest.load.pops import Popped, Popper

ORDER_TOPIC, ORDER_GROUP = "DrillOrderlyPops", "drill_orderly_pops"
POLLS_MS = (0, 300, 1000)
"""A consumer for each: the time for which its pops wait. The first one names no attempt."""
BATCH, POP_MAX = 4, 8
"""Messages of a send, and of a pop at most."""
INVISIBLE_MS, LONGER_MS = 2000, 3000
PAUSE_S = 0.02
WAYS = 8
"""Number of a batch % WAYS tells what becomes of it."""
LEFT_OPEN, LAST_LEFT, BACKWARDS, LENGTHENED, TOGETHER = range(5)
"""Others are acknowledged one by one, in their order."""


class OrderLoad:
    """Sends to one topic, and a group that pops it in order."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._checker = OrderChecker()
        self._numbers = itertools.count(1)

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A producer and some consumers."""
        return [self._produce(producer), *(self._consume(client, poll_ms) for poll_ms in POLLS_MS)]

    @property
    def counts(self) -> Mapping[str, int]:
        """Batches that pops gave, and those of repeated attempts."""
        return {"orderly batches": self._checker.batch_count, "of repeated attempts": self._checker.repeated_count}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Pop and acknowledge until no message is open, or none was settled for a while. Then look on."""
        popper = self._popper(client)

        async def turn() -> None:
            if not await self._turn(popper, 0, "", is_first=True):
                await asyncio.sleep(PAUSE_S)  # poll

        await settle(self._checker, turn, self._course.timeout_s, LONGER_MS / 1000)
        return self._checker.verdict()

    def _popper(self, client: RemotingClient) -> Popper:
        return Popper(client, self._course.address, BROKER, ORDER_TOPIC, ORDER_GROUP, timeout_ms=TIMEOUT_MS)

    async def _produce(self, producer: Producer) -> None:
        while self._course.is_running():
            try:
                sent = await producer.send_batch([compose_message(ORDER_TOPIC, b"%d" % each) for each in range(BATCH)])
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            for each in range(BATCH):
                self._checker.sent(sent.queue.queue_id, sent.queue_offset + each)
            await asyncio.sleep(PAUSE_S)  # poll

    async def _consume(self, client: RemotingClient, poll_ms: int) -> None:
        """Repeat each attempt until it is answered."""
        popper = self._popper(client)
        for number in itertools.count(1):
            attempt, is_first = f"{poll_ms} {number}" if poll_ms else "", True
            while self._course.is_running() and not await self._turn(popper, poll_ms, attempt, is_first=is_first):
                is_first = not attempt
                await asyncio.sleep(PAUSE_S)  # poll
            if not self._course.is_running():
                return

    async def _turn(self, popper: Popper, poll_ms: int, attempt: str, *, is_first: bool) -> bool:
        """Pop once, and deal with what came. False: no answer came, or no message."""
        began = self._checker.begins()
        try:
            _, found = await popper.ask(POP_MAX, INVISIBLE_MS, poll_ms, attempt)
        except (RingmqError, OSError):
            return False
        by_queue: dict[int, list[Popped]] = {}
        for one in found:
            by_queue.setdefault(one.receipt.queue_id, []).append(one)
        batches = []
        for queue_id, batch in by_queue.items():
            due_ms = {one.receipt.offset: one.receipt.due_ms for one in batch}
            time_ms = batch[0].receipt.pop_time_ms
            number = self._checker.popped(began, queue_id, due_ms, time_ms, attempt, is_sure=is_first)
            batches.append((number, batch))
        for number, batch in batches:
            await self._work_on(popper, number, batch)
        return bool(found)

    async def _work_on(self, popper: Popper, number: int, batch: list[Popped]) -> None:
        way = next(self._numbers) % WAYS if self._course.is_running() else WAYS
        if way == LENGTHENED:
            await self._change(popper, number, batch[0])
        if way == LEFT_OPEN:
            return
        if way == LAST_LEFT:
            batch = batch[:-1]
        if way == TOGETHER:
            await self._acknowledge(popper, number, batch)
            return
        for one in reversed(batch) if way == BACKWARDS else batch:
            await self._acknowledge(popper, number, [one])

    async def _acknowledge(self, popper: Popper, number: int, batch: list[Popped]) -> None:
        queue_id, offsets = batch[0].receipt.queue_id, [one.receipt.offset for one in batch]
        self._checker.asks_acks(queue_id, number, offsets)
        receipts = [one.receipt for one in batch]
        try:
            is_done = await (popper.ack(receipts[0]) if len(receipts) == 1 else popper.ack_all(receipts))
        except (RingmqError, OSError):
            return
        if is_done:
            self._checker.acknowledged(queue_id, number, offsets, now_ms())

    async def _change(self, popper: Popper, number: int, one: Popped) -> None:
        queue_id, offset = one.receipt.queue_id, one.receipt.offset
        self._checker.asks_change(queue_id, number, offset, now_ms(), LONGER_MS)
        try:
            receipt = await popper.change(one.receipt, LONGER_MS)
        except (RingmqError, OSError):
            return
        if receipt is not None and receipt.pop_time_ms:
            self._checker.changed(queue_id, number, offset, now_ms(), receipt.due_ms)
