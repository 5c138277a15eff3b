"""Retention of a running broker spares a log file that a task reads, says so once, and takes it afterwards."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.client import Message, Producer
from ringmq.spark_bridge.errors import DataLossError
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.conformance import servers
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

FILE_BYTES = 1 << 20
EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
SETTINGS = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "deleteWhen": EVERY_HOUR,
    "fileReservedTime": 1,
    "cleanResourceInterval": 100,
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.RingmqServer]:
    """A broker with some files of log."""
    running = servers.RingmqServer(tmp_path, SETTINGS)
    try:
        asyncio.run(_fill(running.namesrv))
        yield running
    finally:
        running.close()


async def _fill(namesrv: str) -> None:
    async with Producer(namesrv) as producer:
        for _ in range(40):
            await producer.send(Message("Held", os.urandom(100_000)))


def _grow_old(paths: list[Path]) -> None:
    """As if nobody had written for longer than fileReservedTime."""
    for path in paths:
        os.utime(path, (time.time() - 7200,) * 2)


def test_a_scan_holds_its_files(server: servers.RingmqServer) -> None:
    options = parse_options({"store": str(server.store), "subscribe": "Held"})
    parts = plan_batch(open_catalog(options), options)
    first, second, third = sorted((server.store / "commitlog").iterdir())[:3]
    part = next(part for part in parts if part.log and part.log.begin == FILE_BYTES)
    batches = read_slice(part, ("value",), ReadSettings(batch_rows=1))
    assert next(iter(batches)).num_rows == 1
    _grow_old([first, second, third])
    wait_until(lambda: not first.exists(), "the file in front of the one that is read is deleted")
    told = f"retention waits: another process reads {second}"
    log = server.store.parent / "ringmq" / "stderr.txt"
    wait_until(lambda: told in log.read_text(), "the log says who waits for whom")
    rows = 1 + sum(batch.num_rows for batch in batches)
    assert rows == part.rows_max, "the scan gets all that was planned"
    wait_until(lambda: not third.exists(), "the files go when the reader has ended")
    assert log.read_text().count(told) == 1
    with pytest.raises(DataLossError, match=f"offset {FILE_BYTES} is before the first file: retention"):
        list(read_slice(part, ("value",), ReadSettings()))
