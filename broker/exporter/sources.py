"""Families of guests. The function that a guest names gets a `Sources`, and returns a function that adds to a page."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.exporter.text import Page
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import follows_master
from ringmq.store.message_store import MessageStore

Add = Callable[[Page, int], None]
"""Adds families at a time (UNIX, ms)."""


class Sources(Struct, frozen=True):
    """The sources of metrics of one broker. The store is refreshed before each page."""

    plane: Plane
    config: BrokerConfig
    store: MessageStore

    def of_master(self, add: Add) -> Add:
        """`add`, which adds nothing while the broker follows a master. Messages that came in are the master's to tell:
        a sum over both would count them twice."""

        def add_to(page: Page, now_ms: int) -> None:
            if not follows_master(self.plane.watermarks):
                add(page, now_ms)

        return add_to

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of a message that may be read, 0 if it is unknown."""
        return self.store.store_time(topic, queue_id, offset, self.plane.confirm_offset())
