"""Commits of a query's offsets to a consumer group, so that tools for groups show them. Nothing reads them back.

Commits run in a thread of their own, the newest offsets at most once a second. So a batch never waits for them, and a
failure is a line in the log.
"""

import asyncio
import contextlib
import logging
import threading

from ringmq.client import MessageQueue, RingmqError
from ringmq.client.consuming.offset_committer import OffsetCommitter
from ringmq.spark_bridge.slices import QueueKey
from ringmq.spark_bridge.stream_core import Offsets

INTERVAL_S = 1.0
CLOSE_TIMEOUT_S = 5.0

_log = logging.getLogger("ringmq.spark_bridge")


class GroupProgress:
    """Commits the progress of `group` to the brokers behind the name servers `bootstrap`."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._place: Offsets = {}
        self._tried = threading.Event()
        self._tried.set()
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._hurried = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._follow(),), name=f"progress of {group}", daemon=True
        )
        self._thread.start()

    def report(self, place: Offsets) -> None:
        """Commit `place`, or newer offsets by then. Returns at once."""
        if place != self._place:
            self._place = place
            self._tried.clear()
            self._loop.call_soon_threadsafe(self._news.set)

    def flush(self) -> None:
        """Wait until the last report is committed or refused, for `CLOSE_TIMEOUT_S` at most."""
        self._loop.call_soon_threadsafe(self._hurried.set)
        self._tried.wait(CLOSE_TIMEOUT_S)

    def close(self) -> None:
        """Flush and end."""
        self.flush()
        self._is_closing = True
        self._loop.call_soon_threadsafe(self._hurried.set)
        self._loop.call_soon_threadsafe(self._news.set)
        self._thread.join(CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _follow(self) -> None:
        committer = OffsetCommitter(self._bootstrap, self._group)
        committed: dict[QueueKey, int] = {}
        try:
            while not self._is_closing:
                await self._news.wait()
                self._news.clear()
                place = self._place
                news = {key: offset for key, offset in place.items() if committed.get(key) != offset}
                try:
                    await committer.commit({MessageQueue(*key): offset for key, offset in news.items()})
                    committed |= news
                except RingmqError as error:
                    _log.warning("the stream's progress is not committed to group %s: %s", self._group, error)
                if place is self._place:
                    self._tried.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurried.wait(), INTERVAL_S)
                self._hurried.clear()
        finally:
            await committer.close()
