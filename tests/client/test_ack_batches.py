"""Acknowledgements that travel together: when they leave, and what follows a failure."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from ringmq.client.errors import BrokerError, ReceiptExpiredError, RequestTimeoutError, RingmqError
from ringmq.client.popping import ack_batches
from ringmq.client.popping.ack_batches import BATCH_MAX, AckBatches
from ringmq.client.popping.popped_message import PoppedMessage
from tests.waiting import until

LONG_S = 60.0
"""No test waits for that."""


def message(offset: int, broker: str = "a", seconds_left: float = LONG_S) -> PoppedMessage:
    made = PoppedMessage("T", b"", queue_offset=offset, broker_name=broker)
    made.renew(made.receipt._replace(broker_name=broker, offset=offset), time.monotonic() + seconds_left)
    return made


class Sent:
    """The batches that were sent. `failures` are raised one after the other; `gate` closes holds the answers."""

    def __init__(self, *failures: RingmqError) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.failures = list(failures)
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, messages: Sequence[PoppedMessage]) -> None:
        (broker,) = {one.receipt.broker_name for one in messages}
        self.batches.append((broker, [one.receipt.offset for one in messages]))
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)


async def test_those_of_one_broker_leave_together() -> None:
    sent = Sent()
    batches = AckBatches("g", sent, 0.01)
    for offset in range(3):
        batches.add(message(offset, "a"))
        batches.add(message(offset, "b"))
    await until(lambda: len(sent.batches) == 2, "both have left")
    assert sorted(sent.batches) == [("a", [0, 1, 2]), ("b", [0, 1, 2])]


async def test_many_wait_for_no_others() -> None:
    sent = Sent()
    batches = AckBatches("g", sent, LONG_S)
    for offset in range(BATCH_MAX):
        batches.add(message(offset))
        await asyncio.sleep(0)
    await until(lambda: sent.batches, "they have left")
    assert sent.batches == [("a", list(range(BATCH_MAX)))]


async def test_without_a_time_none_waits_but_for_the_answer() -> None:
    sent = Sent()
    sent.gate.clear()
    batches = AckBatches("g", sent, 0.0)
    batches.add(message(0))
    await until(lambda: sent.batches, "the first one has left")
    for offset in range(1, 4):
        batches.add(message(offset))
    sent.gate.set()
    await until(lambda: len(sent.batches) == 2, "the others have left")
    assert [offsets for _, offsets in sent.batches] == [[0], [1, 2, 3]]


async def test_a_broker_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_batches, "AGAIN_PAUSE_S", 0.01)
    sent = Sent(RequestTimeoutError("a", 1), RequestTimeoutError("a", 1))
    batches = AckBatches("g", sent, 0.0)
    batches.add(message(0))
    await asyncio.sleep(0)
    batches.add(message(1))
    await until(lambda: len(sent.batches) >= 3, "they are sent until an answer comes")
    assert await batches.flush(LONG_S) == 0
    assert sent.batches[-1] == ("a", [0, 1])


@pytest.mark.parametrize(
    "failure", [RequestTimeoutError("a", 1), BrokerError("a", 1, "no"), ReceiptExpiredError([message(0)])]
)
async def test_none_is_sent_again_whose_time_is_over_or_that_is_refused(
    failure: RingmqError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack_batches, "AGAIN_PAUSE_S", 0.0)
    sent = Sent(failure)
    batches = AckBatches("g", sent, 0.0)
    batches.add(message(0, seconds_left=-1 if isinstance(failure, RequestTimeoutError) else LONG_S))
    await until(lambda: sent.batches, "it has left")
    assert await batches.flush(LONG_S) == 0
    assert len(sent.batches) == 1


async def test_a_flush_hurries_those_that_wait() -> None:
    sent = Sent()
    batches = AckBatches("g", sent, LONG_S)
    batches.add(message(0))
    await asyncio.sleep(0)
    assert await batches.flush(LONG_S) == 0
    assert sent.batches == [("a", [0])]


async def test_a_flush_ends_at_its_time() -> None:
    sent = Sent()
    sent.gate.clear()
    batches = AckBatches("g", sent, 0.0)
    batches.add(message(0))
    await until(lambda: sent.batches, "the first one has left")
    batches.add(message(1))
    assert await batches.flush(0.01) == 2, "one has no answer, one has not left"
