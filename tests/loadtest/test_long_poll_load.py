"""The load of long polls beside a drill, against a broker in memory that wakes polls or forgets one."""

import asyncio
import itertools
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.client.errors import ConnectError
from ringmq.loadtest.drills import long_poll_load, wakes
from ringmq.loadtest.drills.load import Course
from ringmq.loadtest.drills.long_poll_load import LongPollLoad
from ringmq.loadtest.load.pops import Popped, Receipt
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import MessageExt

MESSAGES, FORGOTTEN = 24, b"9"


class BrokerInMemory:
    """Stands for producer and client. `forgets`: a message wakes no poll."""

    heard = True

    def __init__(self, *, forgets: bool) -> None:
        self.forgets = forgets
        self.left: dict[str, list[bytes]] = {topic: [] for topic in long_poll_load.TOPICS}
        self.woken = {topic: asyncio.Event() for topic in self.left}
        self.sent = 0
        self._polls = itertools.count(1)

    async def connection(self, address: str) -> object:
        return self

    async def send(self, message: Any) -> None:
        await asyncio.sleep(0)
        self.sent += 1
        self.left[message.topic].append(bytes(message.body))
        if not self.forgets or message.body != FORGOTTEN:
            self.woken[message.topic].set()

    def popper(self, client: object, address: object, broker: str, topic: str, *more: object, **options: object) -> Any:
        async def ask(count: int, invisible_ms: int, poll_ms: int) -> tuple[int, list[Popped]]:
            if next(self._polls) == 5:
                raise ConnectError("b", "planted", sent=True)
            if not self.left[topic]:
                self.woken[topic].clear()
                try:
                    async with asyncio.timeout(poll_ms / 1000):
                        await self.woken[topic].wait()
                except TimeoutError:
                    return ResponseCode.POLLING_TIMEOUT, []
            if not self.left[topic]:
                return ResponseCode.POLLING_TIMEOUT, []
            receipt = Receipt(0, time.time_ns() // 1_000_000, invisible_ms, 0, "0", "b", 0, 0)
            return ResponseCode.SUCCESS, [Popped(MessageExt(topic, self.left[topic].pop(0)), receipt)]

        async def ack(receipt: Receipt) -> bool:
            return True

        return SimpleNamespace(topic=topic, ask=ask, ack=ack)


@pytest.mark.parametrize("forgets", [False, True])
def test_a_wake_up_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch, forgets: bool) -> None:
    for name, value in {"POLL_MS": 5000, "SHORT_POLL_MS": 2, "SEND_PAUSE_S": 0.03, "PAUSE_S": 0.002}.items():
        monkeypatch.setattr(long_poll_load, name, value)
    monkeypatch.setattr(wakes, "LATE_MS", 120)

    async def drill() -> tuple[LongPollLoad, set[str]]:
        broker = BrokerInMemory(forgets=forgets)
        monkeypatch.setattr(long_poll_load, "Popper", broker.popper)
        load = LongPollLoad(Course("", str, lambda: broker.sent < MESSAGES, timeout_s=1.0))
        await asyncio.gather(*load.tasks(cast(Any, broker), cast(Any, broker)))
        return load, {violation.kind for violation in await load.verdict(cast(Any, broker))}

    load, found = asyncio.run(drill())
    assert found == ({"late look"} if forgets else set())
    assert load.counts["sent to long polls"] >= MESSAGES
    assert load.counts["witnessed"] > MESSAGES // 2
