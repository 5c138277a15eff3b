"""A stock store in which something waits changes hands: refused, taken over when told to, handed back, delivered."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.remoting.message import decode_messages
from tests.commands import run_ringmq
from tests.conformance.servers import SMALL_FILES, Server
from tests.conformance.stock_client import StockClient
from tests.raw_client import RawClient
from tests.waiting import wait_until

TOPIC, POPPED = "TakenOver", "TakenOverByPop"
WAIT_S = 30
DELAYED = 3
"""Messages of a delay level that `leaveWaiting` sends."""
SETTINGS = {
    **SMALL_FILES,
    "messageDelayLevel": f"1s {WAIT_S}s",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 5000,
    "transactionOpBatchInterval": 500,
    "transactionCheckMax": 10_000,  # a slow machine must not use them up
}
POP_MESSAGE = 200050


def waiting(store: Path) -> dict[str, int]:
    """`ringmq store unserved`: count by kind."""
    done = run_ringmq("store", "unserved", str(store), "-o", "json")
    rows = json.loads(done.stdout)
    assert done.returncode == (1 if rows else 0), done.stderr
    return {row["kind"]: row["count"] for row in rows}


def pop(broker: str) -> list[str]:
    """Bodies that a group of POP gets, to be seen again after WAIT_S because nobody acknowledges them."""
    fields = {
        "consumerGroup": "popping", "topic": POPPED, "queueId": -1, "maxMsgNums": 32, "invisibleTime": WAIT_S * 1000,
        "pollTime": 2000, "bornTime": time.time_ns() // 1_000_000, "initMode": 0,
    }  # fmt: skip
    with RawClient(broker) as client:
        answer = client.ask(POP_MESSAGE, fields)
    return [bytes(message.body).decode() for message in decode_messages(answer.body)] if answer.code == 0 else []


@pytest.mark.timeout(600)  # four brokers one after another
def test_what_stock_leaves_waiting_is_refused_kept_and_delivered_after_the_store_is_handed_back(
    stock_client: StockClient, started: Callable[..., Server]
) -> None:
    stock = started("stock", "leaving", settings=SETTINGS)
    stock_client.call("fill", stock.namesrv, topic=TOPIC, queues=2, start=1, count=8)
    stock_client.call("fill", stock.namesrv, topic=POPPED, queues=1, start=1, count=2)
    assert stock_client.call("leaveWaiting", stock.namesrv, topic=TOPIC, level=2, seconds=WAIT_S) == 6
    assert pop(stock.broker) == ["body 1", "body 2"]
    assert pop(stock.broker) == [], "they are the group's until they are due"
    stock.stop()
    left = {"pop": 2}
    assert waiting(stock.store) == left
    before = {path: path.read_bytes() for path in stock.store.rglob("*") if path.is_file()}

    with pytest.raises(AssertionError, match=r"2 messages that POP"):
        started("ringmq", "refused", settings=SETTINGS, store=stock.store)
    after = {path: path.read_bytes() for path in stock.store.rglob("*") if path.is_file()}
    assert after == before, "a refusal changes nothing"

    ours = started("ringmq", "accepting", settings={**SETTINGS, "ringmqAcceptUnserved": True}, store=stock.store)
    delayed = [f"delayed {number}" for number in range(DELAYED)]
    served = stock_client.call("awaitBodies", ours.namesrv, topic=TOPIC, count=8 + DELAYED + 3, seconds=60)
    bodies = [f"body {number}" for number in range(1, 9)]
    assert sorted(served) == sorted([*bodies, *delayed, "half", "timed 0", "timed 1"])
    stock_client.call("fill", ours.namesrv, topic=TOPIC, queues=2, start=101, count=8)
    ours.stop()
    assert (stock.store / "ringmq.format").read_text().startswith("1 ringmq ")
    assert waiting(stock.store) == left, "what POP has left was neither served nor lost"

    back = started("stock", "again", settings=SETTINGS, store=stock.store)
    bodies = stock_client.call("awaitBodies", back.namesrv, topic=TOPIC, count=16 + 6, seconds=60)
    assert [body for body in bodies if not body.startswith("body")] == [
        *("delayed 0", "delayed 1", "delayed 2", "half", "timed 0", "timed 1")
    ]
    assert len(bodies) == 22
    again: list[str] = []

    def is_popped_again() -> bool:
        again.extend(pop(back.broker))
        return len(again) >= 2

    wait_until(is_popped_again, "what was popped is due again", 60)
    assert sorted(again) == ["body 1", "body 2"]
    back.stop()
