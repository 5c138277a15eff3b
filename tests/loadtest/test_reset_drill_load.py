"""The load of resets beside a drill, against a queue in memory that keeps its promises or breaks one of them."""

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.client import RingmqError
from ringmq.loadtest.drills import reset_load
from ringmq.loadtest.drills.load import Course
from ringmq.loadtest.drills.reset_load import ResetLoad
from ringmq.loadtest.load.pops import Popped, Receipt
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt

MESSAGES = 200


class QueueInMemory:
    """Stands for producer, client and poppers. `fault`: the promise that it breaks."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.bodies: list[bytes] = []
        self.next = self.resets = 0
        self.open: dict[int, int] = {}
        """Messages that consumers have, and the ends of their times."""

    async def send_batch(self, messages: Sequence[Any]) -> Any:
        await asyncio.sleep(0.005)  # span: the pace of a broker
        self.bodies += [bytes(message.body) for message in messages]
        return SimpleNamespace(queue=SimpleNamespace(queue_id=0), queue_offset=len(self.bodies) - len(messages))

    def popper(self, *given: object, **options: object) -> "QueueInMemory":
        return self

    async def pop(self, count: int, invisible_ms: int, poll_ms: int) -> list[Popped]:
        await asyncio.sleep(0.001)  # span: the pace of a broker
        now_ms = time.time_ns() // 1_000_000
        copies = [at for at, due_ms in self.open.items() if due_ms <= now_ms][:count]
        if self.fault == "lost retry":
            copies = []
        fresh = list(range(self.next, min(self.next + count - len(copies), len(self.bodies))))
        self.next += len(fresh)
        self.open |= dict.fromkeys([*copies, *fresh], now_ms + invisible_ms)
        flags = {**dict.fromkeys(fresh, "0"), **dict.fromkeys(copies, "1")}
        return [
            Popped(MessageExt("T", self.bodies[at]), Receipt(at, now_ms, invisible_ms, 0, flag, "b", 0, at))
            for at, flag in flags.items()
        ]

    async def ack(self, receipt: Receipt) -> bool:
        self.open.pop(receipt.offset, None)
        return True

    async def invoke(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        await asyncio.sleep(0)
        self.resets += 1
        if self.resets == 3:
            raise RingmqError("planted")
        if self.resets == 4:
            return RemotingCommand.response_to(request, 2)
        offset = int(request.ext_fields["offset"])
        if not (self.fault == "not begun anew" and offset < self.next):
            self.open = {at: due_ms for at, due_ms in self.open.items() if offset > self.next and at < self.next}
            self.next = offset
        if self.fault == "given below":
            self.next = max(offset - 1, 0)
        return RemotingCommand.response_to(request, 0)


def run(monkeypatch: pytest.MonkeyPatch, fault: str = "") -> tuple[QueueInMemory, ResetLoad, set[str]]:
    queue = QueueInMemory(fault)
    monkeypatch.setattr(reset_load, "Popper", queue.popper)
    for name, value in {
        "INVISIBLE_MS": 50, "REVIVED_MS": 50, "PAUSE_S": 0.002, "RESET_PAUSE_S": 0.02, "UNDER_WAY_S": 0.01,
    }.items():  # fmt: skip
        monkeypatch.setattr(reset_load, name, value)
    load = ResetLoad(Course("", str, lambda: len(queue.bodies) < MESSAGES, timeout_s=0.5))

    async def drill() -> set[str]:
        client = cast(Any, queue)
        await asyncio.gather(*load.tasks(cast(Any, queue), client))
        return {violation.kind for violation in await load.verdict(client)}

    return queue, load, asyncio.run(drill())


def test_a_queue_that_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, load, found = run(monkeypatch)
    assert found == set()
    assert not queue.open and len(queue.bodies) >= MESSAGES
    assert load.counts["resets"] > 3 and load.counts["begun anew"] > 3


@pytest.mark.parametrize("fault", ["not begun anew", "given below", "lost retry"])
def test_each_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    assert fault in run(monkeypatch, fault)[2]
