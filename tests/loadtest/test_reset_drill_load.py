"""The load of resets beside a drill, against a queue in memory that keeps its promises or breaks one of them.

Time passes when all tasks wait, so no machine is too slow.
"""

import asyncio
import selectors
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.client import RingmqError
from ringmq.loadtest.drills import pop_load, reset_load
from ringmq.loadtest.drills.load import Course
from ringmq.loadtest.drills.reset_load import UNDER_WAY_S, ResetLoad
from ringmq.loadtest.load.pops import Popped, Receipt
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt

MESSAGES = 2100
"""The last reset goes back. One to the end would pass over what a queue has not begun anew."""
BEGIN_NS = 1_700_000_000_000_000_000
INVISIBLE_MS = 100
"""A reset goes back to messages whose copies are on their way."""
COPY_MS = 100
"""From the end of an invisible time until a pop may find the copy."""
DISPATCH_S = 0.024
"""From the answer to a send until pops find its messages."""


class Clock(selectors.SelectSelector):
    """The time of an event loop: nothing from outside wakes it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)

    def time(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return BEGIN_NS + round(self.now_s * 1000) * 1_000_000

    monotonic = time

    def loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(self)
        loop.time = self.time  # type: ignore[method-assign]
        return loop


class QueueInMemory:
    """Stands for producer, client and poppers. `fault`: the promise that it breaks."""

    def __init__(self, fault: str, clock: Clock) -> None:
        self.fault, self.clock = fault, clock
        self.bodies: list[bytes] = []
        self.next = self.readable = self.connects = self.resets = self.gives = 0
        self.open: dict[int, Receipt] = {}
        """Receipts of messages that consumers have, by their numbers."""
        self.copies: list[tuple[int, int]] = []
        """In the topic of retries: offset in the queue, and the time from which on a pop finds the copy."""
        self.retries_first = 0
        """Copies that came after a reset to their messages, and before these."""

    def now_ms(self) -> int:
        return self.clock.time_ns() // 1_000_000

    async def send_batch(self, messages: Sequence[Any]) -> Any:
        await asyncio.sleep(0.005)  # span: the pace of a broker
        self.bodies += [bytes(message.body) for message in messages]
        asyncio.get_running_loop().call_later(DISPATCH_S, self._dispatch, len(self.bodies))
        return SimpleNamespace(queue=SimpleNamespace(queue_id=0), queue_offset=len(self.bodies) - len(messages))

    def _dispatch(self, end: int) -> None:
        self.readable = end

    def popper(self, *given: object, **options: object) -> "QueueInMemory":
        return self

    async def pop(self, count: int, invisible_ms: int, poll_ms: int) -> list[Popped]:
        await asyncio.sleep(0.001)  # span: the pace of a broker
        now_ms = self.now_ms()
        for number, receipt in list(self.open.items()):
            if receipt.due_ms <= now_ms:
                del self.open[number]
                self.copies.append((receipt.offset, receipt.due_ms + COPY_MS))
        found = [] if self.fault == "lost retry" else [copy for copy in self.copies if copy[1] <= now_ms][:count]
        self.copies = [copy for copy in self.copies if copy not in found]
        fresh = range(self.next, min(self.next + count - len(found), self.readable))
        self.retries_first += sum(at >= self.next for at, _ in found)
        self.next = fresh.stop
        given = [self._give(at, "1", invisible_ms) for at, _ in found]
        return given + [self._give(at, "0", invisible_ms) for at in fresh]

    def _give(self, at: int, flag: str, invisible_ms: int) -> Popped:
        self.gives += 1
        receipt = Receipt(self.gives, self.now_ms(), invisible_ms, 0, flag, "b", 0, at)
        self.open[self.gives] = receipt
        return Popped(MessageExt("T", self.bodies[at]), receipt)

    async def ack(self, receipt: Receipt) -> bool:
        self.open.pop(receipt.start_offset, None)
        return True

    async def connection(self, address: str) -> None:
        self.connects += 1
        if self.connects % 9 == 4:
            raise RingmqError("planted")

    async def call(self, address: str, code: int, header: object, timeout_ms: int) -> RemotingCommand:
        await asyncio.sleep(0.001)  # span: the pace of a broker
        return RemotingCommand(code=0, ext_fields={"offset": str(self.readable)})

    async def invoke(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        await asyncio.sleep(0.001)  # span: the pace of a broker
        self.resets += 1
        offset = int(request.ext_fields["offset"])
        if self.resets % 7 == 3:
            asyncio.get_running_loop().call_later(UNDER_WAY_S - 1, self._reset, offset)
            raise RingmqError("planted")
        if self.resets % 7 == 5:
            code = ResponseCode.SYSTEM_BUSY if self.resets % 2 else ResponseCode.SYSTEM_ERROR
            return RemotingCommand.response_to(request, code)
        self._reset(offset)
        if self.fault == "reset twice":
            asyncio.get_running_loop().call_later(0.1, self._reset, offset)
        return RemotingCommand.response_to(request, 0)

    def _reset(self, offset: int) -> None:
        """End what the queue has given, if the group goes back. Copies stay, and pops find them at once. An offset
        beyond what is readable counts as the end."""
        offset = min(offset, self.readable)
        if self.fault == "not begun anew" and offset < self.next:
            return
        if offset < self.next:
            self.copies = [(at, self.now_ms()) for at, _ in self.copies]
            self.open = {number: receipt for number, receipt in self.open.items() if receipt.flag == "1"}
        self.next = max(offset - 1, 0) if self.fault == "given below" else offset


def run(monkeypatch: pytest.MonkeyPatch, fault: str = "") -> tuple[QueueInMemory, ResetLoad, set[str]]:
    clock = Clock()
    queue = QueueInMemory(fault, clock)
    monkeypatch.setattr(reset_load, "Popper", queue.popper)
    monkeypatch.setattr(reset_load, "INVISIBLE_MS", INVISIBLE_MS)
    monkeypatch.setattr(pop_load, "time", clock)
    load = ResetLoad(Course("", str, lambda: len(queue.bodies) < MESSAGES, timeout_s=10))

    async def drill() -> set[str]:
        client = cast(Any, queue)
        await asyncio.gather(*load.tasks(cast(Any, queue), client))
        return {violation.kind for violation in await load.verdict(client)}

    with asyncio.Runner(loop_factory=clock.loop) as runner:
        return queue, load, runner.run(drill())


def test_a_queue_that_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, load, found = run(monkeypatch)
    assert found == set()
    assert len(queue.bodies) >= MESSAGES
    assert load.counts["resets"] > 10 and load.counts["begun anew"] > 20
    assert queue.retries_first > 0, "a copy of before a reset came first"


@pytest.mark.parametrize(
    "fault, kind",
    [
        ("not begun anew", "not begun anew"), ("given below", "given below"), ("lost retry", "lost retry"),
        ("reset twice", "seen after ack"), ("reset twice", "given twice"),
    ],
)  # fmt: skip
def test_each_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch, fault: str, kind: str) -> None:
    assert kind in run(monkeypatch, fault)[2]
