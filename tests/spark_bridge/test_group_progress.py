"""A stream's place in a consumer group: it arrives, and where it cannot nothing else suffers."""

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.client import MessageQueue, compose_message
from ringmq.client.blocking import Producer
from ringmq.client.connections.name_servers import NameServers, RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.offsets import QueueOffsets
from ringmq.spark_bridge.group_progress import GroupProgress
from ringmq.spark_bridge.slices import QueueKey
from tests.conformance import servers
from tests.speed import allowed
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

QUEUES = [QueueKey("Watched", servers.BROKER_NAME, number) for number in range(4)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.RingmqServer]:
    running = servers.RingmqServer(tmp_path, {"mappedFileSizeCommitLog": 1 << 20})
    try:
        with Producer(running.namesrv) as producer:
            producer.send(compose_message("Watched", b"makes the topic"))
        wait_until(lambda: is_routed(running.namesrv, "Watched"), "the name server knows the topic")
        yield running
    finally:
        running.close()


def is_routed(namesrv: str, topic: str) -> bool:
    async def ask() -> bool:
        client = RemotingClient()
        try:
            return await RouteTable(NameServers(client, [namesrv])).fetch(topic) is not None
        finally:
            await client.close()

    return asyncio.run(ask())


def committed(namesrv: str, group: str) -> dict[QueueKey, int | None]:
    async def ask() -> dict[QueueKey, int | None]:
        client = RemotingClient()
        offsets = QueueOffsets(client, RouteTable(NameServers(client, [namesrv])))
        try:
            return {key: await offsets.committed(group, MessageQueue(*key)) for key in QUEUES}
        finally:
            await client.close()

    return asyncio.run(ask())


def test_the_newest_place_arrives_and_the_group_is_made(server: servers.RingmqServer) -> None:
    progress = GroupProgress(server.namesrv, "stream_watchers")
    try:
        for offset in range(1, 50):
            progress.report(dict.fromkeys(QUEUES, offset))
        wait_until(lambda: set(committed(server.namesrv, "stream_watchers").values()) <= {1, 49}, "the first came")
        last = {key: 50 + number for number, key in enumerate(QUEUES)}
        progress.report(last)
    finally:
        progress.close()
    assert committed(server.namesrv, "stream_watchers") == last, "what was reported last is committed at the end"
    assert is_routed(server.namesrv, "%RETRY%stream_watchers"), "mqadmin consumerProgress asks for this route"


def test_a_topic_that_is_gone_is_no_obstacle(server: servers.RingmqServer) -> None:
    progress = GroupProgress(server.namesrv, "stream_watchers")
    place = dict.fromkeys(QUEUES, 7)
    progress.report(place)
    wait_until(lambda: committed(server.namesrv, "stream_watchers") == place, "the first place")
    progress.report({**place, QueueKey("Unknown", servers.BROKER_NAME, 0): 3, QUEUES[0]: 9})
    wait_until(lambda: committed(server.namesrv, "stream_watchers")[QUEUES[0]] == 9, "the others are committed")
    progress.close()


def test_without_a_broker_a_report_costs_nothing_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        progress = GroupProgress("127.0.0.1:1", "nobody")
        started = time.thread_time()
        for offset in range(100):
            progress.report(dict.fromkeys(QUEUES, offset))
        assert time.thread_time() - started < allowed(1.0)
        wait_until(lambda: "not committed to group nobody" in caplog.text, "the warning")
        progress.close()
