"""The load of orderly pops beside a drill, against a queue in memory that keeps its promises or breaks one of them."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.client import RingmqError
from ringmq.loadtest.drills import order_load
from ringmq.loadtest.drills.load import Course
from ringmq.loadtest.drills.order_load import OrderLoad
from ringmq.loadtest.load.pops import Popped, Receipt
from ringmq.remoting.message import MessageExt

MESSAGES = 240


class QueueInMemory:
    """Stands for producer and poppers. `fault`: the promise that it breaks."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.end = self.next = self.pops = 0
        self.attempt, self.time_ms = "", 0
        self.due_ms: dict[int, int] = {}
        """Of each message of the batch."""
        self.acked: set[int] = set()
        self.requests: list[str] = []
        self.attempts: list[str] = []

    async def send_batch(self, messages: Sequence[Any]) -> Any:
        await asyncio.sleep(0)
        self.end += len(messages)
        return SimpleNamespace(queue=SimpleNamespace(queue_id=2), queue_offset=self.end - len(messages))

    def popper(self, *given: object, **options: object) -> "QueueInMemory":
        return self

    async def ask(self, count: int, invisible_ms: int, poll_ms: int, attempt: str) -> tuple[int, list[Popped]]:
        await asyncio.sleep(0.001)  # span: the pace of a broker
        now_ms, self.pops = max(time.time_ns() // 1_000_000, self.time_ms + 1), self.pops + 1
        self.attempts.append(attempt)
        is_same = bool(attempt) and attempt == self.attempt
        is_held = any(at not in self.acked and due_ms > now_ms for at, due_ms in self.due_ms.items())
        if is_held and not is_same and self.fault != "given while held":
            return 210, []
        begin = self.next + (self.fault == "passed over" and self.pops % 9 == 0)
        if self.fault == "seen after ack" and self.pops % 9 == 0:
            begin = max(begin - 1, 0)
        offsets = range(begin, min(begin + count, self.end))
        if not offsets or (self.fault == "lost message" and offsets[-1] + 1 == self.end):
            return 210, []
        self.attempt, self.time_ms, self.acked = attempt, now_ms, set()
        self.due_ms = dict.fromkeys(offsets, now_ms + invisible_ms)
        if self.pops % 8 == 0:
            raise RingmqError("planted")
        receipts = [Receipt(begin, now_ms, invisible_ms, 999, "0", "b", 2, at) for at in offsets]
        return 0, [Popped(MessageExt("T", b"0"), receipt) for receipt in receipts]

    def _done(self, receipts: Sequence[Receipt]) -> bool:
        for receipt in receipts:
            if receipt.pop_time_ms == self.time_ms and receipt.offset in self.due_ms:
                self.acked.add(receipt.offset)
        while self.next in self.acked:
            self.next += 1
        return True

    async def ack(self, receipt: Receipt) -> bool:
        self.requests.append("ack")
        return self._done([receipt])

    async def ack_all(self, receipts: Sequence[Receipt]) -> bool:
        self.requests.append("ack_all")
        return self._done(receipts)

    async def change(self, receipt: Receipt, invisible_ms: int) -> Receipt | None:
        self.requests.append("change")
        if receipt.pop_time_ms != self.time_ms:
            return None
        changed = replace(receipt, invisible_ms=time.time_ns() // 1_000_000 - receipt.pop_time_ms + invisible_ms)
        self.due_ms[receipt.offset] = changed.due_ms
        return changed


def run(monkeypatch: pytest.MonkeyPatch, fault: str = "") -> tuple[QueueInMemory, OrderLoad, set[str]]:
    queue = QueueInMemory(fault)
    monkeypatch.setattr(order_load, "Popper", queue.popper)
    for name, value in {"INVISIBLE_MS": 60, "LONGER_MS": 90, "PAUSE_S": 0.002}.items():
        monkeypatch.setattr(order_load, name, value)
    load = OrderLoad(Course("", str, lambda: queue.end < MESSAGES, timeout_s=0.5))

    async def drill() -> set[str]:
        client = cast(Any, SimpleNamespace())
        await asyncio.gather(*load.tasks(cast(Any, queue), client))
        return {violation.kind for violation in await load.verdict(client)}

    return queue, load, asyncio.run(drill())


def test_a_queue_that_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, load, found = run(monkeypatch)
    assert found == set()
    assert queue.next == queue.end >= MESSAGES
    assert set(queue.requests) == {"ack", "ack_all", "change"}
    assert load.counts["orderly batches"] > load.counts["of repeated attempts"]
    assert len(set(queue.attempts)) > 3


@pytest.mark.parametrize("fault", ["given while held", "passed over", "seen after ack", "lost message"])
def test_each_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    assert fault in run(monkeypatch, fault)[2]
