"""Entry point of the worker `delay`: `python -m ringmq.services.delay.worker NAME SPEC`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from ringmq.broker.config.run_config import read_run_config, store_config
from ringmq.ipc.asks import Asker
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import StopFlag, WorkerSpec
from ringmq.native import lib
from ringmq.services.control_asks import ControlAsks
from ringmq.services.delay.delivery import Delivery
from ringmq.services.delay.levels import schedule_slots
from ringmq.services.delay.schedule import Level
from ringmq.services.kit.loop import ServiceLoop
from ringmq.services.log_view import LogView
from ringmq.store.config import parse_delay_levels
from ringmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

REST_AFTER_MS = 30_000
"""Time without waiting messages after which the worker ends."""


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until no message has waited for a while."""
    config = read_run_config(Path(spec.config_path))
    delays = parse_delay_levels(config.message_delay_level)
    slots = schedule_slots(plane, len(delays))
    levels = [Level(delay_ms, slot) for delay_ms, slot in zip(delays, slots, strict=True)]
    log_view = LogView(plane, MessageStore(store_config(config)))
    topics = ControlAsks(Asker(plane, spec.role, lib.RMQ_ROLE_CONTROL))
    delivery = Delivery(plane, spec.role, levels, Path(config.store_path_root_dir), log_view, topics, log.warning)
    loop = ServiceLoop(plane, spec.role, [delivery], rest_after_ms=REST_AFTER_MS)
    bound_collections()
    return loop.run(stop)


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
