"""The image of a broker's workers, from which they are forked."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.image import WorkerImage
from ringmq.ipc.image_process import contents_of
from ringmq.ipc.workers import WORKERS

BY_EXEC = "RINGMQ_WORKERS_BY_EXEC"
"""Set in the environment, this starts each worker by exec, for debuggers and sanitizers."""


@contextlib.contextmanager
def worker_image(config: BrokerConfig) -> Iterator[WorkerImage | None]:
    """The image of this broker's workers. None if BY_EXEC is set.

    The main process makes it before anything that a worker must not inherit: the engine's probe, the store's lock,
    listeners, threads.
    """
    if os.environ.get(BY_EXEC):
        yield None
        return
    rows = WORKERS.rows(1, slave=config.broker_role == "SLAVE")
    image = WorkerImage.first(contents_of(rows, config.broker_name), time.monotonic_ns() // 1_000_000)
    try:
        yield image
    finally:
        image.close()
