"""A stock store in which something waits changes hands: taken over, handed back, taken over again, delivered."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import run_ringmq
from tests.conformance.handed_pops import CHANGED, DUE, HELD, HandedPops
from tests.conformance.servers import SMALL_FILES, Server
from tests.conformance.stock_client import StockClient

TOPIC = "TakenOver"
WAIT_S = 15
"""Messages with a time of delivery are due that late."""
DELAYED = 3
"""Messages of a delay level that `leaveWaiting` sends."""
SETTINGS = {
    **SMALL_FILES,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 5000,
    "transactionOpBatchInterval": 500,
    "transactionCheckMax": 10_000,  # a slow machine must not use them up
    "ringmqPopExportAtStop": True,
}
FIRST, LATER = {"messageDelayLevel": "1s 1h"}, {"messageDelayLevel": "1s 1s"}
"""The first broker delivers nothing of level 2, and nothing waits for an hour."""


def waiting(store: Path) -> dict[str, int]:
    """`ringmq store unserved`: count by kind."""
    done = run_ringmq("store", "unserved", str(store), "-o", "json")
    rows = json.loads(done.stdout)
    assert done.returncode == (1 if rows else 0), done.stderr
    return {row["kind"]: row["count"] for row in rows}


@pytest.mark.timeout(600)  # four brokers one after another
def test_what_waits_in_a_store_goes_from_stock_to_ringmq_and_back_and_to_ringmq_again(
    stock_client: StockClient, started: Callable[..., Server]
) -> None:
    pops = HandedPops("TakenOverByPop")
    stock = started("stock-broker", "leaving", settings=SETTINGS | FIRST)
    stock_client.call("fill", stock.namesrv, topic=TOPIC, queues=2, start=1, count=8)
    assert stock_client.call("leaveWaiting", stock.namesrv, topic=TOPIC, level=2, seconds=WAIT_S) == 6
    pops.begin(stock.broker)
    stock.stop()
    assert waiting(stock.store) == {}

    ours = started("ringmq", "taking-over", settings=SETTINGS | LATER, store=stock.store)
    pops.check(ours.broker)
    delayed = [f"delayed {number}" for number in range(DELAYED)]
    served = stock_client.call("awaitBodies", ours.namesrv, topic=TOPIC, count=8 + DELAYED + 3, seconds=60)
    bodies = [f"body {number}" for number in range(1, 9)]
    assert sorted(served) == sorted([*bodies, *delayed, "half", "timed 0", "timed 1"])
    stock_client.call("fill", ours.namesrv, topic=TOPIC, queues=2, start=101, count=8)
    pops.shorten(ours.broker, DUE)
    ours.stop()
    assert (stock.store / "ringmq.format").read_text().startswith("1 ringmq ")

    back = started("stock-broker", "again", settings=SETTINGS | LATER, store=stock.store)
    pops.check(back.broker, acked=CHANGED, changed=HELD)
    bodies = stock_client.call("awaitBodies", back.namesrv, topic=TOPIC, count=16 + 6, seconds=60)
    assert [body for body in bodies if not body.startswith("body")] == [
        *("delayed 0", "delayed 1", "delayed 2", "half", "timed 0", "timed 1")
    ]
    assert len(bodies) == 22
    back.stop()

    last = started("ringmq", "getting-back", settings=SETTINGS | LATER, store=stock.store)
    pops.check(last.broker, acked=HELD, changed=DUE, due=())
    last.stop()
