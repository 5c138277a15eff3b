"""Orderly groups, the same program against both brokers, with a restart between: blocks, counts and receipts stay.

With --judge-stock the store changes hands there, too.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.servers import SMALL_FILES, Server
from tests.conformance.stock_client import StockClient

pytestmark = pytest.mark.usefixtures("pops")
SHORT_MS = 1500
ARGS = {"topic": "PopInOrder", "group": "pop_in_order", "shortMillis": SHORT_MS, "waitSeconds": 60}
FIRST = [[0, 0], [1, 0], [2, 0]]


def check_before(seen: dict[str, Any]) -> None:
    assert seen["first"] == seen["again"] == FIRST, "the same attempt, which counts no pop"
    assert seen["blocked"] == []
    assert (seen["second"], seen["old"], seen["stays"]) == (True, True, 0)
    assert (seen["ack"], seen["moved"], seen["changed"]) == (True, 2, True)
    assert seen["third"] == [[2, 1], [3, 0], [4, 0]]
    assert SHORT_MS - 100 <= seen["waited"] < 15_000
    assert (seen["last"], seen["middle"], seen["committed"]) == ([[5, 0], [6, 0], [7, 0]], True, 5)


def check_after(seen: dict[str, Any]) -> None:
    assert seen["blocked"] == []
    assert (seen["ack"], seen["moved"]) == (True, 7)
    assert seen["again"] == [[7, 0]] and seen["changed"]
    assert seen["rest"] == [[7, 1], [8, 0], [9, 0]]


@pytest.mark.parametrize("then", ["ringmq", "stock"])
def test_an_orderly_group_sees_its_queue_in_order(
    kind: str, then: str, started: Callable[..., Server], stock_client: StockClient, pytestconfig: pytest.Config
) -> None:
    if then == "stock" and not pytestconfig.getoption("--judge-stock"):
        pytest.skip("a stock broker has the store after the restart")
    first = started(kind, f"orders-before-{then}", settings=SMALL_FILES)
    seen = stock_client.call("popInOrder", first.namesrv, **ARGS)
    print(f"{kind}: {seen}")
    check_before(seen)
    first.stop()
    second = started(then, f"orders-after-{kind}", settings=SMALL_FILES, store=first.store)
    again = stock_client.call("popInOrderAgain", second.namesrv, receipts=seen["receipts"], **ARGS)
    print(f"{then}: {again}")
    check_after(again)
