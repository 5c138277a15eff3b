"""Transactional producers without a broker's help."""

import asyncio
import time

import pytest

from ringmq.client import MessageExt, TransactionProducer, TransactionState
from tests.client.fake_broker import FakeCluster


async def test_a_check_that_hangs_does_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.client.producing.transactions.CHECKS_WAIT_S", 0.2)
    hanging = asyncio.Event()

    async def check(message: MessageExt) -> TransactionState:
        await hanging.wait()
        return TransactionState.COMMIT

    async with FakeCluster(topics={"T": 1}) as cluster:
        producer = TransactionProducer(cluster.namesrv, "g", check=check)
        producer.start()
        task = asyncio.create_task(check(MessageExt("T", b"x")))
        producer._checks.add(task)  # type: ignore[arg-type]
        began = time.monotonic()
        await asyncio.wait_for(producer.close(), 20)
        assert time.monotonic() - began >= 0.2
        assert task.cancelling() or task.cancelled()
