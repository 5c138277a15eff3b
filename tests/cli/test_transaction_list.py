"""`ringmq transaction list`: open half messages of a broker, here those that stock has left in its store."""

import asyncio
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.message import MessageExt
from ringmq.services.transactions.cli.commands import own_rows
from ringmq.services.transactions.cli.open_halves import OpenHalves, find_open, read_open
from tests.archives import extract_all
from tests.commands import run_ringmq

NOW_MS = 1_000_000
GOLDEN = Path(__file__).parents[1] / "golden" / "store-basic" / "store-basic.tar.gz"
SIZES = {
    "mappedFileSizeCommitLog": 1_048_576, "mappedFileSizeConsumeQueue": 6000, "mapperFileSizeBatchConsumeQueue": 4600,
    "maxHashSlotNum": 100, "maxIndexNum": 400,
}  # fmt: skip
KEEP = {"fileReservedTime": 87_600, "ringmqAcceptUnserved": True, "transactionCheckInterval": 86_400_000}


def half(offset: int, key: str, born_ms: int = NOW_MS - 10, checks: str | None = None) -> MessageExt:
    pairs = {"UNIQ_KEY": key, "PGROUP": "PG", "REAL_TOPIC": "T", "REAL_QID": "3", "KEYS": f"order-{key}"}
    if checks is not None:
        pairs["TRANSACTION_CHECK_TIMES"] = checks
    return MessageExt("RMQ_SYS_TRANS_HALF_TOPIC", b"x", pairs, queue_offset=offset, born_timestamp_ms=born_ms)


def operation(body: bytes) -> MessageExt:
    return MessageExt("RMQ_SYS_TRANS_OP_HALF_TOPIC", body, {"TAGS": "d"})


def test_a_half_is_open_until_an_op_message_names_its_newest_copy() -> None:
    halves = [half(0, "a"), half(1, "b"), half(2, "a", checks="1"), half(3, "c", checks="x"), half(4, "d")]
    rows = find_open(halves, [operation(b"0,1,"), operation(b"4,junk,,\xff")], "broker-a", NOW_MS)
    assert [(row["transactionId"], row["halfOffset"], row["checks"]) for row in rows] == [("a", 2, 1), ("c", 3, 0)]
    assert rows[0] == {
        "broker": "broker-a", "topic": "T", "queueId": "3", "producerGroup": "PG", "key": "order-a",
        "transactionId": "a", "ageMs": 10, "checks": 1, "halfOffset": 2, "commitLogOffset": 0,
    }  # fmt: skip


def test_the_oldest_comes_first_and_a_clock_that_is_behind_counts_as_none() -> None:
    rows = find_open([half(0, "a"), half(1, "b", NOW_MS + 5), half(2, "c", NOW_MS - 99)], [], "b", NOW_MS)
    assert [(row["transactionId"], row["ageMs"]) for row in rows] == [("c", 99), ("a", 10), ("b", 0)]


def test_clients_may_choose_the_same_key() -> None:
    rows = find_open([half(0, "a"), half(1, "a", NOW_MS - 5)], [], "b", NOW_MS)
    assert [row["halfOffset"] for row in rows] == [0, 1]


def listed(broker: RunningBroker, *options: str) -> tuple[list[dict[str, Any]], str]:
    """The rows that the command prints, and its notes."""
    done = run_ringmq("transaction", "list", "-o", "json", *options, "--namesrv", f"127.0.0.1:{broker.namesrv_port}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with the halves that stock has left open: every fifth of 40, checked eleven times."""
    with tarfile.open(GOLDEN) as tar:
        extract_all(tar, tmp_path)
    with RunningBroker(tmp_path / "store-basic", SIZES | KEEP) as broker:
        yield broker


def test_the_command_lists_the_halves_that_a_stock_broker_has_left_open(golden: RunningBroker) -> None:
    rows, notes = listed(golden)
    assert sorted(row["key"] for row in rows) == sorted(f"tx-{number}" for number in range(4, 40, 5))
    assert {(row["topic"], row["producerGroup"], row["checks"]) for row in rows} == {("GoldTx", "PG_TX", 11)}
    assert rows[0]["ageMs"] >= rows[-1]["ageMs"] > 0 and not notes
    assert listed(golden, "--topic", "Other") == listed(golden, "--producer-group", "PG") == ([], "")
    few, notes = listed(golden, "--limit", "3", "--topic", "GoldTx", "--producer-group", "PG_TX")
    assert few == [{**row, "ageMs": few[at]["ageMs"]} for at, row in enumerate(rows[:3])]
    assert notes == "5 more open transactions, see --limit\n"


def test_records_beyond_the_bound_are_counted(golden: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.services.transactions.cli.open_halves.READ_MAX", 4)
    monkeypatch.setattr("ringmq.cli.queue_pages.PULL_COUNT", 4)

    async def read() -> OpenHalves:
        client = RemotingClient()
        try:
            return await read_open(client, golden.address, "broker-a", NOW_MS)
        finally:
            await client.close()

    found = asyncio.run(read())
    assert found.left > 0 and len(found.rows) <= 4


def test_rows_of_a_namespace_have_its_own_names() -> None:
    rows = [{"topic": "ns%T", "producerGroup": "ns%PG"}, {"topic": "T", "producerGroup": "PG"}, {"topic": None,
            "producerGroup": None}]  # fmt: skip
    assert own_rows(rows, "ns") == [{"topic": "T", "producerGroup": "PG"}]
    assert own_rows(rows, "") == rows
