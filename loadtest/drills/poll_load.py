"""The load of polls beside a drill: more consumers that wait than messages, so that polls wait at every fault."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import ClassVar

from ringmq.client import Producer, RequestTimeoutError, RingmqError, compose_message
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.polls import UNANSWERED_MS, PollChecker
from ringmq.loadtest.drills.pop_load import now_ms, settle
from ringmq.loadtest.drills.pops import PopChecker
from ringmq.loadtest.drills.reads import id_of
from ringmq.loadtest.load.pops import Popper
from ringmq.remoting.codes import ResponseCode

POLL_TOPIC, POLL_GROUP = "DrillPolls", "drill_polls"
POLLS_MS = (200, 400, 700, 700, 1000, 1000, 1500, 1500, 2500, 2500, 4000, 6000)
"""A consumer for each: the time for which its polls wait."""
POP_MAX = 2
INVISIBLE_MS, REVIVED_MS = 3000, 1000
SEND_PAUSES_S = (0.0, 0.3, 0.05, 0.6)
"""In turn between two sends: messages come alone and together, and less often than polls end."""
FAILURES_A_FAULT = 2
"""Of one consumer: its poll ends with the fault, and its next one may begin before the fault is over."""
PAUSE_S = 0.02
LEFT_OPEN = 4
"""Every so manieth message is left open at its first pop, and comes again to polls that wait."""


class PollLoad:
    """Sends to one topic now and then, and a group whose members wait for the messages."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._pops, self._polls = PopChecker(), PollChecker()
        course.reads.append(lambda message: self._polls.read(message.born_timestamp_ms, now_ms()))
        self._has_topic = False

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A producer and the consumers."""
        return [self._produce(producer), *(self._consume(client, poll_ms) for poll_ms in POLLS_MS)]

    @property
    def counts(self) -> Mapping[str, int]:
        """Messages that polls gave, and what became of the polls."""
        return {"polled": self._pops.popped_count, **self._polls.counts}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Ask for polls that wait for no client. Then pop what is left, and judge."""
        poll_ms, look_on_s = POLLS_MS[0], (INVISIBLE_MS + REVIVED_MS) / 1000
        popper = self._popper(client, poll_ms)
        self._polls.left(await self._polls_left(popper))
        self._polls.may_fail(len(POLLS_MS) * (1 + FAILURES_A_FAULT * self._course.faults))
        await settle(self._pops, lambda: self._turn_or_rest(client, popper, poll_ms), self._course.timeout_s, look_on_s)
        return [*self._pops.verdict(), *self._polls.verdict()]

    def _popper(self, client: RemotingClient, poll_ms: int) -> Popper:
        timeout_ms = poll_ms + UNANSWERED_MS
        return Popper(client, self._course.address, BROKER, POLL_TOPIC, POLL_GROUP, timeout_ms=timeout_ms)

    async def _polls_left(self, popper: Popper) -> int:
        """The number of polls that the broker counts, once it has noticed that connections have ended."""
        deadline, left = time.monotonic() + self._course.timeout_s, -1
        while left and time.monotonic() < deadline:
            try:
                waiting = await popper.waiting()
            except (RingmqError, OSError):
                waiting = None
            left = left if waiting is None else waiting
            await asyncio.sleep(PAUSE_S)  # poll
        return left

    async def _produce(self, producer: Producer) -> None:
        for number in itertools.count(1):
            if not self._course.is_running():
                return
            try:
                await producer.send(compose_message(POLL_TOPIC, f"{number}".encode()))
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._has_topic = True
            self._pops.sent(f"{number}")
            self._polls.sent(f"{number}", now_ms())
            await asyncio.sleep(SEND_PAUSES_S[number % len(SEND_PAUSES_S)])

    async def _consume(self, client: RemotingClient, poll_ms: int) -> None:
        popper = self._popper(client, poll_ms)
        while self._course.is_running():
            await self._turn_or_rest(client, popper, poll_ms)

    async def _turn_or_rest(self, client: RemotingClient, popper: Popper, poll_ms: int) -> None:
        if not await self._turn(client, popper, poll_ms):
            await asyncio.sleep(PAUSE_S)  # poll

    async def _turn(self, client: RemotingClient, popper: Popper, poll_ms: int) -> bool:
        """Poll once, and deal with what came. True if the poll had an answer that refuses nothing."""
        try:
            connection = await client.connection(self._course.address())
        except (RingmqError, OSError):
            return False
        if (
            not self._has_topic or not connection.heard
        ):  # by other loads: a read worker that is not there yet finds the time of a poll over
            return False
        began = self._pops.begins()
        poll = self._polls.begins(now_ms(), poll_ms, id(connection))
        try:
            code, found = await popper.ask(POP_MAX, INVISIBLE_MS, poll_ms)
        except RequestTimeoutError:
            self._polls.unanswered(poll)
            return False
        except (RingmqError, OSError):
            self._polls.cut_off(poll)
            return False
        self._polls.answered(poll)
        if code == ResponseCode.POLLING_TIMEOUT:
            self._polls.ended(poll, now_ms())
        elif code != ResponseCode.SUCCESS:
            self._polls.refused()
            return False
        numbered = []
        for one in found:
            name, receipt = id_of(one.message), one.receipt
            times = one.message.reconsume_times
            self._polls.given(name, receipt.pop_time_ms, times)
            numbered.append((name, self._pops.popped(began, name, receipt.pop_time_ms, receipt.due_ms, times), one))
        for name, number, one in numbered:
            if int(name) % LEFT_OPEN or one.message.reconsume_times:
                self._pops.asks_ack(name, number)
                try:
                    is_done = await popper.ack(one.receipt)
                except (RingmqError, OSError):
                    continue
                if is_done:
                    self._pops.acknowledged(name, number, now_ms())
        return True
