"""A stock store in which something waits changes hands: taken over, handed back, delivered."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import run_ringmq
from tests.conformance.servers import BROKER_NAME, SMALL_FILES, Server
from tests.conformance.stock_client import StockClient
from tests.pop.pop_client import PopClient, Taken
from tests.waiting import wait_until

TOPIC, POPPED = "TakenOver", "TakenOverByPop"
WAIT_S, LONG_S = 30, 90
"""Invisible times. A start of a stock broker may take half of the longer one."""
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


def waiting(store: Path) -> dict[str, int]:
    """`ringmq store unserved`: count by kind."""
    done = run_ringmq("store", "unserved", str(store), "-o", "json")
    rows = json.loads(done.stdout)
    assert done.returncode == (1 if rows else 0), done.stderr
    return {row["kind"]: row["count"] for row in rows}


def popping(server: Server) -> PopClient:
    """A client of the group that pops."""
    return PopClient(server.broker, "popping", POPPED, BROKER_NAME)


def pop_until(client: PopClient, count: int, within_s: float = 60) -> list[Taken]:
    """What comes again until there are so many messages, and a moment behind."""
    found: list[Taken] = []

    def has_all() -> bool:
        found.extend(client.pop(invisible_ms=WAIT_S * 1000))
        return len(found) >= count

    wait_until(has_all, "what was popped is due again", within_s)
    return found + client.pop(invisible_ms=WAIT_S * 1000)


@pytest.mark.timeout(600)  # four brokers one after another
def test_what_stock_leaves_waiting_is_served_by_ringmq_and_the_rest_after_the_store_is_handed_back(
    stock_client: StockClient, started: Callable[..., Server]
) -> None:
    stock = started("stock", "leaving", settings=SETTINGS)
    stock_client.call("fill", stock.namesrv, topic=TOPIC, queues=2, start=1, count=8)
    stock_client.call("fill", stock.namesrv, topic=POPPED, queues=1, start=1, count=4)
    assert stock_client.call("leaveWaiting", stock.namesrv, topic=TOPIC, level=2, seconds=WAIT_S) == 6
    client = popping(stock)
    taken = {one.body: one for one in client.pop(invisible_ms=WAIT_S * 1000)}
    assert taken.keys() == {b"body 1", b"body 2", b"body 3", b"body 4"}
    assert client.ack(taken[b"body 1"]).code == 0
    client.close()
    stock.stop()
    assert waiting(stock.store) == {}

    ours = started("ringmq", "taking-over", settings=SETTINGS, store=stock.store)
    client = popping(ours)
    assert client.pop() == [], "consumers have them"
    assert client.ack(taken[b"body 2"]).code == 0, "a receipt of the stock broker counts"
    again = pop_until(client, 2)
    assert sorted(one.body for one in again) == [b"body 3", b"body 4"]
    assert all(client.ack(one).code == 0 for one in again)
    client.close()
    delayed = [f"delayed {number}" for number in range(DELAYED)]
    served = stock_client.call("awaitBodies", ours.namesrv, topic=TOPIC, count=8 + DELAYED + 3, seconds=60)
    bodies = [f"body {number}" for number in range(1, 9)]
    assert sorted(served) == sorted([*bodies, *delayed, "half", "timed 0", "timed 1"])
    stock_client.call("fill", ours.namesrv, topic=TOPIC, queues=2, start=101, count=8)
    ours.stop()
    assert (stock.store / "ringmq.format").read_text().startswith("1 ringmq ")

    back = started("stock", "again", settings=SETTINGS, store=stock.store)
    bodies = stock_client.call("awaitBodies", back.namesrv, topic=TOPIC, count=16 + 6, seconds=60)
    assert [body for body in bodies if not body.startswith("body")] == [
        *("delayed 0", "delayed 1", "delayed 2", "half", "timed 0", "timed 1")
    ]
    assert len(bodies) == 22
    back.stop()


@pytest.mark.timeout(600)  # three brokers one after another, and the time of what was popped
def test_open_messages_go_from_ringmq_to_stock_and_back(
    stock_client: StockClient, started: Callable[..., Server]
) -> None:
    settings = {**SETTINGS, "ringmqPopExportAtStop": True}
    ours = started("ringmq", "popping", settings=settings)
    stock_client.call("fill", ours.namesrv, topic=POPPED, queues=1, start=1, count=7)
    client = popping(ours)
    taken = {one.body.decode(): one for one in client.pop(invisible_ms=LONG_S * 1000)}
    assert sorted(taken) == [f"body {number}" for number in range(1, 8)]
    assert client.ack(taken["body 1"]).code == 0
    client.close()
    ours.stop()

    stock = started("stock", "taking-over-pops", settings=settings, store=ours.store)
    client = popping(stock)
    assert client.pop() == [], "consumers have them"
    assert client.ack(taken["body 2"]).code == 0, "a receipt of RingMQ counts"
    again = {one.body.decode(): one for one in pop_until(client, 5, LONG_S + 60)}
    assert sorted(again) == [f"body {number}" for number in range(3, 8)]
    assert client.ack(again["body 3"]).code == 0
    client.close()
    stock.stop()

    back = started("ringmq", "getting-back", settings=settings, store=ours.store)
    client = popping(back)
    assert client.pop() == [], "consumers have them"
    assert client.ack(again["body 4"]).code == 0, "a receipt of the stock broker counts"
    last = pop_until(client, 3, LONG_S)
    assert sorted(one.body for one in last) == [b"body 5", b"body 6", b"body 7"]
    client.close()
    back.stop()


@pytest.mark.timeout(300)
def test_open_messages_of_a_killed_stock_broker_are_taken_over(
    stock_client: StockClient, started: Callable[..., Server]
) -> None:
    """The broker had no time to store consumer offsets, or what its timer has done."""
    stock = started("stock", "killed", settings=SETTINGS)
    stock_client.call("fill", stock.namesrv, topic=POPPED, queues=1, start=1, count=4)
    client = popping(stock)
    taken = {one.body: one for one in client.pop(count=4, invisible_ms=WAIT_S * 1000)}
    assert len(taken) == 4
    assert client.ack(taken[b"body 1"]).code == 0
    client.close()
    stock.kill()

    ours = started("ringmq", "after-a-kill", settings=SETTINGS, store=stock.store)
    client = popping(ours)
    assert client.pop() == [], "consumers have them"
    assert client.ack(taken[b"body 2"]).code == 0
    assert sorted(one.body for one in pop_until(client, 2)) == [b"body 3", b"body 4"]
    client.close()
    ours.stop()
