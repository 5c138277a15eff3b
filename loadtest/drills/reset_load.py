"""The load of a group whose offsets an operator resets, beside a drill: back into what was given, or on to the end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import ClassVar

from ringmq.client import Producer, RingmqError, compose_message
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.pop_load import now_ms, settle
from ringmq.loadtest.drills.reads import TIMEOUT_MS, id_of, max_offset
from ringmq.loadtest.drills.reset_pops import Place, ResetChecker
from ringmq.loadtest.load.pops import Popper
from ringmq.remoting.admin_headers import ResetOffsetRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand

RESET_TOPIC, RESET_GROUP = "DrillResets", "drill_resets"
POLLS_MS = (0, 500, 2000)
"""A consumer for each: the time for which its pops wait."""
BATCH, POP_MAX = 4, 8
"""Messages of a send, and of a pop at most."""
INVISIBLE_MS, REVIVED_MS = 2000, 1000
PAUSE_S = 0.02
LEFT_OPEN = 5
"""Every so manieth message is left open at each pop from its queue."""
RESET_PAUSE_S = 0.7
BACK = (3, 12, 0, 40)
"""In turn: a reset to so many messages before the end of the queue, or to the end."""
UNDER_WAY_S = 9.0
"""A reset without an answer changes nothing so long behind its request: it has 4 s to reach a control that starts
(`RMQ_ASK_TIMEOUT_MS`), and control has 4 s for it (`ringmq.broker.holders.TIMEOUT_NS`)."""
UNSURE = ResponseCode.SYSTEM_BUSY
"""Control has no time left for the reset, or has died: its asks may be under way."""


class ResetLoad:
    """Sends to one topic, a group that pops it, and an operator."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._checker = ResetChecker()
        self._queues: set[int] = set()
        self._has_popped = False

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A producer, some consumers and the operator."""
        consumers = (self._consume(client, poll_ms) for poll_ms in POLLS_MS)
        return [self._produce(producer), *consumers, self._reset_queues(client)]

    @property
    def counts(self) -> Mapping[str, int]:
        """Resets, and messages that came again by them."""
        return {"resets": self._checker.reset_count, "begun anew": self._checker.again_count}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Pop and acknowledge until nothing has to come, or nothing was settled for a while. Then look on."""
        popper, look_on_s = self._popper(client), (INVISIBLE_MS + REVIVED_MS) / 1000
        await settle(self._checker, lambda: self._turn_or_rest(popper), self._course.timeout_s, look_on_s)
        return self._checker.verdict()

    def _popper(self, client: RemotingClient) -> Popper:
        return Popper(client, self._course.address, BROKER, RESET_TOPIC, RESET_GROUP, timeout_ms=TIMEOUT_MS)

    async def _produce(self, producer: Producer) -> None:
        for first in itertools.count(0, BATCH):
            if not self._course.is_running():
                return
            names, began = [f"{number}" for number in range(first, first + BATCH)], self._checker.begins()
            try:
                sent = await producer.send_batch([compose_message(RESET_TOPIC, name.encode()) for name in names])
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._queues.add(sent.queue.queue_id)
            for number, name in enumerate(names):
                self._checker.sent(began, name, Place(sent.queue.queue_id, sent.queue_offset + number))
            await asyncio.sleep(PAUSE_S)  # poll

    async def _reset_queues(self, client: RemotingClient) -> None:
        """Repeat each reset until it is answered 0. Dispatch may be behind the sends, and a reset beyond what is
        readable goes to the end of that: the broker knows the end, not the producer."""
        for number in itertools.count():
            await asyncio.sleep(RESET_PAUSE_S)  # poll
            if not self._course.is_running():
                return
            if not self._has_popped:  # there may be no group yet
                continue
            queue_id = sorted(self._queues)[number % len(self._queues)]
            try:
                end = await max_offset(client, self._course.address(), queue_id, RESET_TOPIC)
            except (RingmqError, OSError):
                continue
            offset = max(end - BACK[number % len(BACK)], 0)
            while not await self._reset(client, queue_id, offset):
                await asyncio.sleep(PAUSE_S)  # poll
                if not self._course.is_running():
                    return

    async def _reset(self, client: RemotingClient, queue_id: int, offset: int) -> bool:
        """Ask once. True if the answer was 0."""
        address = self._course.address()
        try:
            await client.connection(address)
        except (RingmqError, OSError):
            return False  # no request has left
        number = self._checker.asks_reset(queue_id, offset)
        header = ResetOffsetRequestHeader(
            topic=RESET_TOPIC, group=RESET_GROUP, timestamp=0, is_force=True, queue_id=queue_id, offset=offset
        )
        request = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header.encode())
        try:
            code = (await client.invoke(address, request, timeout_ms=2 * TIMEOUT_MS)).code
        except (RingmqError, OSError):
            code = UNSURE
        if code == ResponseCode.SUCCESS:
            self._checker.was_reset(number)
        elif code == UNSURE:
            asyncio.get_running_loop().call_later(UNDER_WAY_S, self._checker.gives_up_reset, number)
        else:
            self._checker.gives_up_reset(number)
        return code == ResponseCode.SUCCESS

    async def _consume(self, client: RemotingClient, poll_ms: int) -> None:
        popper = self._popper(client)
        while self._course.is_running():
            await self._turn_or_rest(popper, poll_ms)

    async def _turn_or_rest(self, popper: Popper, poll_ms: int = 0) -> None:
        if not await self._turn(popper, poll_ms):
            await asyncio.sleep(PAUSE_S)  # poll

    async def _turn(self, popper: Popper, poll_ms: int) -> int:
        """Pop once, and acknowledge most of what came. Returns how much did."""
        began = self._checker.begins()
        try:
            found = await popper.pop(POP_MAX, INVISIBLE_MS, poll_ms)
        except (RingmqError, OSError):
            return 0
        self._has_popped |= bool(found)
        numbered = []
        for one in found:
            name, receipt = id_of(one.message), one.receipt
            is_copy = receipt.flag != "0"
            number = self._checker.popped(began, name, receipt.pop_time_ms, receipt.due_ms, is_copy=is_copy)
            numbered.append((name, number, one))
        for name, number, one in numbered:
            if int(name) % LEFT_OPEN == 0 and one.receipt.flag == "0":
                continue
            self._checker.asks_ack(name, number)
            try:
                is_done = await popper.ack(one.receipt)
            except (RingmqError, OSError):
                continue
            if is_done:
                self._checker.acknowledged(name, number, now_ms())
        return len(found)
