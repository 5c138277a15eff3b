"""The stock Java 5.3.3 client, unmodified, against the broker: what it sends is what it reads, in every mode."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.cases import ONE_SECOND_LEVELS, case, judged
from tests.conformance.servers import BROKER_NAME, Server
from tests.conformance.stock_client import StockClient
from tests.server_pool import ServerPool

WITH_A_TIME = ("delay", "timerDelayMs", "timerDelaySec", "timerDeliverMs")
MAX_BODY = 4 << 20
REBALANCE_NOTICE_S = 8.0  # well under the client's own rebalance period of 20 s: only a notice makes it that fast


@dataclass(frozen=True)
class Setup:
    """A client and a server that differ from the other set-up in all that settings can change between them."""

    name: str
    stock_client: StockClient
    server: Server


@pytest.fixture(params=[("json", "default"), ("binary", "sync")], ids=["json", "binary-sync"])
def setup(
    request: pytest.FixtureRequest,
    kind: str,
    stock_clients: Callable[[str], StockClient],
    shared_servers: ServerPool,
) -> Setup:
    """The plain client on a default server; binary headers and port - 2 on one with sync flush and two readers."""
    client, server = request.param
    return Setup(client, stock_clients(client), shared_servers(kind, server))


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def test_sends_of_every_kind_are_read_back(setup: Setup) -> None:
    topic = f"Send_{setup.name}"
    seen = setup.stock_client.call("send", setup.server.namesrv, topic=topic)
    stored = {message["body"]: message for message in seen["stored"]}
    assert len(seen["stored"]) == len(stored) == 133
    check_single(seen["sync"], stored["sync 0"])
    assert stored["sync 0"]["flag"] == 7
    properties = stored["sync 0"]["properties"]
    assert {k: properties[k] for k in ("TAGS", "KEYS", "colour", "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT")} == {
        "TAGS": "TagA",
        "KEYS": "sync-0",
        "colour": "grün",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "WAIT": "true",
    }
    check_single(seen["toQueue"], stored["to queue 3"])
    assert seen["toQueue"]["queueId"] == 3
    assert seen["selected"]["queueId"] == stored["selected"]["queueId"] == 2
    check_async(seen["async"], seen["stored"])
    assert all(f"oneway {i}" in stored for i in range(20))
    check_batch(setup.server.kind, seen["batch"], [stored[f"batch {i}"] for i in range(10)])
    check_queue_offsets(seen["stored"])
    assert seen["auto"]["status"] == "SEND_OK" and seen["autoQueues"] == 4
    assert [message["body"] for message in seen["storedAuto"]] == ["auto 0"]


def check_single(sent: dict[str, Any], stored: dict[str, Any]) -> None:
    assert sent["status"] == "SEND_OK" and sent["regionId"] == "DefaultRegion" and sent["traceOn"]
    assert (sent["queueId"], sent["queueOffset"]) == (stored["queueId"], stored["queueOffset"])
    assert sent["msgId"] == stored["properties"]["UNIQ_KEY"]
    host, port = stored["storeHost"].split(":")
    packed = bytes(map(int, host.split("."))) + int(port).to_bytes(4) + stored["commitLogOffset"].to_bytes(8)
    assert sent["offsetMsgId"] == packed.hex().upper()


def check_async(seen: dict[str, Any], stored: list[dict[str, Any]]) -> None:
    assert seen["answered"] and seen["failed"] == 0
    places = {(r["queueId"], r["queueOffset"], r["msgId"]) for r in seen["results"]}
    found = {(m["queueId"], m["queueOffset"], m["properties"]["UNIQ_KEY"]) for m in stored}
    assert len(places) == 100 and places <= found


def check_batch(kind: str, sent: dict[str, Any], stored: list[dict[str, Any]]) -> None:
    assert sent["status"] == "SEND_OK"
    ids, seen = sent["msgId"].split(","), [m["properties"]["UNIQ_KEY"] for m in stored]
    assert len(set(ids)) == len(stored)
    # stock stores the unique key of the whole batch behind that of each message, and readers then see it
    assert seen == ids if kind == "ringmq" else len(set(seen)) == 1 and seen[0] not in ids
    assert len(sent["offsetMsgId"].split(",")) == len(stored)
    assert [m["queueOffset"] for m in stored] == list(range(sent["queueOffset"], sent["queueOffset"] + len(stored)))
    assert {m["queueId"] for m in stored} == {sent["queueId"]}


def check_queue_offsets(stored: list[dict[str, Any]]) -> None:
    """Every queue runs 0, 1, 2, … and its places in the log rise."""
    for queue_id in {m["queueId"] for m in stored}:
        mine = [m for m in stored if m["queueId"] == queue_id]
        assert [m["queueOffset"] for m in mine] == list(range(len(mine)))
        places = [m["commitLogOffset"] for m in mine]
        assert places == sorted(set(places))


def test_compressed_bodies_come_back_whole(server: Server, stock_client: StockClient) -> None:
    seen = stock_client.call("compressed", server.namesrv, topic="Compressed")
    stored = seen.pop("stored")
    assert [m["bodySha256"] for m in stored] == [seen[kind]["bodySha256"] for kind in ("LZ4", "ZSTD", "ZLIB")]
    # the client takes the compressed bit away when it unpacks; the kind of compression stays
    assert [m["sysFlag"] for m in stored] == [0x100, 0x200, 0x300]
    assert all(m["storeSize"] < m["bodyLength"] for m in stored)


def test_bodies_up_to_4_mib_are_stored_and_larger_ones_refused(server: Server, stock_client: StockClient) -> None:
    sizes = [MAX_BODY - 1024, MAX_BODY, MAX_BODY + 1]
    seen = stock_client.call("bigBodies", server.namesrv, topic="Big", sizes=sizes)
    fits = [seen[str(size)] for size in sizes[:2]]
    assert [m["bodySha256"] for m in seen["stored"]] == [outcome["bodySha256"] for outcome in fits]
    assert seen[str(MAX_BODY + 1)]["code"] == 13


def test_sends_with_a_time_are_taken_and_wait(server: Server, stock_client: StockClient) -> None:
    seen = stock_client.call("refusedSends", server.namesrv, topic="Refused")
    assert all(seen[name].get("status") == "SEND_OK" for name in WITH_A_TIME)
    if server.kind != "stock":
        assert seen["stored"] == [], "none of them is due yet"


def test_clustering_group_shares_the_queues_and_follows_its_members(setup: Setup) -> None:
    seen = setup.stock_client.call("clustering", setup.server.namesrv, topic=f"Clustering_{setup.name}")
    assert seen["alone"]["first"] == list(range(8))
    joined = seen["joined"]
    assert sorted(joined["first"] + joined["second"]) == list(range(8))
    assert len(joined["first"]) == len(joined["second"]) == 4 and joined["seconds"] < REBALANCE_NOTICE_S
    assert seen["left"]["first"] == list(range(8)) and seen["left"]["seconds"] < REBALANCE_NOTICE_S
    everything = numbered("one-", 40) + numbered("two-", 40) + numbered("three-", 40)
    received = Counter(seen["atFirst"] + seen["atSecond"])
    assert set(received) == set(everything)
    assert all(count == 1 for body, count in received.items() if body.startswith("one-"))
    assert any(body.startswith("two-") for body in seen["atSecond"])
    assert sorted(seen["afterReturn"]) == numbered("four-", 8)


def test_broadcasting_gives_every_member_everything(server: Server, stock_client: StockClient) -> None:
    received = stock_client.call("broadcasting", server.namesrv, topic="Broadcasting")
    assert [sorted(bodies) for bodies in received] == [sorted(numbered("all-", 40))] * 2


def test_orderly_consumers_keep_the_order_and_never_share_a_queue(server: Server, stock_client: StockClient) -> None:
    seen = stock_client.call("orderly", server.namesrv, topic="Orderly")
    assert seen["suspended"] and seen["shared"] and not seen["overlap"]
    assert seen["order"] == [list(range(50))] * 4
    assert all(seen["byMember"])


@judged(case("reconsumeLater", "Reconsume", server=ONE_SECOND_LEVELS, broker=BROKER_NAME))
def test_a_failed_message_comes_again(kind: str, seen: dict[str, Any]) -> None:
    assert sorted(seen["others"]) == [body for body in numbered("fails-", 8) if body != "fails-3"]
    assert [attempt["reconsumeTimes"] for attempt in seen["attempts"]] == [0, 1]
    assert seen["committed"] == 8


def test_lite_pull_by_subscription(setup: Setup) -> None:
    seen = setup.stock_client.call("litePullSubscribe", setup.server.namesrv, topic=f"LiteSubscribe_{setup.name}")
    assert sorted(seen["first"]) == sorted(numbered("one-", 40))
    assert sorted(seen["second"]) == numbered("two-", 8)


def test_lite_pull_by_assignment_and_seek(server: Server, stock_client: StockClient) -> None:
    seen = stock_client.call("litePullAssign", server.namesrv, topic="LiteAssign")
    everything = numbered("n-", 10) + numbered("m-", 10)
    assert seen["from5"] == everything[5:]
    assert seen["fromBegin"] == everything
    assert (seen["offsetForTimestamp"], seen["committed"], seen["fromEnd"]) == (10, 12, ["last"])


def test_pulls_at_the_edges_of_a_queue(setup: Setup) -> None:
    seen = setup.stock_client.call("pullEdges", setup.server.namesrv, topic=f"Edges_{setup.name}")

    def pulled(status: str, next_offset: int, found: int, top: int = 40) -> dict[str, Any]:
        return {"status": status, "next": next_offset, "min": 0, "max": top, "found": found}

    assert seen["begin"] == pulled("FOUND", 32, 32)
    assert seen["middle"] == pulled("FOUND", 40, 5)
    assert seen["end"] == pulled("NO_NEW_MSG", 40, 0)
    assert seen["beyond"] == pulled("OFFSET_ILLEGAL", 40, 0)
    assert seen["emptyBegin"] == pulled("NO_NEW_MSG", 0, 0, 0)
    assert seen["emptyBeyond"] == pulled("OFFSET_ILLEGAL", 0, 0, 0)
    assert seen["filtered"] == pulled("FOUND", 40, 4)
    assert seen["noMatch"] == pulled("NO_MATCHED_MSG", 40, 0)
    assert (seen["min"], seen["max"], seen["emptyMin"], seen["emptyMax"]) == (0, 40, 0, 0)
    assert (seen["searchZero"], seen["searchFuture"], seen["emptySearch"]) == (0, 40, 0)
    assert 0 <= seen["earliestAgeMs"] < 60_000
    assert seen["heldBeforeSend"] and seen["woken"] == pulled("FOUND", 41, 1, 41)
    assert seen["wokenSeconds"] < 15, "the broker holds the pull for 20 s"


def test_tag_filters_and_two_tags_with_one_hash(server: Server, stock_client: StockClient) -> None:
    wanted = {"*": ["TagA", "TagB", "Aa", "BB", "null", "中文"], "TagA || TagB": ["TagA", "TagB"], "Aa": ["Aa"]}
    wanted |= {"中文": ["中文"], "None": []}
    expected = sum(10 * len(tags) for tags in wanted.values())
    received = stock_client.call(
        "tagFilters", server.namesrv, topic="Tags", expressions=list(wanted), expected=expected
    )
    for expression, tags in wanted.items():
        assert Counter(body.rsplit("-", 1)[0] for body in received[expression]) == dict.fromkeys(tags, 10), expression


def test_queries_by_key_by_unique_id_and_by_offset_id(setup: Setup) -> None:
    seen = setup.stock_client.call("query", setup.server.namesrv, topic=f"Query_{setup.name}")
    assert seen["indexed"]
    assert (seen["only"], seen["own"]) == (["only"], ["shared 3"])
    assert seen["shared"] == numbered("shared ", 5) and seen["sharedTwo"] == 2
    assert (seen["Aa"], seen["BB"]) == (["key Aa"], ["key BB"])
    is_ringmq = setup.server.kind == "ringmq"  # in stock all messages of a batch have the batch's unique key
    assert seen["batchByUniqueIds"] == (["batch 0", "batch 1"] if is_ringmq else ["code 208"] * 2)
    assert (seen["missing"], seen["tooEarly"]) == (["code 208"], ["code 208"])
    assert seen["byUniqueId"]["body"] == seen["byOffsetId"]["body"] == "only"
    assert seen["byUniqueId"]["commitLogOffset"] == seen["byOffsetId"]["commitLogOffset"]
    assert isinstance(seen["wrongOffsetId"], str)


def test_new_groups_on_a_short_young_topic_start_at_its_begin(server: Server, stock_client: StockClient) -> None:
    """Stock answers offset 0 while the first message is in memory, so the chosen starting point does not count yet."""
    received = stock_client.call("consumeFromWhere", server.namesrv, topic="FromWhere")
    everything = sorted(numbered("old-", 10) + numbered("new-", 10))
    assert {where: sorted(bodies) for where, bodies in received.items()} == dict.fromkeys(received, everything)
    assert len(received) == 3


def test_a_new_group_misses_no_first_message(server: Server, stock_client: StockClient) -> None:
    """Stock loses it now and then: 22 for an empty queue, a message arrives, then the client asks for the maximum."""
    missed = stock_client.call("firstMessage", server.namesrv, topic="First", rounds=12, seed=7)
    if server.kind == "ringmq":
        assert missed == []


def test_hundreds_of_topics(server: Server, stock_client: StockClient) -> None:
    seen = stock_client.call("manyTopics", server.namesrv, topic="Many", count=300, timeout_s=200)
    print(f"seconds since the start: {seen.pop('seconds')}")
    assert seen == {"listed": 300, "received": 300, "wrong": []}


def test_body_digests_are_of_the_bytes(stock_client: StockClient, server: Server) -> None:
    """The stock client's own digest, checked against ours, so that equal digests mean equal bytes."""
    stock_client.call("fill", server.namesrv, topic="Digest", queues=1, start=1, count=1)
    (message,) = stock_client.call("readTopics", server.namesrv, topics=["Digest"])
    assert message["bodySha256"] == hashlib.sha256(b"body 1").hexdigest()
