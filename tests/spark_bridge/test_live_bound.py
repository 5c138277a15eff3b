"""A live RingMQ with sync flush whose flush worker is stopped: what is appended and not durable is not readable."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from ringmq.client import Message, Producer, RetryPolicy, SendResult
from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import worker_name
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.conformance import servers
from tests.waiting import until, wait_until

pytestmark = pytest.mark.timeout(400)
T = TypeVar("T")
SETTINGS = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 120_000, "mappedFileSizeCommitLog": 1 << 20}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.RingmqServer]:
    running = servers.RingmqServer(tmp_path, SETTINGS)
    try:
        yield running
    finally:
        running.close()


def worker(server: servers.RingmqServer, name: str) -> int:
    """A worker's process, found in the live process table."""
    owner = read_watermarks(server.store).owner_pid
    for process in psutil.process_iter(["cmdline"]):
        is_named = worker_name(process.info["cmdline"] or ()) == name
        if is_named and owner in [parent.pid for parent in process.parents()]:
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


async def while_unanswered(server: servers.RingmqServer, look: Callable[[], T]) -> T:
    """Send a message that the broker cannot confirm. What `look` returns once it is in the log."""

    def is_appended() -> bool:
        marks = read_watermarks(server.store)
        return marks.append_offset > marks.confirm_offset

    waiting = asyncio.create_task(send(server.namesrv, b"not yet", RetryPolicy(attempts=1, budget_ms=120_000)))
    try:
        await until(is_appended, "the message is in the log")
        found = await asyncio.to_thread(look)
        assert not waiting.done(), "its producer waits"
        return found
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


def test_nothing_beyond_the_confirm_offset(server: servers.RingmqServer) -> None:
    asyncio.run(send(server.namesrv, b"durable"))
    assert bodies(server.store) == {b"durable"}, "an acknowledged message is readable at once"
    flusher = worker(server, "flush")
    os.kill(flusher, signal.SIGSTOP)
    try:
        assert asyncio.run(while_unanswered(server, lambda: bodies(server.store))) == {b"durable"}
    finally:
        os.kill(flusher, signal.SIGCONT)
    wait_until(
        lambda: bodies(server.store) == {b"durable", b"not yet"}, "the flush goes on and the message is readable"
    )
    server.stop()
    assert bodies(server.store) == {b"durable", b"not yet"}, "without an owner the queues' end is the bound"
