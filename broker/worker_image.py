"""The image of a broker's workers, from which they are forked."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from msgspec.structs import replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.image import WorkerImage
from ringmq.ipc.image_process import ImageContents, contents_of
from ringmq.ipc.workers import WORKERS

BY_EXEC = "RINGMQ_WORKERS_BY_EXEC"
"""Set in the environment, this starts each worker by exec, for debuggers and sanitizers."""
FILTER_COMPILER = "ringmq.filters.compiler"
"""Control loads it when it starts with enablePropertyFilter."""


def image_contents(config: BrokerConfig) -> ImageContents:
    """The modules of this broker's image: those of its workers, and the compiler of filters if control needs it."""
    contents = contents_of(WORKERS.rows(1), config.broker_name)
    if config.enable_property_filter:
        return replace(contents, at_once=(*contents.at_once, FILTER_COMPILER))
    return contents


@contextlib.contextmanager
def worker_image(config: BrokerConfig) -> Iterator[WorkerImage | None]:
    """The image of this broker's workers. None if BY_EXEC is set.

    The main process makes it before anything that a worker must not inherit: the engine's probe, the store's lock,
    listeners, threads.
    """
    if os.environ.get(BY_EXEC):
        yield None
        return
    image = WorkerImage.first(image_contents(config), time.monotonic_ns() // 1_000_000)
    try:
        yield image
    finally:
        image.close()
