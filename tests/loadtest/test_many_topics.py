"""The load generator on many topics at once, and its consumer, against a real broker."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.tools import Loader, ToolError, Tools, arguments_of, build_tools

TOPICS, QUEUES, CONNECTIONS = 8, 4, 4


@pytest.fixture(scope="module")
def tools() -> Tools:
    return build_tools()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"mappedFileSizeCommitLog": 64 << 20, "diskMaxUsedSpaceRatio": 95}
    with RunningBroker(tmp_path_factory.mktemp("many") / "store", settings) as running:
        yield running


@pytest.mark.io_uring
def test_many_topics_are_filled_evenly_and_consumed_whole(tools: Tools, broker: RunningBroker) -> None:
    loader = Loader(tools, broker.port)
    options = {"topic": "Many", "topics": TOPICS, "queues": QUEUES}
    assert loader.run("create", **options)["ok"]
    words = arguments_of({"port": broker.port, "connections": 2, "idle_ms": 5000, **options})
    consumer = subprocess.Popen([str(tools.load), "consume", *words], stdout=subprocess.PIPE, text=True)
    sent = loader.run(
        "send",
        connections=CONNECTIONS,
        depth=8,
        size=100,
        messages=3200,
        check=True,
        read_back=True,
        settle_ms=60_000,
        **options,
    )
    assert sent["ok"], sent
    assert sent["acked"] == sent["check"]["read"] == 3200
    assert sent["check"]["keys_found"] == sent["check"]["keys_asked"] > 8
    consumed = json.loads(consumer.communicate(timeout=60)[0])
    assert consumed["ok"], consumed
    assert (consumed["read"], consumed["read_crc_sum"]) == (3200, sent["check"]["crc_sum"])
    each = [loader.run("verify", topic=f"Many-{number}", queues=QUEUES)["read"] for number in range(TOPICS)]
    assert sum(each) == 3200
    # Each connection goes round the queues, so its queues differ by at most one message.
    assert all(abs(read - 3200 // TOPICS) <= CONNECTIONS * QUEUES for read in each), each


def test_more_queues_than_it_can_count_are_refused(tools: Tools) -> None:
    with pytest.raises(ToolError, match="at most 16384"):
        Loader(tools, 1).run("send", topics=300, queues=64)


def test_keys_are_looked_up_in_one_topic(tools: Tools, broker: RunningBroker) -> None:
    with pytest.raises(ToolError, match="one topic only"):
        Loader(tools, broker.port).run("keys", topics=2, messages=1)
