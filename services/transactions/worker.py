"""Entry point of the worker `transactions`: `python -m ringmq.services.transactions.worker NAME SPEC`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ringmq.broker.config.run_config import store_config
from ringmq.broker.requests.request import Outbox
from ringmq.ipc.asks import Asker, Inbox
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.native import lib
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.control_asks import ControlAsks
from ringmq.services.log_view import LogView
from ringmq.services.loop import ServiceLoop
from ringmq.services.transactions.plain_ends import PlainEnds
from ringmq.services.transactions.service import TransactionService
from ringmq.store.message_store import MessageStore

REST_AFTER_MS = 30_000
"""Time without open halves after which the worker ends."""


def log(text: str) -> None:
    """Write a log line."""
    print(f"ringmq: transactions: {text}", file=sys.stderr, flush=True)


def now_ms() -> int:
    """The monotonic clock of all deadlines of the worker."""
    return time.monotonic_ns() // 1_000_000


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until no half has been open for a while."""
    role, rests = plane.role(spec.role), False
    config = ConfigWatcher(Path(spec.config_path))
    log_view = LogView(plane, MessageStore(store_config(config())))
    outbox, inbox = Outbox(), Inbox(plane, spec.role)
    asks = ControlAsks(Asker(plane, spec.role, lib.RMQ_ROLE_CONTROL))
    service = TransactionService(
        plane=plane, role=spec.role, log=log_view, config=config, asks=asks, outbox=outbox, tell=log
    )
    loop = ServiceLoop(
        plane, spec.role, inbox, [service], asks, outbox, config, log_view, log, rest_after_ms=REST_AFTER_MS,
        plain=PlainEnds(plane, inbox, service),
    )  # fmt: skip
    bound_collections()
    inbox.begin()
    while not stop.is_set:
        if loop.turn(now_ms()):
            continue
        if rests := loop.may_rest(now_ms()):
            service.rest()
            break
        loop.park(now_ms())
    loop.close(now_ms(), takes_more=not rests)
    role.state = STATE_STOPPING
    return EXIT_RESTED if rests else EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
