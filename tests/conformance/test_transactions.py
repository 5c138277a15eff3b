"""Stock's transactional producer, the same program against both brokers. Our broker delivers once where stock delivers
a commit for each of the ends that it gets.
"""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from ringmq.remoting.codes import RequestCode
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient
from tests.raw_client import RawClient

COUNT = 10
CHECKS_MAX = 6
SETTINGS = {
    "mappedFileSizeCommitLog": 64 << 20,
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": CHECKS_MAX,
    "transactionOpBatchInterval": 100,
}
DELIVERED = {
    "commit": 1,
    "rollback": 0,
    "checkedCommit": 1,
    "checkedRollback": 0,
    "neverAnswered": 0,
    "commitAfterCheck": 1,
    "doubledCommit": 1,
    "commitBesideCheck": 1,
    "rollbackAfterCommit": 1,
}
"""Copies of each message."""
ON_STOCK = DELIVERED | {"commitAfterCheck": 2, "doubledCommit": 2, "commitBesideCheck": 2}
TOPIC = "Transactions"
EXPIRED = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module")
def checking(kind: str, started: Callable[..., Server]) -> Server:
    """A server that checks halves after a second."""
    return started(kind, "transactions", settings=SETTINGS)


def test_java_producers_end_transactions(checking: Server, stock_client: StockClient) -> None:
    wanted = sum(1 for copies in DELIVERED.values() if copies) * COUNT
    seen = stock_client.call(
        "transactions", checking.namesrv, timeout_s=200, topic=TOPIC, count=COUNT, cases=list(DELIVERED), wanted=wanted,
        waitSeconds=60, quietSeconds=2 * CHECKS_MAX,
    )  # fmt: skip
    received = Counter(body.split()[0] for body in seen["received"])
    checks = Counter[str]()
    for body, times in seen["checks"].items():
        checks[body.split()[0]] += times
    expired = Counter(
        message["body"] for message in stock_client.call("readTopics", checking.namesrv, topics=[EXPIRED])
    )  # fmt: skip
    print(f"{checking.kind}: received {dict(received)}, checks {dict(checks)}")
    print(f"{checking.kind}: answers to ends {seen['codes']}, {EXPIRED} {len(expired)}")
    copies = ON_STOCK if checking.kind == "stock" else DELIVERED
    assert received == {case: number * COUNT for case, number in copies.items() if number}
    for case, number in copies.items():
        if number:
            assert Counter(seen["received"])[f"{case} 0"] == number, case
    assert checks["checkedCommit"] == checks["checkedRollback"] == COUNT
    assert checks["neverAnswered"] == CHECKS_MAX * COUNT
    assert expired == {f"neverAnswered {number}": 1 for number in range(COUNT)}
    assert not {"commit", "rollback", "doubledCommit", "rollbackAfterCommit"} & set(checks)
    with RawClient(checking.namesrv) as name_server:
        listed = json.loads(name_server.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}).body)["topicList"]
    assert EXPIRED in listed
    assert seen["codes"], "no end was answered"
    assert all(key.endswith("code 0") for key in seen["codes"]), seen["codes"]
