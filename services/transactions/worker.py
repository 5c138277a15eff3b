"""Entry point of the worker `transactions`: `python -m ringmq.services.transactions.worker NAME SPEC`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from ringmq.broker.config.run_config import store_config
from ringmq.broker.requests.request import Outbox
from ringmq.ipc.asks import Asker, Inbox
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import StopFlag, WorkerSpec
from ringmq.native import lib
from ringmq.services.answering import Answering
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.control_asks import ControlAsks
from ringmq.services.kit.loop import ServiceLoop
from ringmq.services.log_view import LogView
from ringmq.services.transactions.plain_ends import PlainEnds
from ringmq.services.transactions.service import TransactionService
from ringmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

REST_AFTER_MS = 30_000
"""Time without open halves after which the worker ends."""


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until no half has been open for a while."""
    config = ConfigWatcher(Path(spec.config_path))
    log_view = LogView(plane, MessageStore(store_config(config())))
    outbox, inbox = Outbox(), Inbox(plane, spec.role)
    asks = ControlAsks(Asker(plane, spec.role, lib.RMQ_ROLE_CONTROL))
    service = TransactionService(
        plane=plane, role=spec.role, log=log_view, config=config, asks=asks, outbox=outbox, log_line=log.warning
    )
    answering = Answering(
        plane, spec.role, inbox, [service], asks, outbox, config, log_view, log.warning, plain=PlainEnds(service),
        on_rest=service.rest,
    )  # fmt: skip
    loop = ServiceLoop(plane, spec.role, [config, answering], rest_after_ms=REST_AFTER_MS)
    bound_collections()
    return loop.run(stop)


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
