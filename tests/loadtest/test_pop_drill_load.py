"""The load of pops beside a drill, against a broker in memory that keeps its promises or breaks one of them."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.client import RingmqError
from ringmq.loadtest.drills import pop_load
from ringmq.loadtest.drills.load import Course
from ringmq.loadtest.drills.pop_load import PopLoad
from ringmq.loadtest.load.pops import Popped, Receipt
from ringmq.remoting.message import MessageExt

MESSAGES = 64


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Held:
    """A message, and the end of its invisible time."""

    body: bytes
    due_ms: int = 0
    times: int = -1
    is_acknowledged: bool = False


class BrokerInMemory:
    """Stands for producer and poppers. `fault`: the promise that it breaks for every eighth message."""

    def __init__(self, fault: str, remainder: int) -> None:
        self.fault, self.remainder = fault, remainder
        self.held: dict[int, Held] = {}
        self.requests: list[str] = []
        self._offsets = itertools.count()

    async def send(self, message: Any) -> None:
        await asyncio.sleep(0)
        self.held[next(self._offsets)] = Held(bytes(message.body))

    def popper(self, *given: object, **options: object) -> "BrokerInMemory":
        return self

    def _breaks(self, offset: int, fault: str) -> bool:
        return self.fault == fault and (offset + 1) % pop_load.WAYS == self.remainder

    async def pop(self, count: int, invisible_ms: int, poll_ms: int) -> list[Popped]:
        await asyncio.sleep(0.001)  # span: the pace of a broker
        at_ms, found = now_ms(), []
        for offset, held in self.held.items():
            is_due = held.due_ms <= at_ms or self._breaks(offset, "given twice")
            is_kept_back = self._breaks(offset, "lost message") or (
                held.times >= 0 and self._breaks(offset, "lost retry")
            )
            if held.is_acknowledged or not is_due or is_kept_back or len(found) == count:
                continue
            held.due_ms, held.times = at_ms + invisible_ms, held.times + (not self._breaks(offset, "uncounted retry"))
            message = MessageExt("T", held.body, reconsume_times=max(held.times, 0))
            found.append(Popped(message, Receipt(offset, at_ms, invisible_ms, 0, "0", "b", 0, offset)))
        return found

    async def ack(self, receipt: Receipt) -> bool:
        self.requests.append("ack")
        return await self._acknowledge([receipt])

    async def ack_all(self, receipts: Sequence[Receipt]) -> bool:
        self.requests.append("ack_all")
        return await self._acknowledge(receipts)

    async def _acknowledge(self, receipts: Sequence[Receipt]) -> bool:
        await asyncio.sleep(0)
        if self.fault == "no answers":
            raise RingmqError("planted")
        for receipt in receipts:
            self.held[receipt.offset].is_acknowledged = not self._breaks(receipt.offset, "seen after ack")
        return True

    async def change(self, receipt: Receipt, invisible_ms: int) -> Receipt | None:
        self.requests.append("change")
        fresh = replace(receipt, pop_time_ms=now_ms(), invisible_ms=invisible_ms)
        self.held[receipt.offset].due_ms = fresh.due_ms
        return fresh


def run(
    monkeypatch: pytest.MonkeyPatch, fault: str = "", remainder: int = 0
) -> tuple[BrokerInMemory, PopLoad, set[str]]:
    broker = BrokerInMemory(fault, remainder)
    monkeypatch.setattr(pop_load, "Popper", broker.popper)
    for name, value in {
        "INVISIBLE_MS": 300,
        "SHORTER_MS": 100,
        "LONGER_MS": 600,
        "REVIVED_MS": 100,
        "PAUSE_S": 0.002,
    }.items():
        monkeypatch.setattr(pop_load, name, value)
    load = PopLoad(Course("", str, lambda: len(broker.held) < MESSAGES, timeout_s=1.0))

    async def drill() -> set[str]:
        client = cast(Any, SimpleNamespace())
        await asyncio.gather(*load.tasks(cast(Any, broker), client))
        return {violation.kind for violation in await load.verdict(client)}

    return broker, load, asyncio.run(drill())


def test_a_broker_that_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, load, found = run(monkeypatch)
    assert found == set()
    assert set(broker.requests) == {"ack", "ack_all", "change"}
    assert load.counts["popped"] > load.counts["pops acknowledged"] >= MESSAGES
    assert all(held.is_acknowledged for held in broker.held.values())


def test_acknowledgements_without_an_answer_may_be_done_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    _, load, found = run(monkeypatch, "no answers")
    assert found == set()
    assert load.counts["pops acknowledged"] == 0


@pytest.mark.parametrize(
    ("fault", "remainder"),
    [
        ("lost message", 3), ("lost retry", pop_load.LEFT_OPEN), ("given twice", pop_load.LEFT_OPEN),
        ("given twice", pop_load.LENGTHENED), ("seen after ack", 4), ("seen after ack", 5),
        ("seen after ack", pop_load.LENGTHENED), ("uncounted retry", pop_load.SHORTENED),
    ],
)  # fmt: skip
def test_each_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch, fault: str, remainder: int) -> None:
    _, _, found = run(monkeypatch, fault, remainder)
    assert fault in found
