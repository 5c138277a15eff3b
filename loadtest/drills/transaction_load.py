"""The load of transactions beside a drill: ends once, again and in contradiction, and ends that only checks bring."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import ClassVar

from ringmq.client import (
    MessageExt,
    MessageQueue,
    Producer,
    RetryPolicy,
    RingmqError,
    SendResult,
    TransactionProducer,
    TransactionState,
    compose_message,
)
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.reads import TIMEOUT_MS, follow, id_of, read_until
from ringmq.loadtest.drills.transactions import SETTINGS, TransactionChecker, is_committed
from ringmq.remoting import properties
from ringmq.remoting.client_headers import EndTransactionRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message_id import decode_offset_id

TRANSACTION_TOPIC, TRANSACTION_GROUP = "DrillTransactions", "drill_transactions"
LANES = 4
END_TIMES = 20
"""Requests for one end. A broker that was killed answers none for some seconds."""
PAUSE_S = 0.01
KINDS = 4
"""Number % KINDS tells how a transaction ends: by a check, by one request, by two, or by two of which the second
contradicts the first."""
BY_CHECK, ONCE, TWICE, CONTRADICTED = range(KINDS)


class TransactionLoad:
    """Half messages, and ends of their transactions."""

    settings: ClassVar[Mapping[str, object]] = SETTINGS

    def __init__(self, course: Course) -> None:
        self._course = course
        self._numbers = itertools.count(1)
        self._checker = TransactionChecker()

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A producer of its own, and a reader."""
        return [self._produce(client), follow(client, self._course, (TRANSACTION_TOPIC, 0), self._read)]

    @property
    def counts(self) -> Mapping[str, int]:
        """Ends that were answered 0."""
        return {"transactions ended": self._checker.ended_count}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Read the messages, once the commits are all there."""
        place, has_all = [(TRANSACTION_TOPIC, 0)], lambda: self._checker.has_all
        async with self._producer() as producer:
            await self._transact(producer, client)  # its connection is new, so control knows whom to ask
            await read_until(client, self._course, place, self._delivered, has_all)
        return self._checker.verdict()

    def _read(self, message: MessageExt) -> None:
        self._checker.read(int(id_of(message)))

    def _delivered(self, message: MessageExt) -> None:
        self._checker.delivered(int(id_of(message)))

    def _producer(self) -> TransactionProducer:
        retry = RetryPolicy(attempts=1, budget_ms=TIMEOUT_MS)
        return TransactionProducer(self._course.namesrv, TRANSACTION_GROUP, check=self._check, retry=retry)

    async def _check(self, half: MessageExt) -> TransactionState:
        number = int(id_of(half))
        self._checker.tells(number)
        return TransactionState.COMMIT if is_committed(number) else TransactionState.ROLLBACK

    async def _produce(self, client: RemotingClient) -> None:
        async with self._producer() as producer:
            await asyncio.gather(*(self._lane(producer, client) for _ in range(LANES)))

    async def _lane(self, producer: TransactionProducer, client: RemotingClient) -> None:
        while self._course.is_running():
            await self._transact(producer, client)
            await asyncio.sleep(PAUSE_S)

    async def _transact(self, producer: TransactionProducer, client: RemotingClient) -> None:
        """Send a half message, and end its transaction."""
        number = next(self._numbers)
        pairs = {properties.TRAN_MSG: "true", properties.PGROUP: TRANSACTION_GROUP}
        body = b"%d" % number + b"." * (number * 43 % 300)
        message = compose_message(TRANSACTION_TOPIC, body, keys=str(number), properties=pairs)
        try:
            sent = await producer.send(message, queue=MessageQueue(TRANSACTION_TOPIC, BROKER, 0))
        except (RingmqError, OSError):
            return
        self._checker.acknowledged(number)
        await self._end(client, number, sent)

    async def _end(self, client: RemotingClient, number: int, sent: SendResult) -> None:
        kind, decision = number % KINDS, is_committed(number)
        if kind == BY_CHECK:
            return
        self._checker.tells(number)
        times = 1 if kind == ONCE else END_TIMES
        if await self._ask(client, sent, decision, times) and kind in (TWICE, CONTRADICTED):
            await self._ask(client, sent, decision != (kind == CONTRADICTED), 1)

    async def _ask(self, client: RemotingClient, sent: SendResult, is_commit: bool, times: int) -> bool:
        """Send an end until it is answered 0. False if that does not come, or the load ends before."""
        state = TransactionState.COMMIT if is_commit else TransactionState.ROLLBACK
        header = EndTransactionRequestHeader(
            producer_group=TRANSACTION_GROUP, tran_state_table_offset=sent.queue_offset,
            commit_log_offset=decode_offset_id(sent.offset_message_ids[0])[2], commit_or_rollback=state.value,
            from_transaction_check=False, msg_id=sent.message_id,
        )  # fmt: skip
        for _ in range(times):
            request = RemotingCommand.request(RequestCode.END_TRANSACTION, header.encode())
            try:
                answer = await client.invoke(self._course.address(), request, timeout_ms=TIMEOUT_MS)
            except (RingmqError, OSError):
                answer = None
            if answer is not None and answer.code == 0:
                self._checker.ended()
                return True
            if not self._course.is_running():
                return False
            await asyncio.sleep(10 * PAUSE_S)
        return False
