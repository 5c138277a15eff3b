"""The load of polls beside a drill, against a broker in memory that keeps its promises or breaks one of them."""

import asyncio
import itertools
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.client import RequestTimeoutError
from ringmq.client.errors import ConnectError
from ringmq.loadtest.drills import poll_load
from ringmq.loadtest.drills.load import Course
from ringmq.loadtest.drills.poll_load import PollLoad
from ringmq.loadtest.load.pops import Popped, Receipt
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import MessageExt

MESSAGES = 24


class BrokerInMemory:
    """Stands for producer, client and poppers. `fault`: the promise that it breaks."""

    heard = True

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.bodies: list[bytes] = []
        self.acknowledged: set[int] = set()
        self._given: dict[int, int] = {}
        self._polls = itertools.count(1)

    async def connection(self, address: str) -> object:
        return self

    async def send(self, message: Any) -> None:
        await asyncio.sleep(0)
        self.bodies.append(bytes(message.body))

    def popper(self, *given: object, **options: object) -> "BrokerInMemory":
        return self

    async def waiting(self) -> int:
        return 3 if self.fault == "left poll" else 0

    def _next(self) -> int | None:
        now_ms = time.time_ns() // 1_000_000
        for offset in range(len(self.bodies)):
            if offset not in self.acknowledged and self._given.get(offset, 0) <= now_ms:
                return offset
        return None

    async def ask(self, count: int, invisible_ms: int, poll_ms: int) -> tuple[int, list[Popped]]:
        number = next(self._polls)
        if number == 5:
            raise ConnectError("b", "planted", sent=True)
        if number == 6 and self.fault == "unanswered poll":
            raise RequestTimeoutError("b", 1)
        if number == 7:
            return ResponseCode.SYSTEM_BUSY, []
        until = time.monotonic() + poll_ms / (1000 if self.fault != "early end" else 4000)
        while time.monotonic() < until:
            if (offset := self._next()) is not None:
                at_ms, times = time.time_ns() // 1_000_000, int(offset in self._given)
                self._given[offset] = at_ms + invisible_ms
                message = MessageExt("T", self.bodies[offset], reconsume_times=times)
                receipt = Receipt(offset, at_ms, invisible_ms, 0, "0", "b", 0, offset)
                return ResponseCode.SUCCESS, [Popped(message, receipt)]
            await asyncio.sleep(0.001)  # span: the pace of a broker
        return ResponseCode.POLLING_TIMEOUT, []

    async def ack(self, receipt: Receipt) -> bool:
        if self.fault != "seen after ack" or receipt.offset != 1:
            self.acknowledged.add(receipt.offset)
        return True


def run(monkeypatch: pytest.MonkeyPatch, fault: str = "") -> tuple[BrokerInMemory, PollLoad, set[str]]:
    broker = BrokerInMemory(fault)
    monkeypatch.setattr(poll_load, "Popper", broker.popper)
    for name, value in {
        "POLLS_MS": (120, 200, 400),
        "INVISIBLE_MS": 300,
        "REVIVED_MS": 200,
        "SEND_PAUSES_S": (0.0, 0.03),
        "PAUSE_S": 0.002,
    }.items():
        monkeypatch.setattr(poll_load, name, value)
    load = PollLoad(Course("", str, lambda: len(broker.bodies) < MESSAGES, timeout_s=0.1))

    async def drill() -> set[str]:
        client = cast(Any, SimpleNamespace(connection=broker.connection))
        await asyncio.gather(*load.tasks(cast(Any, broker), client))
        return {violation.kind for violation in await load.verdict(client)}

    return broker, load, asyncio.run(drill())


def test_a_broker_that_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, load, found = run(monkeypatch)
    assert found == set()
    assert len(broker.acknowledged) == len(broker.bodies) >= MESSAGES
    counts = load.counts
    assert counts["polled"] > MESSAGES, "some are left open, and come again"
    assert (counts["cut off"], counts["refused"]) == (1, 1)
    assert counts["in vain"] > 0


@pytest.mark.parametrize("fault", ["unanswered poll", "early end", "left poll", "seen after ack"])
def test_each_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    _, _, found = run(monkeypatch, fault)
    assert fault in found
