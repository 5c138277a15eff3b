"""A `FakeCluster` on an event loop in a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.client.fake_broker import FakeCluster


@contextmanager
def threaded_cluster(kind: type[FakeCluster] = FakeCluster, **options: Any) -> Iterator[FakeCluster]:
    """The cluster, until the block ends. What a test reads of it is only appended to."""
    started: list[tuple[FakeCluster, asyncio.AbstractEventLoop, asyncio.Event]] = []
    ready = threading.Event()

    async def serve() -> None:
        async with kind(**options) as cluster:
            over = asyncio.Event()
            started.append((cluster, asyncio.get_running_loop(), over))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    cluster, loop, over = started[0]
    try:
        yield cluster
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
