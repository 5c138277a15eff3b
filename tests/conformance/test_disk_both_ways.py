"""RingMQ opens stores of stock RocketMQ and serves all that is in them; a stock broker opens RingMQ's."""

import gzip
import json
import lzma
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.archives import extract_all
from tests.conformance.servers import BROKER_NAME, Server
from tests.conformance.stock_client import StockClient
from tests.suite.samples import Sampled

GOLDEN = Path(__file__).parents[1] / "golden"
VARIANTS = ("crash-kill9", "crash-torn", "crash-torn-body", "crash-live")
# Golden files keep the time at which they were recorded, which is past any ordinary retention. A check of their halves
# would add copies.
KEEP = {"fileReservedTime": 87_600, "transactionCheckInterval": 3_600_000}
SERVED_FIELDS = (
    *("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "flag", "bornTimestamp", "storeTimestamp"),
    *("bornHost", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "properties", "bodyCRC"),
    *("bodyLength", "bodySha256"),
)


def golden_settings(folder: str) -> dict[str, Any]:
    """broker-settings.txt of a golden store, without names and paths."""
    lines = (GOLDEN / folder / "broker-settings.txt").read_text().split()
    pairs = dict(line.split("=", 1) for line in lines)
    return {name: value for name, value in pairs.items() if name.startswith(("mapped", "mapper", "max"))} | KEEP


@pytest.fixture(scope="session")
def manifest() -> list[dict[str, Any]]:
    """One entry per record of store-basic, in log order."""
    with gzip.open(GOLDEN / "store-basic" / "manifest.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def basic(kind: str, started: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A broker on store-basic."""
    root = tmp_path_factory.mktemp("golden-basic")
    with tarfile.open(GOLDEN / "store-basic" / "store-basic.tar.gz") as tar:
        extract_all(tar, root)
    return started(kind, "basic", settings=golden_settings("store-basic"), store=root / "store-basic")


def check_served(served: dict[str, Any], entry: dict[str, Any]) -> None:
    """A message as the stock client shows it is what the manifest says of its record."""
    assert {name: served[name] for name in SERVED_FIELDS} == {name: entry[name] for name in SERVED_FIELDS}
    # the client takes the compressed bit away when it unpacks
    assert served["sysFlag"] == entry["sysFlag"] & ~1


def test_records_of_the_manifest_are_served_by_their_ids(
    basic: Server, stock_client: StockClient, manifest: list[dict[str, Any]], sampled: Sampled
) -> None:
    """A sample, and all that the pulls below leave out."""
    pulled = [entry for entry in manifest if entry["topic"] != "GoldBatchCQ"]
    chosen = sampled(pulled, len(pulled) // 5) + [entry for entry in manifest if entry["topic"] == "GoldBatchCQ"]
    wanted = [[entry["topic"], entry["commitLogOffset"]] for entry in chosen]
    seen = stock_client.call("viewRecords", basic.namesrv, records=wanted)
    assert [served for served in seen if "error" in served] == []
    for served, entry in zip(seen, chosen, strict=True):
        check_served(served, entry)


def test_every_queue_of_the_manifest_is_served_by_pulls(
    basic: Server, stock_client: StockClient, manifest: list[dict[str, Any]]
) -> None:
    by_place = {(e["topic"], e["queueId"], e["queueOffset"]): e for e in manifest if e["topic"] != "GoldBatchCQ"}
    queues = sorted({place[:2] for place in by_place})
    seen = stock_client.call("readQueues", basic.namesrv, broker=BROKER_NAME, routeTopic="GoldA", queues=queues)
    served = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in seen}
    if basic.kind == "ringmq":  # it delivers what is due of delays and timers; stock's halves go on, too
        added = [message["properties"] for place, message in served.items() if place not in by_place]
        assert [pairs for pairs in added if int(pairs.get("DELAY", 0)) == 0 and "TIMER_OUT_MS" not in pairs] == []
    served = {place: message for place, message in served.items() if place in by_place}
    assert served.keys() == by_place.keys()
    for place, message in served.items():
        check_served(message, by_place[place])


def test_inner_batches_are_served_message_by_message(
    basic: Server, stock_client: StockClient, manifest: list[dict[str, Any]]
) -> None:
    entries = [entry for entry in manifest if entry["topic"] == "GoldBatchCQ"]
    seen = stock_client.call("readTopics", basic.namesrv, topics=["GoldBatchCQ"])
    assert [m["queueOffset"] for m in seen] == list(range(sum(entry["batchSize"] for entry in entries)))


def test_keys_of_the_manifest_find_their_messages(
    basic: Server, stock_client: StockClient, manifest: list[dict[str, Any]]
) -> None:
    by_key: dict[str, int] = defaultdict(int)
    for entry in manifest:
        if entry["topic"] == "GoldC":
            for key in (entry["keys"] or "").split():
                by_key[key] += 1
    keys = [key for key, count in by_key.items() if count < 10]
    tricky = [key for key in keys if key in ("Aa", "BB") or key.startswith("MINHASH-")]
    assert len(tricky) == 3
    chosen = tricky + keys[:: max(1, len(keys) // 50)]
    seen = stock_client.call("queryKeys", basic.namesrv, topic="GoldC", keys=chosen)
    assert {key: len(bodies) for key, bodies in seen.items()} == {key: by_key[key] for key in chosen}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_crashed_store_recovers_to_the_recorded_queues(
    variant: str, kind: str, stock_client: StockClient, started: Callable[..., Server], tmp_path: Path
) -> None:
    """A torn tail in the properties is cut as one in the body is; stock serves the damaged record there."""
    with lzma.open(GOLDEN / "store-crashed" / "store-crashed.tar.xz") as packed, tarfile.open(fileobj=packed) as tar:
        members = [member for member in tar if member.name.split("/")[0] == variant]
        extract_all(tar, tmp_path, members)
    answers = "crash-torn-body" if (variant, kind) == ("crash-torn", "ringmq") else variant
    recorded = json.loads((GOLDEN / "store-crashed" / f"{answers}.broker.json").read_text())["queues"]
    server = started(kind, variant, settings=golden_settings("store-crashed"), store=tmp_path / variant)
    queues = [[q["topic"], q["queueId"]] for q in recorded]
    options = {"broker": BROKER_NAME, "routeTopic": "CrashA", "queues": queues}
    ranges = stock_client.call("queueRanges", server.namesrv, **options)
    wanted = [[q["minOffset"], q["maxOffset"]] for q in recorded]
    for (topic, _), (low, high), (least, most) in zip(queues, ranges, wanted, strict=True):
        assert low == least
        # a delay that is due by now leaves its queue's maximum as it is, but adds to CrashA or CrashB
        assert high == most or (topic in ("CrashA", "CrashB") and high > most)
    messages = stock_client.call("readQueues", server.namesrv, **options)
    for (topic, queue_id), (low, high) in zip(queues, ranges, strict=True):
        offsets = [m["queueOffset"] for m in messages if (m["topic"], m["queueId"]) == (topic, queue_id)]
        assert offsets[: high - low] == list(range(low, high))  # the next delay may come meanwhile
    server.kill()


@pytest.fixture(scope="module")
def begun(kind: str, stock_client: StockClient, started: Callable[..., Server]) -> dict[str, Any]:
    """A broker of the kind that has written a store over several files, and what a consumer read from it."""
    server = started(kind, "disk")
    stock_client.call("fill", server.namesrv, topic="DiskA", queues=4, start=0, count=1500)
    stock_client.call("fill", server.namesrv, topic="DiskB", queues=1, start=0, count=300)
    group = {"group": "DiskGroup", "topic": "DiskB"}
    stock_client.call("holdConsumer", server.namesrv, expression="*", count=360, **group)
    stock_client.call("releaseConsumer", server.namesrv, **group)
    messages = stock_client.call("readTopics", server.namesrv, topics=["DiskA", "DiskB"])
    assert len(messages) == (1350 + 150 * 3) + (270 + 30 * 3)
    return {"server": server, "messages": messages}


def stock_serves(
    store: Path, messages: list[dict[str, Any]], stock_client: StockClient, started: Callable[..., Server]
) -> Server:
    """A stock broker on `store` serves `messages` and finds some by key; it is returned running."""
    stock = started("stock-broker", store.name, store=store)
    assert stock_client.call("readTopics", stock.namesrv, topics=["DiskA", "DiskB"]) == messages
    # from the first, the middle and the last index file
    keys = [f"key-{number}" for number in (1, 2, 701, 1401, 1498)]
    found = stock_client.call("queryKeys", stock.namesrv, topic="DiskA", keys=keys)
    assert found == {key: [key.replace("key-", "body ")] for key in keys}
    return stock


def test_a_stock_broker_serves_a_store_of_ours_and_hands_it_back(
    begun: dict[str, Any], kind: str, stock_client: StockClient, started: Callable[..., Server], tmp_path: Path
) -> None:
    """Clean stop; stock; more messages by stock; ours again; kill -9 under us; stock again."""
    server, messages = begun["server"], begun["messages"]
    server.stop()
    store = tmp_path / "stopped"
    shutil.copytree(server.store, store)
    stock = stock_serves(store, messages, stock_client, started)
    # the group's offsets came along: only what is new reaches it
    stock_client.call("fill", stock.namesrv, topic="DiskB", queues=1, start=1000, count=10)
    group = {"group": "DiskGroup", "topic": "DiskB"}
    assert stock_client.call("holdConsumer", stock.namesrv, expression="*", count=12, **group) == 12
    stock_client.call("releaseConsumer", stock.namesrv, **group)
    after_stock = stock_client.call("readTopics", stock.namesrv, topics=["DiskA", "DiskB"])
    assert len(after_stock) == len(messages) + 12
    stock.stop()

    again = started(kind, "again", store=store)
    assert stock_client.call("readTopics", again.namesrv, topics=["DiskA", "DiskB"]) == after_stock
    stock_client.call("fill", again.namesrv, topic="DiskA", queues=4, start=2000, count=200)
    everything = stock_client.call("readTopics", again.namesrv, topics=["DiskA", "DiskB"])
    again.kill()
    killed = tmp_path / "killed"
    shutil.copytree(store, killed)
    assert (killed / "abort").exists()
    last = stock_serves(killed, everything, stock_client, started)
    newest = stock_client.call("queryKeys", last.namesrv, topic="DiskA", keys=["key-2198"])
    assert newest == {"key-2198": ["body 2198"]}
    last.kill()
