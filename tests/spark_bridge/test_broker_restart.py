"""A RingMQ broker is killed while its rows are pulled: the read goes on when it is back, with the same rows."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.client import Message, Producer
from ringmq.spark_bridge import tcp_reader
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.conformance import servers
from tests.waiting import wait_dispatched

pytestmark = pytest.mark.timeout(400)

COUNT, BATCH = 24_000, 100
COLUMNS = ("partition", "offset", "value")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.RingmqServer]:
    running = servers.RingmqServer(tmp_path, {"mappedFileSizeCommitLog": 8 << 20})
    yield running
    running.close()


async def fill(namesrv: str) -> None:
    """24 MB over the four queues of a topic."""
    async with Producer(namesrv) as producer:
        for first in range(0, COUNT, BATCH):
            bodies = (b"%d" % number for number in range(first, first + BATCH))
            await producer.send_batch([Message("Restart", body.ljust(1000, b".")) for body in bodies])


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_a_read_goes_on_after_a_restart(
    server: servers.RingmqServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("TRIES_MAX", "TRIES_FOR_OFFSET_MAX"):  # a start may take longer on a busy machine
        monkeypatch.setattr(tcp_reader, limit, 1000)
    asyncio.run(fill(server.namesrv))
    wait_dispatched(server.store)
    options = parse_options({"bootstrap": server.namesrv, "transport": "tcp", "subscribe": "Restart"})
    parts = plan_batch(open_catalog(options), options)
    batches = (batch for part in parts for batch in read_slice(part, COLUMNS, ReadSettings(transport="tcp")))
    rows = next(batches).to_pylist()
    (server.kill if way == "kill" else server.stop)()
    starting = threading.Thread(target=server.restart)
    starting.start()
    for batch in batches:
        rows += batch.to_pylist()
    starting.join()
    places = [(row["partition"], row["offset"]) for row in rows]
    assert len(places) == len(set(places)) == COUNT
    assert {row["value"].rstrip(b".") for row in rows} == {b"%d" % number for number in range(COUNT)}
    for queue in range(4):
        offsets = [offset for partition, offset in places if partition == queue]
        assert offsets == sorted(offsets)
