"""The load of a replication drill: producers, readers of master and slaves, and the record for the checker.

One check runs beside the load: when a send is acknowledged, a slave's log file must have the record already (if the
policy says so).
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ringmq.client import MessageQueue, Producer, RetryPolicy, RingmqError, SendStatus
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Checker, Violation
from ringmq.loadtest.drills.ha_group import BROKER_NAME, HaGroup
from ringmq.loadtest.drills.reads import PATIENT_MS, QUEUES, TOPIC, id_of, max_offset, pull, read_up_to
from ringmq.loadtest.drills.sends import lane_messages

LANES = 2  # producers per queue
PAUSE_S = 0.01  # between two sends of a lane: the logs of a hundred rounds have to fit
SETTLE_TIMEOUT_S = 60.0


@dataclass(slots=True)
class LoadReport:
    """The numbers of sends and reads, and of the outcomes of sends."""

    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    answers: dict[str, int] = field(default_factory=dict)

    def count(self, answer: str) -> None:
        """Count one send with this outcome."""
        self.answers[answer] = self.answers.get(answer, 0) + 1


class HaLoad:
    """Sends and reads until `finish`. One of the nodes in `holders` must have each acknowledged message."""

    def __init__(self, group: HaGroup, *, must_hold: bool) -> None:
        self.report = LoadReport()
        self.holders = list(group.slaves)
        self._group = group
        self._must_hold = must_hold
        self._checker = Checker()
        self._not_held: list[Violation] = []
        self._client = RemotingClient()
        self._running = True
        self._tasks: list[asyncio.Task[None]] = []
        self._acknowledged = asyncio.Event()
        self._ended: Counter[tuple[int, int]] = Counter()
        """Sends that have ended in any way, by queue and lane."""

    async def __aenter__(self) -> "HaLoad":
        retry = RetryPolicy(attempts=1, budget_ms=3000)
        self._producer = Producer(self._group.name_server.address, "drill", retry=retry)
        await self._producer.__aenter__()
        for queue_id in range(QUEUES):
            self._tasks += [asyncio.create_task(self._produce(queue_id, lane)) for lane in range(LANES)]
            for node in self._group.nodes:
                self._tasks.append(asyncio.create_task(self._follow(node.broker.address, queue_id)))
        return self

    async def __aexit__(self, *ignored: object) -> None:
        self._running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer.__aexit__(None, None, None)
        await self._client.close()

    async def _produce(self, queue_id: int, lane: int) -> None:
        queue = MessageQueue(TOPIC, BROKER_NAME, queue_id)
        messages = lane_messages(self._checker, queue_id, lane)
        while self._running:
            message_id, message = next(messages)
            self.report.sent += 1
            try:
                result = await self._producer.send(message, queue=queue)
            except (RingmqError, OSError) as error:
                self.report.count(type(error).__name__)
                self._ended[queue_id, lane] += 1
                await asyncio.sleep(5 * PAUSE_S)
                continue
            self.report.count(result.status.name)
            if result.status is SendStatus.OK:
                self._take_acknowledged(message_id, result.queue_offset, int(result.offset_message_ids[0][-16:], 16))
            self._ended[queue_id, lane] += 1
            await asyncio.sleep(PAUSE_S)

    def _take_acknowledged(self, message_id: str, queue_offset: int, commit_log_offset: int) -> None:
        self._checker.acknowledged(message_id, TOPIC, int(message_id[1]), queue_offset)
        self.report.acknowledged += 1
        if self._must_hold and not any(node.has_record(commit_log_offset) for node in self.holders):
            text = f"{message_id} was acknowledged, and no slave had anything at {commit_log_offset}"
            self._not_held.append(Violation("not held", text))
        self._acknowledged.set()

    async def _follow(self, address: str, queue_id: int) -> None:
        """Read all readable messages of this broker, from the beginning on."""
        queue_offset = 0
        while self._running:
            try:
                messages, queue_offset = await pull(self._client, address, queue_id, queue_offset)
            except (RingmqError, OSError):
                await asyncio.sleep(0.05)
                continue
            for message in messages:
                self.report.read += 1
                self._checker.read(TOPIC, queue_id, message.queue_offset, id_of(message))
            if not messages:
                await asyncio.sleep(0.01)

    async def service(self, timeout_s: float) -> None:
        """Wait until a send that began after now is acknowledged. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            for _ in range(QUEUES * LANES + 1):  # each lane may have one send that began before
                self._acknowledged.clear()
                await self._acknowledged.wait()

    async def sends_end(self, timeout_s: float) -> None:
        """Wait until each send that is under way now has ended in any way. Raises TimeoutError."""
        before = self._ended.copy()
        async with asyncio.timeout(timeout_s):
            while any(self._ended[lane] == before[lane] for lane in itertools.product(range(QUEUES), range(LANES))):
                await asyncio.sleep(PAUSE_S)  # poll

    async def finish(self) -> list[Violation]:
        """End the load, wait for the slaves, read everything from every broker, check."""
        self._running = False
        await asyncio.gather(*self._tasks)
        await self._slaves_have_all()
        for queue_id in range(QUEUES):
            stands = partial(self._checker.final_read, TOPIC, queue_id)
            await self._read(self._group.master.broker.address, queue_id, stands)
            is_shown = partial(self._checker.read, TOPIC, queue_id)  # has to stand on the master, at the same place
            for slave in self._group.slaves:
                await self._read(slave.broker.address, queue_id, is_shown)
        return [*self._checker.verdict(), *self._not_held]

    async def _read(self, address: str, queue_id: int, take: Callable[[int, str], None]) -> None:
        end = await max_offset(self._client, address, queue_id, timeout_ms=PATIENT_MS)
        await read_up_to(
            self._client, address, queue_id, end, lambda message: take(message.queue_offset, id_of(message)),
            SETTLE_TIMEOUT_S,
        )  # fmt: skip

    async def _slaves_have_all(self) -> None:
        """Wait until every slave shows as many messages as the master. Raises TimeoutError."""
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            while True:
                with contextlib.suppress(RingmqError, OSError):
                    ends = [await self._ends(node.broker.address) for node in self._group.nodes]
                    if all(end == ends[0] for end in ends[1:]):
                        return
                await asyncio.sleep(0.05)  # poll

    async def _ends(self, address: str) -> list[int]:
        return [await max_offset(self._client, address, queue_id) for queue_id in range(QUEUES)]
