"""The queue table of a live broker, read from outside, against what its ConsumeQueue files say."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.cli.admin import Admin
from ringmq.client import RetryPolicy, compose_message
from ringmq.client.blocking import Producer
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.topics import is_user_topic
from ringmq.ipc.watermark import read_watermarks
from ringmq.spark_bridge.live_queues import LiveQueues
from ringmq.spark_bridge.slices import QueueKey
from ringmq.store.inferred_config import config_without_index
from ringmq.store.message_store import MessageStore
from tests.conformance import servers
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.RingmqServer]:
    running = servers.RingmqServer(tmp_path, {"mappedFileSizeCommitLog": 1 << 20})
    try:
        yield running
    finally:
        running.close()


def send(namesrv: str, topic: str, count: int) -> None:
    with Producer(namesrv, retry=RetryPolicy(attempts=16, budget_ms=30_000)) as producer:  # a deleted topic ends slowly
        producer.send(compose_message(topic, b"first"))
        producer.send_all(compose_message(topic, b"x") for _ in range(count - 1))


def ends_in_files(store: Path) -> dict[QueueKey, int]:
    files = MessageStore(config_without_index(store))
    return {
        QueueKey(queue.topic, "b", queue.queue_id): files.max_offset(queue.topic, queue.queue_id, 1 << 62)
        for queue in files.queue_names()
    }


def with_rows(live: LiveQueues) -> dict[QueueKey, int]:
    return {key: end for key, end in live.ends().items() if end}


def rows_of(live: LiveQueues, topic: str) -> int:
    return sum(end for key, end in live.ends().items() if key.topic == topic)


def test_ends_are_those_of_the_files_and_follow_the_broker(server: servers.RingmqServer) -> None:
    assert LiveQueues.open(server.store.parent, "b", is_user_topic) is None, "no broker on that folder"
    live = LiveQueues.open(server.store, "b", is_user_topic)
    assert live is not None
    assert live.start_id == read_watermarks(server.store).start_id
    send(server.namesrv, "One", 50)
    wait_until(lambda: rows_of(live, "One") == 50, "all are dispatched")
    send(server.namesrv, "Two", 7)
    wait_until(lambda: rows_of(live, "Two") == 7, "a topic made since")
    assert with_rows(live) == ends_in_files(server.store)


def test_a_deleted_topic_is_not_there_and_one_made_again_begins_anew(server: servers.RingmqServer) -> None:
    live = LiveQueues.open(server.store, "b", is_user_topic)
    assert live is not None
    send(server.namesrv, "Again", 40)

    async def delete() -> None:
        client = RemotingClient()
        try:
            await Admin(client, [server.namesrv]).delete_topic("Again")
        finally:
            await client.close()

    asyncio.run(delete())
    assert not [key for key in live.ends() if key.topic == "Again"]
    wait_until(lambda: not (server.store / "consumequeue" / "Again").exists(), "the folder is gone")
    send(server.namesrv, "Again", 4)
    wait_until(lambda: rows_of(live, "Again") == 4, "the new topic")


def test_the_next_start_of_the_broker_has_a_table_of_its_own(server: servers.RingmqServer, tmp_path: Path) -> None:
    live = LiveQueues.open(server.store, "b", is_user_topic)
    assert live is not None
    server.kill()
    again = servers.RingmqServer(tmp_path / "again", {"mappedFileSizeCommitLog": 1 << 20}, store=server.store)
    try:
        assert read_watermarks(server.store).start_id != live.start_id
    finally:
        again.kill()
