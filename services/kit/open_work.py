"""A look at a store at the start of a broker: does it hold work for a worker?

The row of a worker names a function `has_open_work(config, root)` as `needed_at_once`. Every start calls all of them,
when the store is recovered and the plane is filled, and no worker runs yet. For a store without work of the worker, a
look may cost a few words of the plane, and no imports. So it imports what reads the log only when it has to.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.services.arrivals import Arrivals
from ringmq.services.topics import Topics

if TYPE_CHECKING:
    from ringmq.services.log_view import LogView


class StoreLook:
    """The plane and the log of the store in the folder `root`. Raises OSError."""

    def __init__(self, config: BrokerConfig, root: Path) -> None:
        self.config, self.root = config, root
        self.plane = Plane.open(plane_name(root))
        self.topics = Topics(self.plane)

    @property
    def log_end(self) -> int:
        """End of the log."""
        return int(self.plane.watermarks.append_offset)

    @property
    def is_dispatched(self) -> bool:
        """True if the queues have every record of the log. Else a look at queues proves nothing."""
        return int(self.plane.watermarks.dispatched_offset) >= self.log_end

    def start_at_arrival(self, role: int, *queue_slots: int) -> None:
        """Let the first message in one of these queues start the worker of `role`."""
        arrivals = Arrivals(self.plane, self.plane.port_of(role))
        for slot in queue_slots:
            arrivals.want(slot)

    def log(self) -> LogView:
        """The log, for a look that costs more."""
        from ringmq.services.log_view import LogView
        from ringmq.store.message_store import MessageStore

        return LogView(self.plane, MessageStore(store_config(self.config)))
