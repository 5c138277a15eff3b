"""A live RingMQ with sync flush whose flush worker is stopped: what is appended and not durable is not readable."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ringmq.client import Message, Producer, RetryPolicy, SendError, SendResult
from ringmq.ipc.watermark import read_watermarks
from ringmq.spark_bridge.catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.slice_reader import ReadSettings, read_slice
from tests.conformance import servers
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.RingmqServer]:
    running = servers.RingmqServer(tmp_path, {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": 1 << 20})
    try:
        yield running
    finally:
        running.close()


def worker(server: servers.RingmqServer, name: str) -> int:
    """A worker's process, found in the live process table."""
    owner = read_watermarks(server.store).owner_pid
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if f"worker {name}" in line and owner in [parent.pid for parent in process.parents()]:
            return process.pid
    raise AssertionError(f"no {name} worker found")


def bodies(store: Path) -> set[bytes]:
    options = parse_options({"store": str(store), "subscribePattern": "Bound"})
    parts = plan_batch(open_catalog(options), options)
    batches = [batch for part in parts for batch in read_slice(part, ("value",), ReadSettings())]
    return {value for batch in batches for value in batch.column(0).to_pylist()}


async def send(namesrv: str, body: bytes, retry: RetryPolicy | None = None) -> SendResult:
    async with Producer(namesrv, retry=retry or RetryPolicy(budget_ms=30_000)) as producer:
        return await producer.send(Message("Bound", body))


def test_nothing_beyond_the_confirm_offset(server: servers.RingmqServer) -> None:
    asyncio.run(send(server.namesrv, b"durable"))
    assert bodies(server.store) == {b"durable"}, "an acknowledged message is readable at once"
    flusher = worker(server, "flush")
    os.kill(flusher, signal.SIGSTOP)
    try:
        with pytest.raises(SendError):
            asyncio.run(send(server.namesrv, b"not yet", RetryPolicy(attempts=1, budget_ms=3000)))
        marks = read_watermarks(server.store)
        assert marks.append_offset > marks.flushed_offset, "the message is in the log"
        assert bodies(server.store) == {b"durable"}
    finally:
        os.kill(flusher, signal.SIGCONT)
    wait_until(
        lambda: bodies(server.store) == {b"durable", b"not yet"}, "the flush goes on and the message is readable"
    )
    server.stop()
    assert bodies(server.store) == {b"durable", b"not yet"}, "without an owner the queues' end is the bound"
